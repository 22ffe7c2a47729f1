package position

import (
	"context"
	"errors"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/raftnode"
)

// Raft is the member's raft node.
type Raft interface {
	// TryReadIndex returns the commit index if this member leads without other voters.
	TryReadIndex() (index uint64, ok bool)
	// ReadIndex asks the cluster for its commit index.
	ReadIndex(context.Context) (uint64, error)
}

// Timings measures reads.
type Timings interface {
	CountReadIndex(took time.Duration, err error)
}

// Contacts are the connections to other members.
type Contacts interface {
	// WaitError returns the error of a wait that began at a time and that a context has ended.
	WaitError(err error, begun time.Time) error
}

// ReaderOptions configure a Reader. All fields are required.
type ReaderOptions struct {
	Applied  *Applied
	Raft     Raft
	Contacts Contacts
	Timings  Timings
	// Stopping is closed when the member stops.
	Stopping <-chan struct{}
	// RequestTimeout limits how long the cluster is asked for its commit index.
	RequestTimeout time.Duration
}

// Reader tells when the state of a member may be read.
type Reader struct{ o ReaderOptions }

// NewReader returns a Reader.
func NewReader(o ReaderOptions) *Reader { return &Reader{o} }

// AwaitReadable waits until the store may be read: unless that is serializable, as Linearize does.
// waited is 0 unless it had to wait. Errors: kv.ErrStopped, and as Linearize.
func (r *Reader) AwaitReadable(ctx context.Context,
	serializable bool) (waited time.Duration, err error) {
	select {
	case <-r.o.Stopping:
		return 0, kv.ErrStopped
	default:
	}
	if serializable {
		return 0, ctx.Err()
	}
	return r.linearize(ctx)
}

// Linearize waits until this member's state is at least as new as any member's was when it was
// called. Errors: kv.ErrTimeout, kv.ErrTimeoutWaitApplied, kv.ErrStopped, and from ctx.
func (r *Reader) Linearize(ctx context.Context) error {
	_, err := r.linearize(ctx)
	return err
}

func (r *Reader) linearize(ctx context.Context) (waited time.Duration, err error) {
	index, ok := r.o.Raft.TryReadIndex()
	if ok && r.o.Applied.Load() >= index {
		return 0, ctx.Err()
	}
	begun := time.Now()
	if !ok {
		if index, err = r.readIndex(ctx, begun); err != nil {
			return time.Since(begun), err
		}
	}
	if err = ctx.Err(); r.o.Applied.Load() < index {
		err = r.WaitApplied(ctx, index)
	}
	return time.Since(begun), err
}

// readIndex asks the cluster for its commit index.
func (r *Reader) readIndex(ctx context.Context, begun time.Time) (uint64, error) {
	limited, cancel := context.WithTimeout(ctx, r.o.RequestTimeout)
	defer cancel()
	index, err := r.o.Raft.ReadIndex(limited)
	r.o.Timings.CountReadIndex(time.Since(begun), err)
	switch {
	case err == nil:
		return index, nil
	case errors.Is(err, raftnode.ErrStopped):
		return 0, kv.ErrStopped
	default:
		return 0, r.o.Contacts.WaitError(err, begun)
	}
}

// WaitApplied waits until the result of an index can be read.
func (r *Reader) WaitApplied(ctx context.Context, index uint64) error {
	w := r.o.Applied.Join(index)
	if w == nil {
		return nil
	}
	select {
	case <-w.Done():
		return w.Err()
	case <-ctx.Done():
		return r.o.Contacts.WaitError(ctx.Err(), w.Since())
	}
}
