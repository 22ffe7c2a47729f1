package rpc

import (
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/kv"
)

// Snapshots makes copies of the member's whole state. Errors are kv's.
type Snapshots interface {
	// Snapshot cuts the state; ctx bounds the call and not what follows.
	Snapshot(ctx context.Context) (Snapshot, error)
}

// Snapshot is a copy in the form of a file of etcd. It is for one goroutine.
type Snapshot interface {
	// Version is the storage version that the file names, Size how many bytes it has.
	Version() string
	Size() int64
	// Write writes the file, once, until out fails.
	Write(out io.Writer) error
	Close()
}

const (
	// snapshotChunk is how much of a snapshot goes into a message, as in etcd.
	snapshotChunk = 32 << 10
	// snapshotPatience is how long a client may take for one of them. While it takes none, its snapshot
	// keeps space on disk from being given back.
	snapshotPatience = 10 * time.Minute
)

var errSnapshotStalled = status.Errorf(codes.DeadlineExceeded, "vigil: the snapshot was ended: nothing of it was taken for %v", snapshotPatience)

// Snapshot sends the member's state as a file of etcd, and behind it the SHA-256 of the file.
//
// A message may wait for the client for as long as the client likes, so another goroutine sends. It ends
// soon after this one, which ends the stream.
func (m *maintenance) Snapshot(_ *etcdserverpb.SnapshotRequest, ss etcdserverpb.Maintenance_SnapshotServer) error {
	if m.svc.cfg.Snapshots == nil {
		return status.Error(codes.Unimplemented, "this member sends no snapshots")
	}
	ctx, cancel := context.WithCancelCause(ss.Context())
	defer cancel(nil)
	snap, err := m.svc.cfg.Snapshots.Snapshot(ctx)
	if err != nil {
		return m.snapshotStatus(ctx, err)
	}
	log := m.svc.log.With("total-bytes", snap.Size(), "storage-version", snap.Version(), "remote", remote(ctx))
	log.Info("sending database snapshot to client")
	began := time.Now()
	s := &snapshotSender{
		stream: ss, left: snap.Size(), version: snap.Version(), hash: sha256.New(),
		patience: m.svc.snapshotPatience,
		stalled:  time.AfterFunc(m.svc.snapshotPatience, func() { cancel(errSnapshotStalled) }),
	}
	sent := make(chan error, 1)
	go func() {
		defer snap.Close()
		defer s.stalled.Stop()
		defer func() {
			if p := recover(); p != nil {
				sent <- m.svc.panicked("sending a snapshot", p)
			}
		}()
		sent <- s.send(snap)
	}()
	select {
	case err = <-sent:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		log.Warn("sending database snapshot to client failed", "took", time.Since(began), "error", err)
		return m.snapshotStatus(ctx, err)
	}
	log.Info("successfully sent database snapshot to client", "took", time.Since(began))
	return nil
}

// snapshotStatus turns an error into the status that the client gets. What ended the context counts.
func (m *maintenance) snapshotStatus(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && (errors.Is(err, context.Canceled) || errors.Is(err, kv.ErrStopped)) {
		err = cause
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return statusOf(err)
}

// snapshotSender cuts a file into messages. It is an io.Writer.
type snapshotSender struct {
	stream   etcdserverpb.Maintenance_SnapshotServer
	version  string
	left     int64
	buf      []byte
	hash     hash.Hash
	patience time.Duration
	stalled  *time.Timer
}

func (s *snapshotSender) send(snap Snapshot) error {
	s.buf = make([]byte, 0, snapshotChunk)
	if err := snap.Write(s); err != nil {
		return err
	}
	if len(s.buf) > 0 {
		if err := s.chunk(); err != nil {
			return err
		}
	}
	return s.message(s.hash.Sum(nil))
}

// Write implements io.Writer.
func (s *snapshotSender) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		k := min(len(b), snapshotChunk-len(s.buf))
		s.buf = append(s.buf, b[:k]...)
		b = b[k:]
		if len(s.buf) == snapshotChunk {
			if err := s.chunk(); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

// chunk sends what is in the buffer.
func (s *snapshotSender) chunk() error {
	_, _ = s.hash.Write(s.buf) // documented never to fail
	s.left -= int64(len(s.buf))
	if err := s.message(s.buf); err != nil {
		return err
	}
	// Sending has encoded it: the transport has a copy.
	s.buf = s.buf[:0]
	return nil
}

func (s *snapshotSender) message(blob []byte) error {
	err := s.stream.Send(&etcdserverpb.SnapshotResponse{RemainingBytes: uint64(s.left), Blob: blob, Version: s.version})
	if err == nil {
		s.stalled.Reset(s.patience)
	}
	return err
}
