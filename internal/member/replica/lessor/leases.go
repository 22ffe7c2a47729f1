package lessor

import (
	"context"
	"errors"
	"iter"
	"slices"

	"vigil/internal/kv"
	"vigil/internal/state/auth"
	"vigil/internal/state/fsm"
)

// Member is the member that serves the clients.
type Member interface {
	// Do carries out a write. It chooses the id of a lease if that is 0.
	Do(context.Context, kv.Write) kv.Outcome
	// WaitApplied waits until the member has applied an index.
	WaitApplied(ctx context.Context, index uint64) error
}

// Access identifies clients and decides what they may do.
type Access interface {
	AuthEnabled() bool
	// Identity returns the identity of the caller.
	Identity(context.Context) (auth.Identity, error)
	// Confirm waits until this member knows the rights that any member knew at the time of the
	// call.
	Confirm(context.Context) error
	// Check checks a rule for the caller against the state applied here.
	Check(ctx context.Context, rule func(*auth.State, auth.Identity) error) error
}

// Leases serves clients that ask for leases.
type Leases struct {
	lessor *Lessor
	member Member
	access Access
}

// NewLeases returns the Leases that l counts.
func NewLeases(l *Lessor, member Member, access Access) *Leases {
	return &Leases{l, member, access}
}

// GrantLease grants a lease, and chooses the id if it is 0. Errors: kv.ErrLeaseExists,
// kv.ErrLeaseTTLTooLarge, and as Put.
func (l *Leases) GrantLease(ctx context.Context, req kv.LeaseGrantRequest) (kv.LeaseResult, error) {
	o := l.member.Do(ctx, kv.Write{Grant: &req})
	if o.Err != nil {
		return kv.LeaseResult{}, o.Err
	}
	return *o.Lease, nil
}

// RevokeLease revokes a lease and deletes its keys, in one revision. Errors: kv.ErrLeaseNotFound,
// and as Put.
func (l *Leases) RevokeLease(ctx context.Context, id int64) (kv.LeaseResult, error) {
	res, err := l.lessor.o.Pipeline.Propose(ctx,
		&fsm.Request{LeaseRevoke: &kv.LeaseRevokeRequest{ID: id}})
	if err != nil {
		return kv.LeaseResult{}, err
	}
	return *res.Lease, nil
}

// ask asks the leader about a lease in the name of the caller, which the leader judges: this member
// may lag.
func (l *Leases) ask(ctx context.Context, op Op, id int64) (Answer, error) {
	for who, err := l.access.Identity(ctx); ; {
		if err != nil {
			return Answer{}, err
		}
		var a Answer
		if a, err = l.lessor.Ask(ctx, who, op, id); !errors.Is(err, kv.ErrAuthOldRevision) &&
			!errors.Is(err, kv.ErrUserEmpty) {
			return a, err
		}
		// The leader knows that users or roles changed, or that auth is enabled, and this member
		// may not have known it.
		old, refusal := who, err
		if err = l.lessor.o.Pipeline.Linearize(ctx); err == nil {
			who, err = l.access.Identity(ctx)
		}
		if err == nil && who == old {
			return a, refusal
		}
	}
}

// KeepAlive renews a lease, and returns its TTL in seconds. Errors: kv.ErrLeaseNotFound,
// kv.ErrNoLeader, kv.ErrInvalidAuthToken, from auth.State.CheckEndLease, and as Range.
func (l *Leases) KeepAlive(ctx context.Context, id int64) (int64, error) {
	a, err := l.ask(ctx, Renew, id)
	return a.TTL, err
}

// TimeToLive returns the remaining TTL of a lease and, if keys is set, the keys that are attached
// to it. Errors: from auth.State.CheckReadLease, and as KeepAlive.
func (l *Leases) TimeToLive(ctx context.Context, id int64, keys bool) (kv.LeaseStatus, error) {
	a, err := l.ask(ctx, TimeLeft, id)
	if err != nil {
		return kv.LeaseStatus{}, err
	}
	s := kv.LeaseStatus{ID: id, TTL: a.TTL, Granted: a.Granted}
	if keys {
		// This member has the keys, and the right to see them, when it has applied all that the
		// leader had applied.
		if l.lessor.o.Pipeline.Applied() < a.Index {
			if err := l.member.WaitApplied(ctx, a.Index); err != nil {
				return s, err
			}
		}
		s.Keys = l.lessor.o.Pipeline.LeaseState().Keys(id)
		err := l.access.Check(ctx, func(state *auth.State, who auth.Identity) error {
			return state.CheckReadLease(who, id,
				func(int64) iter.Seq[string] { return slices.Values(s.Keys) })
		})
		if err != nil {
			return kv.LeaseStatus{}, err
		}
	}
	return s, nil
}

// LeaseIDs returns the ids of all leases. The leader sorts them by expiry. The caller must be
// allowed to read the keys of all of them. Errors: from auth.State.CheckReadLease,
// kv.ErrInvalidAuthToken, and as Range.
func (l *Leases) LeaseIDs(ctx context.Context) ([]int64, error) {
	if err := l.access.Confirm(ctx); err != nil {
		return nil, err
	}
	leases := l.lessor.o.Pipeline.LeaseState()
	all := leases.All()
	err := l.access.Check(ctx, func(s *auth.State, who auth.Identity) error {
		for i := range all {
			if err := s.CheckReadLease(who, all[i].ID, leases.Each); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	l.lessor.SortByExpiry(all)
	ids := make([]int64, len(all))
	for i := range all {
		ids[i] = all[i].ID
	}
	return ids, nil
}

// Stats counts events of leases since the start.
func (l *Leases) Stats() Stats { return l.lessor.Stats() }

// ServeCall answers another member that asks this one, as the leader, about a lease (calls.Lease).
func (l *Leases) ServeCall(ctx context.Context, payload []byte) ([]byte, error) {
	return l.lessor.ServeCall(ctx, payload)
}

// RenewNow is KeepAlive for a goroutine that must not wait. It returns false if it might have to,
// or if the request would be rejected.
func (l *Leases) RenewNow(id int64) (ttl int64, ok bool) {
	if l.access.AuthEnabled() {
		return 0, false
	}
	return l.lessor.RenewNow(auth.Identity{}, id)
}
