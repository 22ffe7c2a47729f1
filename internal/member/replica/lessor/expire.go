package lessor

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"vigil/internal/kv"
	"vigil/internal/state/fsm"
)

const (
	// maxExpireLeases and maxExpireKeys limit one request that revokes leases: writes that are
	// proposed after it wait for it.
	maxExpireLeases = 256
	maxExpireKeys   = 1024
	// minExpireRest is the shortest pause between two such requests. The pause is as long as the
	// request took, so that other writes get at least half of the pipeline.
	minExpireRest = 5 * time.Millisecond
)

// due lists the expirations and checkpoints to propose.
type due struct {
	term        uint64
	expired     []kv.LeaseRef
	checkpoints []kv.LeaseCheckpoint
	// more is set if there were more expired leases than fit into one request.
	more bool
}

// Run proposes lease revocations and remaining-TTL checkpoints until ctx ends or the member stops.
func (l *Lessor) Run(ctx context.Context) {
	defer l.ticker.Stop()
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
		case <-l.o.Stopping:
			return
		case <-l.ticker.C:
		case took := <-busy:
			rested.Reset(max(took, minExpireRest))
		case <-rested.C:
			idle = true
		}
		d := l.takeDue(idle)
		if len(d.expired)+len(d.checkpoints) == 0 {
			if d.more && idle {
				rested.Reset(0)
			}
			continue
		}
		idle = false
		work.Go(func() {
			began := time.Now()
			l.proposeDue(ctx, &d)
			busy <- time.Since(began)
		})
	}
}

// takeDue advances the clock and, if take is set, returns the expirations and checkpoints that are
// due.
func (l *Lessor) takeDue(take bool) (d due) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, runs := l.tick()
	if l.mu.term == 0 {
		return d
	}
	if l.o.Raft.LeadTerm() != l.mu.term {
		l.stopCounting()
		return d
	}
	if !take || !runs {
		return d
	}
	d.term = l.mu.term
	leases, keys, state := 0, 0, l.o.Pipeline.LeaseState()
	d.expired, d.checkpoints, d.more = l.mu.timers.Due(now, func(ref kv.LeaseRef) bool {
		leases++
		keys += state.Attached(ref.ID)
		return leases >= maxExpireLeases || keys >= maxExpireKeys
	})
	for i := range d.checkpoints {
		// A keep-alive that is applied before the checkpoint makes the checkpoint void.
		rec, _ := state.Lookup(d.checkpoints[i].ID)
		d.checkpoints[i].Since = rec.Since
	}
	return d
}

// proposeDue proposes expirations and checkpoints and waits for the result.
func (l *Lessor) proposeDue(ctx context.Context, d *due) {
	ctx, cancel := context.WithTimeout(ctx, l.o.RequestTimeout)
	defer cancel()
	if len(d.checkpoints) > 0 {
		// The lessor repeats a lost checkpoint after the interval.
		req := &kv.LeaseCheckpointRequest{Term: d.term, Checkpoints: d.checkpoints}
		if _, err := l.o.Pipeline.Propose(ctx, &fsm.Request{LeaseCheckpoint: req}); err != nil {
			l.o.Logger.Debug("remaining time of leases not replicated", slog.Any("error", err))
		}
	}
	if len(d.expired) == 0 {
		return
	}
	res, err := l.o.Pipeline.Propose(ctx,
		&fsm.Request{LeaseExpire: &kv.LeaseExpireRequest{Term: d.term, Leases: d.expired}})
	if err == nil {
		l.expired.Add(uint64(res.Lease.Ended))
	} else {
		l.o.Logger.Warn("failed to revoke leases", slog.Int("leases", len(d.expired)),
			slog.Any("error", err))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.term == d.term && err != nil {
		for _, ref := range d.expired {
			l.mu.timers.Retry(ref, l.now()+l.o.ElectionTimeout, rejected(err))
		}
	}
	l.wakeWaiters()
}

// rejected reports whether a request failed before it was proposed, or was rejected when applied:
// it has no effect later, and asking again soon gives the same error.
func rejected(err error) bool {
	return errors.Is(err, kv.ErrNoSpace) || errors.Is(err, kv.ErrTooManyRequests) ||
		errors.Is(err, kv.ErrCorrupt)
}
