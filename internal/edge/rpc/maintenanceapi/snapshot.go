package maintenanceapi

import (
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/edge/rpc/transport"
	"vigil/internal/kv"
)

// Snapshots makes copies of the member's whole state. Errors are kv's.
type Snapshots interface {
	// Snapshot cuts the state. ctx bounds the call, but not the use of the snapshot.
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
	// SnapshotChunk is how much of a snapshot is in a message, as in etcd.
	SnapshotChunk = 32 << 10
	// SnapshotPiece is how many bytes a client must read within SnapshotPatience. An open snapshot
	// keeps disk space from being freed.
	SnapshotPiece    = 10 << 20
	SnapshotPatience = 10 * time.Minute
	// SnapshotYield is the time for a piece while another client waits for a snapshot and the limit
	// is reached.
	SnapshotYield = 10 * time.Second
)

var (
	errSnapshotSlow = status.Errorf(codes.DeadlineExceeded,
		"vigil: the snapshot was ended: the client read less than %d bytes of it in %v",
		SnapshotPiece, SnapshotPatience)
	errSnapshotYields = status.Errorf(codes.DeadlineExceeded,
		"vigil: the snapshot was ended because another client waits for one: this client read "+
			"less than %d bytes of it in %v; try again later",
		SnapshotPiece, SnapshotYield)
)

// NewSnapshotSeconds returns the metric of the time that clients take to fetch a snapshot.
func NewSnapshotSeconds() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "etcd_disk_backend_snapshot_duration_seconds",
		Help:    "Time that clients take to fetch a snapshot.",
		Buckets: prometheus.ExponentialBuckets(0.01, 2, 17)})
}

// Sending has the snapshots that are being sent. Tests change Patience and Yield.
type Sending struct {
	// Patience is how long sending SnapshotPiece bytes may take, Yield how long while other clients
	// wait for a snapshot.
	Patience, Yield time.Duration

	mu struct {
		sync.Mutex
		senders map[*snapshotSender]struct{}
	}
}

func newSending() Sending { return Sending{Patience: SnapshotPatience, Yield: SnapshotYield} }

func (l *Sending) add(s *snapshotSender) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.senders == nil {
		l.mu.senders = map[*snapshotSender]struct{}{}
	}
	l.mu.senders[s] = struct{}{}
}

func (l *Sending) remove(s *snapshotSender) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mu.senders, s)
}

// makeRoom ends the snapshot whose client has needed the longest time for its present piece, if
// that is longer than Yield, and waits until it is closed. It reports whether there was one.
func (l *Sending) makeRoom(ctx context.Context) bool {
	l.mu.Lock()
	var victim *snapshotSender
	longest := l.Yield
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

// snapshot sends the member's state as a file of etcd, and after it the SHA-256 of the file.
//
// Sending a message blocks while the client does not read, so another goroutine sends. It ends soon
// after this one, which ends the stream.
func (a *API) snapshot(_ *pb.SnapshotRequest, stream transport.Stream) error {
	if a.o.Snapshots == nil {
		return status.Error(codes.Unimplemented, "this member sends no snapshots")
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	snap, err := a.o.Snapshots.Snapshot(ctx)
	if errors.Is(err, kv.ErrTooManyRequests) && a.Sending.makeRoom(ctx) {
		snap, err = a.o.Snapshots.Snapshot(ctx)
	}
	if err != nil {
		return snapshotStatus(ctx, err)
	}
	log := a.o.Logger.With("total-bytes", snap.Size(), "storage-version", snap.Version(), "remote",
		transport.Remote(ctx))
	log.Info("sending database snapshot to client")
	began := time.Now()
	patience := a.Sending.Patience
	s := &snapshotSender{
		stream: stream, left: snap.Size(), version: snap.Version(), hash: sha256.New(),
		patience: patience,
		slow:     time.AfterFunc(patience, func() { cancel(errSnapshotSlow) }),
		end:      cancel, gone: make(chan struct{}),
	}
	s.slow.Stop() // until the first message
	a.Sending.add(s)
	sent := make(chan error, 1)
	go func() {
		defer close(s.gone)
		defer snap.Close()
		defer a.Sending.remove(s)
		defer s.slow.Stop()
		defer func() {
			if p := recover(); p != nil {
				sent <- transport.Recovered(a.o.Logger, "sending a snapshot", p)
			}
		}()
		sent <- s.sendFile(snap)
	}()
	select {
	case err = <-sent:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		log.Warn("sending database snapshot to client failed", "took",
			time.Since(began), "error", err)
		return snapshotStatus(ctx, err)
	}
	log.Info("successfully sent database snapshot to client", "took", time.Since(began))
	return nil
}

// snapshotStatus returns the status for an error. If the context ended, its cause counts.
func snapshotStatus(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil &&
		(errors.Is(err, context.Canceled) || errors.Is(err, kv.ErrStopped)) {
		err = cause
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return apierror.Status(err)
}

// snapshotSender cuts a file into messages. It is an io.Writer. Only the time of sending counts
// against the client: a busy disk of this member ends no backup.
type snapshotSender struct {
	stream   transport.Stream
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

func (s *snapshotSender) sendFile(snap Snapshot) error {
	s.buf = make([]byte, 0, SnapshotChunk)
	if err := snap.Write(s); err != nil {
		return err
	}
	if len(s.buf) > 0 {
		if err := s.sendChunk(); err != nil {
			return err
		}
	}
	return s.sendMessage(s.hash.Sum(nil))
}

// Write implements io.Writer.
func (s *snapshotSender) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		k := min(len(b), SnapshotChunk-len(s.buf))
		s.buf = append(s.buf, b[:k]...)
		b = b[k:]
		if len(s.buf) == SnapshotChunk {
			if err := s.sendChunk(); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

// sendChunk sends the contents of the buffer, and empties it.
func (s *snapshotSender) sendChunk() error {
	_, _ = s.hash.Write(s.buf) // documented never to fail
	s.left -= int64(len(s.buf))
	if err := s.sendMessage(s.buf); err != nil {
		return err
	}
	// Sending has encoded it: the transport has a copy.
	s.buf = s.buf[:0]
	return nil
}

func (s *snapshotSender) sendMessage(blob []byte) error {
	s.noteSending()
	err := s.stream.SendMsg(&pb.SnapshotResponse{RemainingBytes: uint64(s.left), Blob: blob,
		Version: s.version})
	if err != nil {
		return err
	}
	s.noteSent(len(blob))
	return nil
}

// noteSending notes that a message is being sent.
func (s *snapshotSender) noteSending() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.since = time.Now()
	s.slow.Reset(s.patience - s.mu.spent)
}

// noteSent notes that a message of n bytes was sent.
func (s *snapshotSender) noteSent(n int) {
	s.slow.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.spent += time.Since(s.mu.since)
	s.mu.since = time.Time{}
	if s.piece += n; s.piece >= SnapshotPiece {
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
