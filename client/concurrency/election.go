package concurrency

import (
	"context"
	"errors"
	"iter"

	"vigil/client"
)

// ErrNoLeader means that no candidate is elected.
var ErrNoLeader = errors.New("no candidate is elected")

// Election elects one of its candidates as the leader. It is safe for concurrent use.
type Election struct {
	c    *client.Client
	name string
}

// NewElection returns the election with a name.
func NewElection(c *client.Client, name string) *Election { return &Election{c, name} }

// Leader describes the current leader.
type Leader struct {
	// Key is the leader's key, Value what it proclaims.
	Key   string
	Value []byte
	// Fence is the fencing revision, higher than the fence of all earlier leaders. Revision is the
	// revision of Value.
	Fence, Revision int64
	Lease           client.LeaseID
}

// Leadership is the leadership that a candidate has won.
type Leadership struct{ Held }

// Campaign makes a session a candidate, waits until it is the leader, and proclaims value. If the
// context ends before, the candidacy is withdrawn.
func (e *Election) Campaign(ctx context.Context, s *Session, value []byte) (*Leadership, error) {
	q, err := joinQueue(ctx, s, e.name, value)
	if err != nil {
		return nil, err
	}
	if err := q.waitTurn(ctx, e.name); err != nil {
		return nil, errors.Join(err, abandon(q, ctx))
	}
	return &Leadership{Held{q}}, nil
}

// While campaigns, runs work as the leader, and resigns. The context of the work ends, with
// [ErrLost] as its cause, when the leadership may be lost. It returns the error of the work, or
// else the error of the leadership.
func (e *Election) While(ctx context.Context, s *Session, value []byte,
	work func(ctx context.Context, l *Leadership) error) error {
	l, err := e.Campaign(ctx, s, value)
	if err != nil {
		return err
	}
	return l.while(ctx, func(ctx context.Context, _ *Held) error { return work(ctx, l) })
}

// Proclaim changes the proclaimed value. The error matches [ErrLost] if the leadership is lost.
func (l *Leadership) Proclaim(ctx context.Context, value []byte) error {
	r, err := l.q.s.c.Txn(ctx).If(l.Guard()).Then(client.OpPut(l.q.key, value,
		client.WithLease(l.q.s.Lease()))).Commit()
	if err == nil && !r.Succeeded {
		err = ErrLost
	}
	return err
}

// Resign ends the leadership; see [Held.Unlock].
func (l *Leadership) Resign(ctx context.Context) error { return l.Unlock(ctx) }

// Leader returns the leader, or [ErrNoLeader].
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	l, _, err := e.first(ctx)
	if err == nil && l.Key == "" {
		err = ErrNoLeader
	}
	return l, err
}

// first returns the leader, the zero value if there is none, and the revision of the answer.
func (e *Election) first(ctx context.Context) (Leader, int64, error) {
	r, err := e.c.Get(ctx, e.name+"/", client.WithPrefix(), client.WithLimit(1),
		client.WithSort(client.SortByCreateRevision, client.SortAscend))
	if err != nil {
		return Leader{}, 0, err
	}
	l := Leader{}
	if kv := r.KV(); kv != nil {
		l = Leader{Key: kv.Key, Value: kv.Value, Fence: kv.CreateRevision, Revision: kv.ModRevision,
			Lease: kv.Lease}
	}
	return l, r.Header.Revision, nil
}

// Observe iterates over the leaders and what they proclaim, starting with the current one, until
// the context ends. Then it yields an error. It yields nothing while there is no leader. It may
// skip changes that are soon followed by others.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		last := Leader{}
		for {
			more, err := e.observe(ctx, &last, yield)
			if !more {
				return
			}
			if !errors.Is(err, client.ErrCompacted) {
				yield(Leader{}, causeOf(ctx, err))
				return
			}
		}
	}
}

// observe reads the leader, and watches until that is impossible or the iteration ends.
func (e *Election) observe(ctx context.Context, last *Leader,
	yield func(Leader, error) bool) (more bool, err error) {
	look := func() (rev int64, more bool, err error) {
		now, rev, err := e.first(ctx)
		if err != nil || now.Key == last.Key && now.Revision == last.Revision {
			return rev, true, err
		}
		*last = now
		return rev, now.Key == "" || yield(now, nil), nil
	}
	rev, more, err := look()
	if !more || err != nil {
		return more, err
	}
	w := e.c.Watch(ctx, e.name+"/", client.WithPrefix(), client.FromRevision(rev+1))
	defer w.Close()
	for b, err := range w.Batches() {
		if err != nil {
			return true, err
		}
		for _, ev := range b.Events {
			if ev.KV.ModRevision <= rev || last.Key != "" && ev.KV.Key != last.Key {
				continue // seen, or a candidate that is not the leader
			}
			if rev, more, err = look(); !more || err != nil {
				return more, err
			}
		}
	}
	return true, context.Cause(ctx)
}
