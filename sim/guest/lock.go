//go:build wasip1

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"vigil/client"
	"vigil/client/concurrency"
	"vigil/client/lease"
	"vigil/sim/check"
	"vigil/sim/scenario/setup"
)

const (
	lockName  = check.LockPrefix + "a"
	electName = check.ElectPrefix + "a"
	// competitors is the number of clients of each process that compete for the lock, and for the
	// election.
	competitors = 3
	// finalLock bounds the wait for the lock and the election when no fault happens any more. The
	// others that compete may hold it for some 7 s each: three writes, and then the TTL of a
	// session that is not closed.
	finalLock = 50 * time.Second
)

// competitor claims the lock, or takes part in the election, again and again.
type competitor struct {
	*client.Client
	keeper *lease.Keeper
	rng    *rand.Rand
	id     int
	values int
}

// holder is a held lock or leadership.
type holder interface {
	Key() string
	Fence() int64
	Unlock(context.Context) error
}

// locks is the work on the lock and the election.
func locks(c *setup.Client, rng *rand.Rand) error {
	var working sync.WaitGroup
	cl, err := connect(c.Endpoints...)
	if err != nil {
		return err
	}
	keeper := lease.NewKeeper(cl)
	defer keeper.Close()
	failures := make([]error, 2*competitors)
	for n := range failures {
		w := &competitor{Client: cl, keeper: keeper, rng: rand.New(rand.NewPCG(rng.Uint64(), 0)),
			id: c.First + n}
		compete, name := w.lock, lockName
		if n >= competitors {
			compete, name = w.campaign, electName
		}
		working.Go(func() {
			for goesOn(c, c.Stop-int64(7*time.Second)) {
				_ = compete(time.Duration(1+w.rng.IntN(15)) * time.Second) // any error is allowed
				time.Sleep(time.Duration(w.rng.Int64N(int64(4 * time.Second))))
			}
			// A session may be lost to a connection that is dead since a fault. The place in the
			// queue is kept otherwise.
			end := now() + finalLock
			err := compete(finalLock)
			for err != nil && now() < end {
				time.Sleep(100 * time.Millisecond)
				err = compete(end - now())
			}
			if err != nil {
				failures[n] = fmt.Errorf("client %d cannot get %s without faults: %w",
					w.id, name, err)
			}
		})
	}
	working.Go(func() { observe(cl, c, rand.New(rand.NewPCG(rng.Uint64(), 1))) })
	working.Wait()
	return errors.Join(failures...)
}

// session creates a session with its lease.
func (w *competitor) session(ctx context.Context) (*concurrency.Session, *lease.Lease, error) {
	l, err := w.keeper.Grant(ctx, time.Duration(2+w.rng.IntN(3))*time.Second)
	if err != nil {
		return nil, nil, err
	}
	return concurrency.SessionOf(w.Client, l), l, nil
}

// lock holds the lock once.
func (w *competitor) lock(patience time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, l, err := w.session(ctx)
	if err != nil {
		return err
	}
	h, err := concurrency.NewMutex(s, lockName).Lock(ctx)
	if err != nil {
		w.close(s)
		return err
	}
	w.hold(s, l, h, lockName, check.Guarded, func(ctx context.Context, value string) (bool, error) {
		r, err := w.Txn(ctx).If(h.Guard()).Then(client.OpPut(check.GuardedPrefix+lockName,
			[]byte(value))).Commit()
		return err == nil && r.Succeeded, err
	})
	return nil
}

// campaign is the leader once.
func (w *competitor) campaign(patience time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, l, err := w.session(ctx)
	if err != nil {
		return err
	}
	leader, err := concurrency.NewElection(w.Client, electName).Campaign(ctx, s,
		[]byte("candidate"))
	if err != nil {
		w.close(s)
		return err
	}
	w.hold(s, l, leader, electName, check.Proclaim,
		func(ctx context.Context, value string) (bool, error) {
			err := leader.Proclaim(ctx, []byte(value))
			if errors.Is(err, concurrency.ErrLost) {
				return false, nil
			}
			return err == nil, err
		})
	return nil
}

func (w *competitor) close(s *concurrency.Session) {
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	_ = s.Close(ctx)
}

// hold writes as a holder, and gives up: in order, or by no longer keeping its lease alive. Then it
// writes as if it was still the holder.
func (w *competitor) hold(s *concurrency.Session, l *lease.Lease, h holder, name string,
	kind check.Kind, write func(context.Context, string) (bool, error)) {
	step := check.LockOp{Kind: check.Hold, Client: w.id, Name: name, Key: h.Key(), Fence: h.Fence(),
		Call: now(), Ret: now(), Outcome: check.Acked}
	report(setup.Report{Lock: &step})
	step.Kind = kind
	for range 1 + w.rng.IntN(3) {
		w.write(step, write)
		time.Sleep(time.Duration(w.rng.Int64N(int64(700 * time.Millisecond))))
	}
	if w.rng.IntN(2) == 0 {
		ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
		_ = h.Unlock(ctx)
		cancel()
		w.write(step, write)
		w.close(s)
		return
	}
	l.Release()
	for n := range 5 {
		if o := w.write(step, write); o.Outcome == check.Acked && !o.Done {
			return
		}
		time.Sleep(time.Duration(n) * 400 * time.Millisecond)
	}
}

// write makes a write of a holder and reports it.
func (w *competitor) write(o check.LockOp,
	write func(context.Context, string) (bool, error)) check.LockOp {
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	w.values++
	o.Value, o.Call = check.HolderValue(o.Fence, w.id, w.values), now()
	done, err := write(ctx, o.Value)
	o.Ret, o.Done = now(), done
	if err != nil {
		o.Outcome, o.Err = check.Unknown, err.Error()
	}
	report(setup.Report{Lock: &o})
	return o
}

// observe observes the election until the end of the work.
func observe(cl *client.Client, c *setup.Client, rng *rand.Rand) {
	for goesOn(c, c.Stop) {
		longest := time.Duration(1 + rng.Int64N(int64(20*time.Second)))
		ctx, cancel := context.WithTimeout(context.Background(),
			min(longest, time.Duration(c.Stop)-now()))
		for l, err := range concurrency.NewElection(cl, electName).Observe(ctx) {
			if err != nil {
				break
			}
			report(setup.Report{Lock: &check.LockOp{Kind: check.Observe, Client: c.First,
				Name: electName, Key: l.Key, Fence: l.Fence,
				Value: string(l.Value), Rev: l.Revision, Call: now(), Ret: now(),
				Outcome: check.Acked}})
		}
		cancel()
		time.Sleep(time.Duration(1+rng.IntN(500)) * time.Millisecond)
	}
}
