package concurrency

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"vigil/client"
	"vigil/client/lease"
)

// ErrLost means that a lock or leadership is lost, or may be: the session ended, or its key was
// deleted.
var ErrLost = errors.New("it is lost, or may be lost")

// Session is a lease that is kept alive: its keys are deleted after the end of the program. It is
// safe for concurrent use.
type Session struct {
	c      *client.Client
	lease  *lease.Lease
	keeper *lease.Keeper // nil if the caller owns it
	// own distinguishes the keys of a session from the keys of other sessions of its lease. It is
	// empty if there are no others.
	own string

	mu struct {
		sync.Mutex
		keys map[string]struct{} // in use
	}
}

// NewSession creates a session whose keys live for ttl, in whole seconds, after the last keep-alive
// of the program.
func NewSession(ctx context.Context, c *client.Client, ttl time.Duration) (*Session, error) {
	k := lease.NewKeeper(c)
	l, err := k.Grant(ctx, ttl)
	if err != nil {
		k.Close()
		return nil, err
	}
	s := SessionOf(c, l)
	s.keeper, s.own = k, ""
	return s, nil
}

// SessionOf creates a session from a lease that a Keeper keeps alive, for programs with many
// sessions. Sessions of one lease are as different as sessions of several leases: they wait for
// each other's locks. They lose them together.
func SessionOf(c *client.Client, l *lease.Lease) *Session {
	s := &Session{c: c, lease: l, own: fmt.Sprintf("-%016x", rand.Uint64())}
	s.mu.keys = map[string]struct{}{}
	return s
}

// Lease returns the id of the session's lease, for [client.WithLease].
func (s *Session) Lease() client.LeaseID { return s.lease.ID() }

// Lost returns a channel that is closed when the session has ended or may have.
func (s *Session) Lost() <-chan struct{} { return s.lease.Lost() }

// Err returns why the session counts as lost, nil while it does not: one of the errors of package
// lease.
func (s *Session) Err() error { return s.lease.Err() }

// Status returns the state of the session: alive, late with the reason, or lost.
func (s *Session) Status() lease.Status { return s.lease.Status() }

// Close ends the session and deletes its keys. If that fails, they are deleted when their time has
// passed.
func (s *Session) Close(ctx context.Context) error {
	err := s.lease.Revoke(ctx)
	if s.keeper != nil {
		s.keeper.Close()
	}
	return err
}

// Context returns a context that ends with ctx, and with [ErrLost] as its cause when the session
// may be lost.
func (s *Session) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	return until(ctx, s.Lost(), s.lost)
}

func (s *Session) lost() error {
	return fmt.Errorf("session %x: %w: %w", int64(s.Lease()), ErrLost, s.Err())
}

// until returns a context that also ends when a channel is closed.
func until(ctx context.Context, ch <-chan struct{}, why func() error) (context.Context,
	context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-ch:
			cancel(why())
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// newKey returns a key of the session below a name, for the caller alone until free is called.
func (s *Session) newKey(name string) (key string, free func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := fmt.Sprintf("%s/%x%s", name, int64(s.Lease()), s.own)
	key = first
	for n := 1; ; n++ {
		if _, used := s.mu.keys[key]; !used {
			break
		}
		key = fmt.Sprintf("%s-%d", first, n)
	}
	s.mu.keys[key] = struct{}{}
	return key, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.mu.keys, key)
	}
}
