package concurrency

import (
	"context"
	"errors"
	"fmt"

	"vigil/client"
)

// ErrLocked means that TryLock would have to wait.
var ErrLocked = errors.New("somebody else holds the lock")

// Mutex is a lock that one holder at a time has. Its methods may be called by any goroutine; each Lock takes a place of
// its own in the queue, also of the same Mutex.
type Mutex struct {
	s    *Session
	name string
}

// NewMutex names a lock. The session is what holds it.
func NewMutex(s *Session, name string) *Mutex { return &Mutex{s, name} }

// Lock waits for the lock. If the context ends before, the place in the queue is given up.
func (m *Mutex) Lock(ctx context.Context) (*Held, error) { return lock(ctx, m.s, m.name, m.name) }

// TryLock takes the lock if nobody has it or waits for it; otherwise its error matches ErrLocked.
func (m *Mutex) TryLock(ctx context.Context) (*Held, error) {
	q, err := join(ctx, m.s, m.name, nil)
	if err != nil {
		return nil, err
	}
	before, _, err := q.before(ctx, m.name)
	if err == nil && before != "" {
		err = fmt.Errorf("%w: %q", ErrLocked, before)
	}
	if err != nil {
		return nil, errors.Join(err, left(q, ctx))
	}
	return &Held{q}, nil
}

// While locks, runs work, and unlocks. The context of the work ends, with ErrLost for its cause, when the lock may be
// lost. The error is that of the work or else of the lock.
func (m *Mutex) While(ctx context.Context, work func(ctx context.Context, h *Held) error) error {
	h, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	return h.while(ctx, work)
}

// lock takes a place below name and waits for those below behind.
func lock(ctx context.Context, s *Session, name, behind string) (*Held, error) {
	q, err := join(ctx, s, name, nil)
	if err != nil {
		return nil, err
	}
	if err := q.turn(ctx, behind); err != nil {
		return nil, errors.Join(err, left(q, ctx))
	}
	return &Held{q}, nil
}

// left gives up a claim for another reason than that it was lost.
func left(q *claim, ctx context.Context) error {
	if err := q.leave(ctx); !errors.Is(err, ErrLost) {
		return err
	}
	return nil
}

// Held is a lock that is held, or an office.
type Held struct{ q *claim }

// Key returns the key that stands for it; it goes with the session.
func (h *Held) Key() string { return h.q.key }

// Fence returns a number that is higher than that of every holder before: the create revision of Key.
func (h *Held) Fence() int64 { return h.q.rev }

// Guard is the condition that it is still held, for a transaction that may only be done then.
func (h *Held) Guard() client.Cmp { return client.CreateRevision(h.q.key).Equal(h.q.rev) }

// Lost returns a channel that is closed when it may not be held any more, or was given up.
func (h *Held) Lost() <-chan struct{} { return h.q.over.Done() }

// Err returns nil while it is held; then why it is not.
func (h *Held) Err() error { return h.q.held() }

// Context returns a context that ends with ctx, and when it may be lost.
func (h *Held) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	return until(ctx, h.Lost(), h.Err)
}

// Unlock gives it up. An error that matches ErrLost says that it was, or may have been, lost before.
// If the key cannot be deleted it goes with the session.
func (h *Held) Unlock(ctx context.Context) error { return h.q.leave(ctx) }

func (h *Held) while(ctx context.Context, work func(context.Context, *Held) error) error {
	during, stop := h.Context(ctx)
	err := work(during, h)
	stop()
	if lost := h.Unlock(ctx); err == nil {
		err = lost
	}
	return err
}

// RWMutex is a lock that one writer has, or any number of readers. Who comes first is first: readers wait for a writer
// that came before them.
type RWMutex struct {
	s    *Session
	name string
}

// NewRWMutex names a lock, which must not be the name of a Mutex.
func NewRWMutex(s *Session, name string) *RWMutex { return &RWMutex{s, name} }

// Lock waits for the lock as a writer.
func (m *RWMutex) Lock(ctx context.Context) (*Held, error) {
	return lock(ctx, m.s, m.name+"/write", m.name)
}

// RLock waits for the lock as a reader.
func (m *RWMutex) RLock(ctx context.Context) (*Held, error) {
	return lock(ctx, m.s, m.name+"/read", m.name+"/write")
}
