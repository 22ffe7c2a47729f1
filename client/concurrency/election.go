package concurrency

import (
	"context"
	"errors"
	"iter"

	"vigil/client"
)

// ErrNoLeader means that nobody is elected.
var ErrNoLeader = errors.New("nobody is elected")

// Election is an office that one candidate at a time has. Its methods may be called by any goroutine.
type Election struct {
	c    *client.Client
	name string
}

// NewElection names an office.
func NewElection(c *client.Client, name string) *Election { return &Election{c, name} }

// Leader is who has the office.
type Leader struct {
	// Key stands for the leader, Value is what it proclaims.
	Key   string
	Value []byte
	// Fence is the number of the leader, higher than that of those before; Revision is when Value was proclaimed.
	Fence, Revision int64
	Lease           client.LeaseID
}

// Office is an office that is held.
type Office struct{ Held }

// Campaign waits for the office, for a session, and proclaims value. If the context ends before, the candidacy is given up.
func (e *Election) Campaign(ctx context.Context, s *Session, value []byte) (*Office, error) {
	q, err := join(ctx, s, e.name, value)
	if err != nil {
		return nil, err
	}
	if err := q.turn(ctx, e.name); err != nil {
		return nil, errors.Join(err, left(q, ctx))
	}
	return &Office{Held{q}}, nil
}

// While campaigns, runs work while the office is held, and resigns. The context of the work ends, with ErrLost for its
// cause, when the office may be lost. The error is that of the work or else of the office.
func (e *Election) While(ctx context.Context, s *Session, value []byte, work func(ctx context.Context, o *Office) error) error {
	o, err := e.Campaign(ctx, s, value)
	if err != nil {
		return err
	}
	return o.while(ctx, func(ctx context.Context, _ *Held) error { return work(ctx, o) })
}

// Proclaim says something else to those who observe. The error matches ErrLost if the office is not held any more.
func (o *Office) Proclaim(ctx context.Context, value []byte) error {
	r, err := o.q.s.c.Txn(ctx).If(o.Guard()).Then(client.OpPut(o.q.key, value, client.WithLease(o.q.s.Lease()))).Commit()
	if err == nil && !r.Succeeded {
		err = ErrLost
	}
	return err
}

// Resign gives the office up; see Held.Unlock.
func (o *Office) Resign(ctx context.Context) error { return o.Unlock(ctx) }

// Leader returns who has the office, or ErrNoLeader.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	l, _, err := e.first(ctx)
	if err == nil && l.Key == "" {
		err = ErrNoLeader
	}
	return l, err
}

// first returns who has the office, none if nobody has, and at what revision.
func (e *Election) first(ctx context.Context) (Leader, int64, error) {
	r, err := e.c.Get(ctx, e.name+"/", client.WithPrefix(), client.WithLimit(1), client.WithSort(client.SortByCreateRevision, client.SortAscend))
	if err != nil {
		return Leader{}, 0, err
	}
	l := Leader{}
	if kv := r.KV(); kv != nil {
		l = Leader{Key: kv.Key, Value: kv.Value, Fence: kv.CreateRevision, Revision: kv.ModRevision, Lease: kv.Lease}
	}
	return l, r.Header.Revision, nil
}

// Observe iterates over who has the office and what it proclaims, first what is now, until the context ends, for which it
// yields an error. Nobody is yielded while there is nobody. Of changes that follow each other fast only the last may be seen.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		last := Leader{}
		for {
			goOn, err := e.observe(ctx, &last, yield)
			if !goOn {
				return
			}
			if !errors.Is(err, client.ErrCompacted) {
				yield(Leader{}, causeOf(ctx, err))
				return
			}
		}
	}
}

// observe looks, and watches until that is impossible or the iteration ends.
func (e *Election) observe(ctx context.Context, last *Leader, yield func(Leader, error) bool) (goOn bool, err error) {
	look := func() (rev int64, goOn bool, err error) {
		now, rev, err := e.first(ctx)
		if err != nil || now.Key == last.Key && now.Revision == last.Revision {
			return rev, true, err
		}
		*last = now
		return rev, now.Key == "" || yield(now, nil), nil
	}
	rev, goOn, err := look()
	if !goOn || err != nil {
		return goOn, err
	}
	w := e.c.Watch(ctx, e.name+"/", client.WithPrefix(), client.FromRevision(rev+1))
	defer w.Close()
	for b, err := range w.Batches() {
		if err != nil {
			return true, err
		}
		for _, ev := range b.Events {
			if ev.KV.ModRevision <= rev || last.Key != "" && ev.KV.Key != last.Key {
				continue // seen, or a candidate who waits
			}
			if rev, goOn, err = look(); !goOn || err != nil {
				return goOn, err
			}
		}
	}
	return true, context.Cause(ctx)
}
