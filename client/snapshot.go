package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"vigil/client/internal/pool"
)

// ErrSnapshotDamaged means that the bytes of a snapshot do not match the checksum that the member
// sent after them.
var ErrSnapshotDamaged = errors.New("the snapshot was damaged on its way")

var snapshotDesc = &grpc.StreamDesc{StreamName: "Snapshot", ServerStreams: true}

// Snapshot reads a copy of a member's store: a database file of etcd's format followed by its
// SHA-256, as a restore expects it. Reading ends with io.EOF only if the copy is complete and its
// checksum is right.
type Snapshot struct {
	// Size is the total number of bytes, with the checksum.
	Size int64
	// Version is the version of the member's storage, empty if the member does not report it.
	Version string
	// Member is the endpoint that sends it.
	Member string

	ctx     context.Context // the caller's
	cancel  context.CancelFunc
	release func()
	stream  grpc.ClientStream
	rest    []byte
	left    uint64
	sum     hash.Hash
	tail    []byte // the last bytes read, which are the checksum if there are no more
	err     error
}

// Snapshot starts to copy the store of one member; see [Client.At]. It must be closed. An
// interrupted copy cannot be continued: the rest would be of another revision.
func (m Maintenance) Snapshot(ctx context.Context) (*Snapshot, error) {
	a := m.c.attempts(&snapshotMethod, "")
	var s *Snapshot
	err := a.makeAttempts(ctx, func(octx context.Context) (sent bool, err error) {
		octx, cancel := context.WithCancel(octx)
		if s, err = openSnapshot(octx, a.At); err != nil {
			cancel()
			return true, err
		}
		s.ctx, s.cancel = ctx, cancel
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	s.release = sync.OnceFunc(a.At.Release)
	return s, nil
}

func openSnapshot(ctx context.Context, at *pool.Member) (*Snapshot, error) {
	stream, err := openStream(ctx, at, snapshotDesc, snapshotMethod.name,
		&etcdserverpb.SnapshotRequest{})
	if err != nil {
		return nil, err
	}
	s := &Snapshot{stream: stream, Member: at.Name(), sum: sha256.New()}
	var first etcdserverpb.SnapshotResponse
	if err := stream.RecvMsg(&first); err != nil {
		return nil, err
	}
	// The member counts the bytes without the checksum.
	s.Size = int64(first.RemainingBytes) + int64(len(first.Blob)) + sha256.Size
	s.Version = first.Version
	s.addPiece(&first)
	return s, nil
}

// addPiece adds a piece. It does not hash the last bytes, which may be the checksum.
func (s *Snapshot) addPiece(r *etcdserverpb.SnapshotResponse) {
	s.rest, s.left = r.Blob, r.RemainingBytes
	s.tail = append(s.tail, r.Blob...)
	if n := len(s.tail) - sha256.Size; n > 0 {
		s.sum.Write(s.tail[:n])
		s.tail = append(s.tail[:0], s.tail[n:]...)
	}
}

// Read implements io.Reader.
func (s *Snapshot) Read(p []byte) (int, error) {
	for len(s.rest) == 0 && s.err == nil {
		var r etcdserverpb.SnapshotResponse
		err := s.stream.RecvMsg(&r)
		switch {
		case err == nil:
			s.addPiece(&r)
		case err == io.EOF:
			s.err = s.checkComplete()
		default:
			s.err = explain(s.ctx, snapshotMethod.op, "", s.Member, err)
		}
	}
	if len(s.rest) == 0 {
		return 0, s.err
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

func (s *Snapshot) checkComplete() error {
	if s.left != 0 {
		return fmt.Errorf("snapshot from %s: %w: %d bytes are missing", s.Member,
			io.ErrUnexpectedEOF, s.left)
	}
	if !bytes.Equal(s.tail, s.sum.Sum(nil)) {
		return fmt.Errorf("snapshot from %s: %w", s.Member, ErrSnapshotDamaged)
	}
	return io.EOF
}

// Close ends the copy.
func (s *Snapshot) Close() error {
	s.cancel()
	s.release()
	return nil
}
