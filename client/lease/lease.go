package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"vigil/client"
)

// Why a lease counts as lost, for errors.Is.
var (
	// ErrGone means that the server has no such lease: it expired or was revoked.
	ErrGone = errors.New("the lease is gone")
	// ErrUnconfirmed means that no answer to a keep-alive came in time, so the lease may have
	// expired.
	ErrUnconfirmed = errors.New("the lease may have expired: no keep-alive was answered in time")
	// ErrReleased means that this program stopped keeping the lease alive or revoked it.
	ErrReleased = errors.New("the lease was released")
)

// State is the known state of a lease.
type State uint8

// The states of a lease.
const (
	// Alive means that the lease lives, and nothing is overdue.
	Alive State = iota
	// Late means that the lease lives, but the answer to a keep-alive is overdue.
	Late
	// Lost means that the lease has ended or may have; it is the last state.
	Lost
)

// String returns the state as a word.
func (s State) String() string { return [...]string{"alive", "late", "lost"}[s] }

// Status is the state of a lease with its reason.
type Status struct {
	State State
	// Reason is the last error while the state is Late, and the error of [Lease.Err] when it is
	// Lost. It is nil if no error is known.
	Reason error
	// Confirmed is when the last answered keep-alive was sent. Until Deadline the lease certainly
	// lives.
	Confirmed, Deadline time.Time
}

// Lease is a lease that a Keeper keeps alive. It is safe for concurrent use.
type Lease struct {
	k    *Keeper
	id   client.LeaseID
	lost chan struct{}

	// The rest is guarded by Keeper.mu.
	ttl       time.Duration
	confirmed time.Time
	due       time.Time // when to send the next keep-alive
	asked     time.Time // when the unanswered keep-alive was sent; zero if there is none
	alone     bool      // kept alive with separate calls, because it has ended a stream
	trouble   error     // why such a call failed
	at        int       // in the queue; -1 if not
	err       error
}

// ID returns the id, for [client.WithLease].
func (l *Lease) ID() client.LeaseID { return l.id }

// TTL returns the time to live.
func (l *Lease) TTL() time.Duration {
	l.k.mu.Lock()
	defer l.k.mu.Unlock()
	return l.ttl
}

// Lost returns a channel that is closed when the lease has ended, may have ended, or is no longer
// kept alive.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Err returns why the lease counts as lost, nil while it does not. It checks the clock, so it is
// also right just after the program was suspended.
func (l *Lease) Err() error {
	l.k.mu.Lock()
	defer l.k.mu.Unlock()
	l.k.checkLease(l, time.Now())
	return l.err
}

// Status returns the state.
func (l *Lease) Status() Status {
	l.k.mu.Lock()
	defer l.k.mu.Unlock()
	s := Status{Confirmed: l.confirmed, Deadline: l.deadline()}
	l.k.checkLease(l, time.Now())
	switch {
	case l.err != nil:
		s.State, s.Reason = Lost, l.err
	case time.Since(l.confirmed) > l.ttl/2:
		s.State, s.Reason = Late, l.why()
	}
	return s
}

// Release stops the keep-alives: the lease and its keys remain until its time has passed.
func (l *Lease) Release() { l.k.loseLease(l, ErrReleased) }

// Revoke ends the lease and deletes its keys. It returns no error if the lease has ended before.
func (l *Lease) Revoke(ctx context.Context) error {
	l.Release()
	_, err := l.k.c.Revoke(ctx, l.id)
	if errors.Is(err, client.ErrLeaseNotFound) {
		return nil
	}
	return err
}

// deadline is the time until which the lease lives. The lock is held.
func (l *Lease) deadline() time.Time { return l.confirmed.Add(l.ttl) }

// why returns why there is no answer, nil if that is not known. The lock is held.
func (l *Lease) why() error {
	if l.trouble != nil {
		return l.trouble
	}
	return l.k.mu.trouble
}

// dueTime is the time at which the lease is due. The lock is held.
func (l *Lease) dueTime() time.Time {
	if d := l.deadline(); l.due.IsZero() || d.Before(l.due) {
		return d
	}
	return l.due
}

func unconfirmed(why error) error {
	if why == nil {
		return ErrUnconfirmed
	}
	return fmt.Errorf("%w: %w", ErrUnconfirmed, why)
}
