package replica

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"vigil/internal/kv"
	"vigil/internal/state/fsm"
	"vigil/internal/state/lease"
)

// lessor counts the time of leases while this member leads, and has the expired ones ended.
//
// A term of counting begins when the apply goroutine has applied an entry of the term in which this
// member leads: then it knows everything that earlier leaders have said about leases. Each lease gets
// what it has left by the log, or its whole TTL, and one election timeout on top. That covers what a
// leader before may have promised: it promises a TTL only within an election timeout of having been
// confirmed as the leader, and this one was elected after that.
type lessor struct {
	// pause is the longest time between two looks at the clock that counts: beyond, this process was
	// stopped, and the clients could not keep their leases alive.
	pause    time.Duration
	interval time.Duration
	mu       struct {
		sync.Mutex
		// term is the one in which timers count, 0 while they do not.
		term   uint64
		timers *lease.Timers
		// demoted is closed when the term of counting ends; settled, when something has become of
		// leases that were due: then it is replaced.
		demoted, settled chan struct{}
		// sure is until when this member need not ask whether it still leads: one tick from when a
		// quorum was last asked. Another member is not elected that soon after, unless leadership is
		// handed over, which this one takes part in.
		sure time.Duration
		// clock is what counted until last.
		clock time.Duration
		last  time.Time
	}
	granted, revoked, renewed, expired atomic.Uint64
	ttls                               ttlCounts
}

func (l *lessor) init(c *Config) {
	l.pause = time.Duration(c.ElectionTicks) * c.TickInterval
	l.interval = c.LeaseCheckpointInterval
	l.mu.last = time.Now()
	l.mu.settled = make(chan struct{})
}

// now reads the clock. mu is held.
func (l *lessor) now() time.Duration {
	return l.mu.clock + min(time.Since(l.mu.last), l.pause)
}

// tick looks at the clock. mu is held.
func (l *lessor) tick() time.Duration {
	l.mu.clock, l.mu.last = l.now(), time.Now()
	return l.mu.clock
}

// stop ends the term of counting. mu is held.
func (l *lessor) stop() {
	if l.mu.term != 0 {
		l.mu.term, l.mu.timers, l.mu.sure = 0, nil, 0
		close(l.mu.demoted)
	}
}

// settle wakes those who wait for leases that were due. mu is held.
func (l *lessor) settle() {
	close(l.mu.settled)
	l.mu.settled = make(chan struct{})
}

// followLeases tells the lessor what a batch has done to leases. It is called before anyone can know that
// the batch is applied.
func (a *applier) followLeases() {
	l, state := &a.r.lessor, a.machine.Leases()
	changes := state.TakeChanges()
	for _, c := range changes {
		if c.Ended {
			l.revoked.Add(1)
		} else {
			l.granted.Add(1)
			l.ttls.add(c.TTL)
		}
	}
	term := a.r.leads()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.mu.term != 0 && l.mu.term == term:
		now := l.now()
		for _, c := range changes {
			if c.Ended {
				l.mu.timers.Remove(c.ID)
			} else {
				l.mu.timers.Add(c.Lease, now)
			}
		}
	case term != 0 && term == a.at.Term:
		l.stop()
		l.mu.term, l.mu.demoted = term, make(chan struct{})
		l.mu.timers = lease.Fill(l.interval, state.All(), l.now(), l.pause)
	default:
		l.stop()
	}
}

// leads returns the term in which this member leads, 0 if it does not.
func (r *Replica) leads() uint64 {
	if st := r.node.Status(); st.Lead == r.memberID {
		return st.Term
	}
	return 0
}

const (
	// maxExpireLeases and maxExpireKeys bound what one request ends: a write that comes behind it waits for
	// that long.
	maxExpireLeases = 256
	maxExpireKeys   = 1024
	// minExpireRest is the least time between two such requests. The rest is as long as the request
	// took, so that other writes have at least half of the pipeline.
	minExpireRest = 5 * time.Millisecond
)

// expireLeases is the lessor goroutine.
func (r *Replica) expireLeases(ctx context.Context) {
	tick := time.NewTicker(r.cfg.TickInterval)
	defer tick.Stop()
	rested := time.NewTimer(0)
	defer rested.Stop()
	busy := make(chan time.Duration, 1)
	idle := true
	var work sync.WaitGroup
	defer work.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.stopping:
			return
		case <-tick.C:
		case took := <-busy:
			rested.Reset(max(took, minExpireRest))
		case <-rested.C:
			idle = true
		}
		term, ended, checkpoints, more := r.dueLeases(idle)
		if len(ended)+len(checkpoints) == 0 {
			if more && idle {
				rested.Reset(0)
			}
			continue
		}
		idle = false
		work.Go(func() {
			began := time.Now()
			r.proposeDue(ctx, term, ended, checkpoints)
			busy <- time.Since(began)
		})
	}
}

// dueLeases looks at the clock, and if take is set for leases that want something.
func (r *Replica) dueLeases(take bool) (term uint64, ended []kv.LeaseRef, checkpoints []kv.LeaseCheckpoint, more bool) {
	l := &r.lessor
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.tick()
	if l.mu.term == 0 {
		return 0, nil, nil, false
	}
	if r.leads() != l.mu.term {
		l.stop()
		return 0, nil, nil, false
	}
	if !take {
		return 0, nil, nil, false
	}
	n, keys, state := 0, 0, r.now().leases
	ended, checkpoints, more = l.mu.timers.Due(now, func(ref kv.LeaseRef) bool {
		n++
		keys += state.Attached(ref.ID)
		return n >= maxExpireLeases || keys >= maxExpireKeys
	})
	for i := range checkpoints {
		// A keep-alive that gets ahead of the checkpoint makes it count from before.
		rec, _ := state.Lookup(checkpoints[i].ID)
		checkpoints[i].Since = rec.Since
	}
	return l.mu.term, ended, checkpoints, more
}

// proposeDue proposes what the timers want and waits for the outcome.
func (r *Replica) proposeDue(ctx context.Context, term uint64, ended []kv.LeaseRef, checkpoints []kv.LeaseCheckpoint) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.RequestTimeout)
	defer cancel()
	if len(checkpoints) > 0 {
		// One that is lost comes again after the interval.
		if _, err := r.do(ctx, &fsm.Request{LeaseCheckpoint: &kv.LeaseCheckpointRequest{Term: term, Checkpoints: checkpoints}}); err != nil {
			r.cfg.Logger.Debug("remaining time of leases not replicated", slog.Any("error", err))
		}
	}
	if len(ended) == 0 {
		return
	}
	res, err := r.do(ctx, &fsm.Request{LeaseExpire: &kv.LeaseExpireRequest{Term: term, Leases: ended}})
	if err == nil {
		r.lessor.expired.Add(uint64(res.Lease.Ended))
	} else {
		r.cfg.Logger.Warn("failed to revoke leases", slog.Int("leases", len(ended)), slog.Any("error", err))
	}
	// What was refused before it was proposed, or by the state machine, does not happen later.
	known := errors.Is(err, kv.ErrNoSpace) || errors.Is(err, kv.ErrTooManyRequests) || errors.Is(err, kv.ErrCorrupt)
	l := &r.lessor
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.term == term && err != nil {
		for _, ref := range ended {
			l.mu.timers.Retry(ref, l.now()+l.pause, known)
		}
	}
	l.settle()
}

// ttlBuckets is the number of buckets of the histogram of TTLs: up to 1 s, 2 s, 4 s and so on.
const ttlBuckets = 24

// ttlCounts counts the TTLs of leases that were granted.
type ttlCounts struct {
	buckets [ttlBuckets + 1]atomic.Uint64
	sum     atomic.Uint64
}

func (c *ttlCounts) add(ttl int64) {
	i := 0
	for bound := int64(1); i < ttlBuckets && ttl > bound; bound *= 2 {
		i++
	}
	c.buckets[i].Add(1)
	c.sum.Add(uint64(ttl))
}

// LeaseStats counts what happened to leases since the start.
type LeaseStats struct {
	// Granted and Revoked count what this member has applied; Renewed and Expired what it did as the
	// leader.
	Granted, Revoked, Renewed, Expired uint64
	// Leases is how many there are.
	Leases int
	// TTLs counts the leases that were granted with a TTL of at most 1, 2, 4 and so on seconds, not
	// those of the bucket before; the last bucket has no bound. TTLSum is the sum.
	TTLs   [ttlBuckets + 1]uint64
	TTLSum uint64
}

// LeaseStats returns the present figures.
func (r *Replica) LeaseStats() LeaseStats {
	l := &r.lessor
	s := LeaseStats{Granted: l.granted.Load(), Revoked: l.revoked.Load(), Renewed: l.renewed.Load(), Expired: l.expired.Load(),
		Leases: r.now().leases.Len(), TTLSum: l.ttls.sum.Load()}
	for i := range s.TTLs {
		s.TTLs[i] = l.ttls.buckets[i].Load()
	}
	return s
}
