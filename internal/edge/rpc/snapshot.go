package rpc

import (
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/edge/rpc/transport"
	"vigil/internal/kv"
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
	// snapshotPiece is how many bytes a client must read within snapshotPatience. An open snapshot keeps disk space from
	// being freed.
	snapshotPiece    = 10 << 20
	snapshotPatience = 10 * time.Minute
	// snapshotYield is the time for a piece while another client waits for a snapshot and the limit is reached.
	snapshotYield = 10 * time.Second
)

var (
	errSnapshotSlow = status.Errorf(codes.DeadlineExceeded,
		"vigil: the snapshot was ended: the client read less than %d bytes of it in %v", snapshotPiece, snapshotPatience)
	errSnapshotYields = status.Errorf(codes.DeadlineExceeded,
		"vigil: the snapshot was ended for that of another client: the client read less than %d bytes of it in %v; try again later", snapshotPiece, snapshotYield)
)

// snapshotsSent are the snapshots under way.
type snapshotsSent struct {
	mu struct {
		sync.Mutex
		senders map[*snapshotSender]struct{}
	}
}

func (l *snapshotsSent) add(s *snapshotSender) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.senders == nil {
		l.mu.senders = map[*snapshotSender]struct{}{}
	}
	l.mu.senders[s] = struct{}{}
}

func (l *snapshotsSent) remove(s *snapshotSender) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mu.senders, s)
}

// makeRoom ends the snapshot whose client has needed the longest time for its present piece, if that is longer than after,
// and waits until it is closed. It reports whether there was one.
func (l *snapshotsSent) makeRoom(ctx context.Context, after time.Duration) bool {
	l.mu.Lock()
	var victim *snapshotSender
	longest := after
	for s := range l.mu.senders {
		if t := s.needed(); t >= longest {
			victim, longest = s, t
		}
	}
	if victim == nil {
		l.mu.Unlock()
		return false
	}
	delete(l.mu.senders, victim) // no other call waits for its place
	l.mu.Unlock()
	victim.end(errSnapshotYields)
	select {
	case <-victim.gone:
		return true
	case <-ctx.Done():
		return false
	}
}

// Snapshot sends the member's state as a file of etcd, and after it the SHA-256 of the file.
//
// Sending a message blocks while the client does not read, so another goroutine sends. It ends soon after this one, which
// ends the stream.
func (m *maintenance) Snapshot(_ *etcdserverpb.SnapshotRequest, ss *serverStream) error {
	if m.svc.cfg.Snapshots == nil {
		return status.Error(codes.Unimplemented, "this member sends no snapshots")
	}
	ctx, cancel := context.WithCancelCause(ss.Context())
	defer cancel(nil)
	snap, err := m.svc.cfg.Snapshots.Snapshot(ctx)
	if errors.Is(err, kv.ErrTooManyRequests) && m.svc.snapshots.makeRoom(ctx, m.svc.snapshotYield) {
		snap, err = m.svc.cfg.Snapshots.Snapshot(ctx)
	}
	if err != nil {
		return m.snapshotStatus(ctx, err)
	}
	log := m.svc.log.With("total-bytes", snap.Size(), "storage-version", snap.Version(), "remote", transport.Remote(ctx))
	log.Info("sending database snapshot to client")
	began := time.Now()
	s := &snapshotSender{
		stream: ss, left: snap.Size(), version: snap.Version(), hash: sha256.New(),
		patience: m.svc.snapshotPatience,
		slow:     time.AfterFunc(m.svc.snapshotPatience, func() { cancel(errSnapshotSlow) }),
		end:      cancel, gone: make(chan struct{}),
	}
	s.slow.Stop() // until the first message
	m.svc.snapshots.add(s)
	sent := make(chan error, 1)
	go func() {
		defer close(s.gone)
		defer snap.Close()
		defer m.svc.snapshots.remove(s)
		defer s.slow.Stop()
		defer func() {
			if p := recover(); p != nil {
				sent <- transport.Recovered(m.svc.log, "sending a snapshot", p)
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
	return apierror.Status(err)
}

// snapshotSender cuts a file into messages. It is an io.Writer. Only the time of sending counts as the client's: a busy disk
// of this member ends no backup.
type snapshotSender struct {
	stream   *serverStream
	version  string
	left     int64
	buf      []byte
	hash     hash.Hash
	patience time.Duration
	slow     *time.Timer
	piece    int // bytes of the present piece that were sent
	mu       struct {
		sync.Mutex
		spent time.Duration // sending the messages of the present piece that were sent
		since time.Time     // when the message under way began, zero if there is none
	}
	end  context.CancelCauseFunc
	gone chan struct{} // closed when its place is free
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
	s.begin()
	err := s.stream.SendMsg(&etcdserverpb.SnapshotResponse{RemainingBytes: uint64(s.left), Blob: blob, Version: s.version})
	if err != nil {
		return err
	}
	s.sent(len(blob))
	return nil
}

// begin notes that a message is being sent.
func (s *snapshotSender) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.since = time.Now()
	s.slow.Reset(s.patience - s.mu.spent)
}

// sent notes that a message of n bytes was sent.
func (s *snapshotSender) sent(n int) {
	s.slow.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.spent += time.Since(s.mu.since)
	s.mu.since = time.Time{}
	if s.piece += n; s.piece >= snapshotPiece {
		s.piece, s.mu.spent = 0, 0
	}
}

// needed returns the time that the client has needed for the present piece.
func (s *snapshotSender) needed() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.since.IsZero() {
		return s.mu.spent
	}
	return s.mu.spent + time.Since(s.mu.since)
}
