//go:build wasip1

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"vigil/client"
	"vigil/client/lease"
	"vigil/sim/check"
	"vigil/sim/scenario/setup"
)

const (
	// leaseWorkers is the number of clients with one lease after the other, in each process.
	leaseWorkers = 2
	// maxLeaseTTL bounds the TTL of a lease in seconds, lastingTTL is that of a lease that outlives
	// the run.
	maxLeaseTTL = 6
	lastingTTL  = time.Hour
)

// leaseWorker grants leases, attaches keys, keeps them alive, and waits for their end.
type leaseWorker struct {
	*client.Client
	keeper *lease.Keeper
	rng    *rand.Rand
	id     int
	group  int // of those that share keys
	at     int // the slot of the only member that it uses, counted from 1, or 0
	values int
	// giveUp is when it waits no longer for the end of a lease.
	giveUp int64
}

// leases is the work on leases. It ends after the last one has ended.
func leases(c *setup.Client, rng *rand.Rand) error {
	var working sync.WaitGroup
	for n := range leaseWorkers {
		w := &leaseWorker{rng: rand.New(rand.NewPCG(rng.Uint64(), 0)), id: c.First + n,
			group: c.First, giveUp: math.MaxInt64}
		endpoints := c.Endpoints
		if n%2 == 1 {
			w.at = 1 + w.rng.IntN(len(endpoints))
			endpoints = endpoints[w.at-1:][:1]
			// The only member that it knows may have been removed. The last lease ends before this
			// otherwise.
			w.giveUp = c.Stop + int64(20*time.Second)
		}
		var err error
		if w.Client, err = connect(endpoints...); err != nil {
			return err
		}
		w.keeper = lease.NewKeeper(w.Client)
		defer w.keeper.Close()
		working.Go(func() {
			for n == 0 && w.grant(lastingTTL) == nil {
				w.pause(time.Second)
			}
			// The last leases end while no fault happens any more.
			for goesOn(c, c.Stop-int64(maxLeaseTTL+4)*int64(time.Second)) {
				w.live()
			}
		})
	}
	all, err := connect(c.Endpoints...)
	if err != nil {
		return err
	}
	defer all.Close()
	working.Go(func() { listLeases(all, c, rand.New(rand.NewPCG(rng.Uint64(), 1))) })
	working.Wait()
	return nil
}

// live is the life of one lease.
func (w *leaseWorker) live() {
	ttl := time.Duration(2+w.rng.IntN(maxLeaseTTL-1)) * time.Second
	granted := w.grant(ttl)
	if granted == nil {
		w.pause(time.Second)
		return
	}
	for range w.rng.IntN(4) {
		w.attach(granted.Lease)
	}
	gone := false
	switch w.rng.IntN(4) {
	case 0:
		gone = w.keepByLibrary(granted.Lease)
	case 1:
		gone = w.renewLate(granted)
	case 2:
		gone = w.renewOften(granted)
	}
	if !gone && w.rng.IntN(4) == 0 {
		gone = w.call(check.Revoke, granted.Lease,
			func(ctx context.Context, o *check.LeaseOp) error {
				h, err := w.Revoke(ctx, client.LeaseID(o.Lease))
				o.Rev = h.Revision
				return err
			}).Outcome == check.Acked
	}
	for !gone && int64(now()) < w.giveUp {
		if w.rng.IntN(4) == 0 {
			gone = w.attach(granted.Lease)
		} else {
			gone = w.timeLeft(granted.Lease)
		}
		w.pause(ttl / 2)
	}
	w.timeLeft(granted.Lease)
}

func (w *leaseWorker) pause(longest time.Duration) {
	time.Sleep(time.Duration(w.rng.Int64N(int64(longest))))
}

// call makes a call about a lease and reports it.
func (w *leaseWorker) call(kind check.Kind, id int64,
	do func(context.Context, *check.LeaseOp) error) *check.LeaseOp {
	o := &check.LeaseOp{Kind: kind, Lease: id, Client: w.id, At: w.at, Call: now()}
	makeCall(o, do)
	return o
}

func makeCall(o *check.LeaseOp, do func(context.Context, *check.LeaseOp) error) {
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	err := do(ctx, o)
	o.Ret, o.Outcome = now(), check.Acked
	switch {
	case errors.Is(err, client.ErrLeaseNotFound) && !isUncertain(err):
		o.Gone = true
	case err != nil:
		o.Outcome, o.Err = check.Refused, err.Error()
		if isUncertain(err) || o.Kind == check.KeepAlive {
			o.Outcome = check.Unknown
		}
	}
	report(setup.Report{Lease: o})
}

// grant grants a lease whose id the client has chosen, so that a lease of an unknown outcome is not
// taken for another one.
func (w *leaseWorker) grant(ttl time.Duration) *check.LeaseOp {
	o := w.call(check.Grant, 1+w.rng.Int64N(1<<62),
		func(ctx context.Context, o *check.LeaseOp) error {
			r, err := w.Grant(ctx, ttl, client.WithLeaseID(client.LeaseID(o.Lease)))
			if err == nil {
				o.TTL = r.TTL
			}
			return err
		})
	if o.Outcome != check.Acked {
		return nil
	}
	return o
}

// attach puts one of the few keys of this process, which may belong to another lease, also to one
// that exists. It returns whether the lease is gone.
func (w *leaseWorker) attach(id int64) (gone bool) {
	w.values++
	return w.call(check.Attach, id, func(ctx context.Context, o *check.LeaseOp) error {
		o.Key, o.Value = fmt.Sprintf("%s%d/%d", check.LeasePrefix, w.group, w.rng.IntN(4)),
			check.LeaseValue(id, w.id<<32+w.values)
		r, err := w.Put(ctx, o.Key, []byte(o.Value), client.WithLease(client.LeaseID(id)))
		if err == nil {
			o.Rev = r.Header.Revision
		}
		return err
	}).Gone
}

func (w *leaseWorker) timeLeft(id int64) (gone bool) {
	return w.call(check.TimeLeft, id, func(ctx context.Context, o *check.LeaseOp) error {
		r, err := w.TimeToLive(ctx, client.LeaseID(id), true)
		if err == nil {
			o.TTL, o.Left, o.Keys = r.Granted, r.Remaining, r.Keys
			o.Gone = r.Granted == 0 && r.Remaining < 0
		}
		return err
	}).Gone
}

func (w *leaseWorker) keepAlive(id int64) (gone bool) {
	return w.call(check.KeepAlive, id, func(ctx context.Context, o *check.LeaseOp) (err error) {
		o.TTL, err = w.KeepAliveOnce(ctx, client.LeaseID(id))
		return err
	}).Gone
}

// renewLate renews a lease once or several times around its end, which is between those by the call
// and by the answer.
func (w *leaseWorker) renewLate(granted *check.LeaseOp) (gone bool) {
	end := granted.TTL + []time.Duration{granted.Call, granted.Ret}[w.rng.IntN(2)]
	for range 1 + w.rng.IntN(3) {
		early := time.Duration(w.rng.Int64N(int64(granted.TTL)))
		if w.rng.IntN(2) == 0 {
			early = time.Duration(w.rng.Int64N(int64(600*time.Millisecond))) - 300*time.Millisecond
		}
		time.Sleep(end - early - now())
		called := now()
		if w.keepAlive(granted.Lease) {
			return true
		}
		end = called + granted.TTL
	}
	return false
}

// renewOften renews a lease all the time for a while, also while the member that is asked does not
// answer.
func (w *leaseWorker) renewOften(granted *check.LeaseOp) (gone bool) {
	for end := now() + time.Duration(w.rng.Int64N(int64(12*time.Second))); !gone && now() < end; {
		gone = w.keepAlive(granted.Lease)
		w.pause(granted.TTL / 3)
	}
	return gone
}

// keepByLibrary lets package lease keep a lease alive for some time. What it counts as confirmed is
// an acknowledged keep-alive.
func (w *leaseWorker) keepByLibrary(id int64) (gone bool) {
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	l, err := w.keeper.Keep(ctx, client.LeaseID(id))
	// The attempts of the library end here, whatever their outcome is.
	defer func() {
		report(setup.Report{Lease: &check.LeaseOp{Kind: check.KeepAlive, Lease: id, Call: now(),
			Ret: now(), Outcome: check.Unknown}})
	}()
	if err != nil {
		return errors.Is(err, client.ErrLeaseNotFound)
	}
	defer l.Release()
	var confirmed time.Time
	for end := now() + time.Duration(w.rng.Int64N(int64(10*time.Second))); now() < end; {
		s := l.Status()
		if s.Confirmed != confirmed {
			confirmed = s.Confirmed
			report(setup.Report{Lease: &check.LeaseOp{Kind: check.KeepAlive, Lease: id,
				Call: now() - time.Since(confirmed), Ret: now(), TTL: l.TTL(),
				Outcome: check.Acked}})
		}
		if s.State == lease.Lost {
			break
		}
		w.pause(800 * time.Millisecond)
	}
	return false
}

// listLeases asks one member after the other for its leases.
func listLeases(all *client.Client, c *setup.Client, rng *rand.Rand) {
	for n := 0; goesOn(c, c.Stop) || n%len(c.Endpoints) != 0; n++ {
		at, err := all.At(c.Endpoints[n%len(c.Endpoints)])
		if err != nil {
			return
		}
		makeCall(&check.LeaseOp{Kind: check.List, Call: now()},
			func(ctx context.Context, o *check.LeaseOp) error {
				// The member has applied everything after a linearizable read.
				if _, err := at.Get(ctx, "k/never"); err != nil {
					return err
				}
				ids, err := at.Leases(ctx)
				for _, id := range ids {
					o.Leases = append(o.Leases, int64(id))
				}
				return err
			})
		time.Sleep(time.Duration(rng.Int64N(int64(4 * time.Second))))
	}
}
