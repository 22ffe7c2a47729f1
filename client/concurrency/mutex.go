package concurrency

import (
	"context"
	"errors"
	"fmt"

	"vigil/client"
)

// ErrLocked means that TryLock would have to wait.
var ErrLocked = errors.New("the lock is held by another claim")

// Mutex is a lock with one holder at a time. It is safe for concurrent use. Each Lock, also of the
// same Mutex, has its own place in the queue.
type Mutex struct {
	s    *Session
	name string
}

// NewMutex returns the lock with a name. The session holds it.
func NewMutex(s *Session, name string) *Mutex { return &Mutex{s, name} }

// Lock waits for the lock. If the context ends before, it gives up its place in the queue.
func (m *Mutex) Lock(ctx context.Context) (*Held, error) { return lock(ctx, m.s, m.name, m.name) }

// TryLock takes the lock if it is free and without waiting claims; otherwise its error matches
// [ErrLocked].
func (m *Mutex) TryLock(ctx context.Context) (*Held, error) {
	q, err := joinQueue(ctx, m.s, m.name, nil)
	if err != nil {
		return nil, err
	}
	before, _, err := q.previousKey(ctx, m.name)
	if err == nil && before != "" {
		err = fmt.Errorf("%w: %q", ErrLocked, before)
	}
	if err != nil {
		return nil, errors.Join(err, abandon(q, ctx))
	}
	return &Held{q}, nil
}

// While locks, runs work, and unlocks. The context of the work ends, with [ErrLost] as its cause,
// when the lock may be lost. It returns the error of the work, or else the error of the lock.
func (m *Mutex) While(ctx context.Context, work func(ctx context.Context, h *Held) error) error {
	h, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	return h.while(ctx, work)
}

// lock creates a claim below name and waits for the earlier ones below after.
func lock(ctx context.Context, s *Session, name, after string) (*Held, error) {
	q, err := joinQueue(ctx, s, name, nil)
	if err != nil {
		return nil, err
	}
	if err := q.waitTurn(ctx, after); err != nil {
		return nil, errors.Join(err, abandon(q, ctx))
	}
	return &Held{q}, nil
}

// abandon gives up a claim after an error. It does not report that the claim was lost.
func abandon(q *claim, ctx context.Context) error {
	if err := q.giveUp(ctx); !errors.Is(err, ErrLost) {
		return err
	}
	return nil
}

// Held is a held lock or leadership.
type Held struct{ q *claim }

// Key returns its key, which ends with the session.
func (h *Held) Key() string { return h.q.key }

// Fence returns the create revision of Key, which is higher than the fence of every earlier holder.
func (h *Held) Fence() int64 { return h.q.rev }

// Guard is the condition that it is still held, for transactions that depend on it.
func (h *Held) Guard() client.Cmp { return client.CreateRevision(h.q.key).Equal(h.q.rev) }

// Lost returns a channel that is closed when it may be lost or was given up.
func (h *Held) Lost() <-chan struct{} { return h.q.over.Done() }

// Err returns nil while it is held, and then why it is not.
func (h *Held) Err() error { return h.q.whyLost() }

// Context returns a context that ends with ctx, and when it may be lost.
func (h *Held) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	return until(ctx, h.Lost(), h.Err)
}

// Unlock gives it up. An error that matches [ErrLost] means that it was, or may have been, lost
// before. If the key cannot be deleted, it ends with the session.
func (h *Held) Unlock(ctx context.Context) error { return h.q.giveUp(ctx) }

func (h *Held) while(ctx context.Context, work func(context.Context, *Held) error) error {
	during, stop := h.Context(ctx)
	err := work(during, h)
	stop()
	if lost := h.Unlock(ctx); err == nil {
		err = lost
	}
	return err
}

// RWMutex is a lock with one writer or any number of readers, in the order of their requests:
// readers wait for earlier writers.
type RWMutex struct {
	s    *Session
	name string
}

// NewRWMutex returns the lock with a name, which no [Mutex] may use.
func NewRWMutex(s *Session, name string) *RWMutex { return &RWMutex{s, name} }

// Lock waits for the lock as a writer.
func (m *RWMutex) Lock(ctx context.Context) (*Held, error) {
	return lock(ctx, m.s, m.name+"/write", m.name)
}

// RLock waits for the lock as a reader.
func (m *RWMutex) RLock(ctx context.Context) (*Held, error) {
	return lock(ctx, m.s, m.name+"/read", m.name+"/write")
}
