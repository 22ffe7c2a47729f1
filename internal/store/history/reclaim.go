package history

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"vigil/internal/kv"
	"vigil/internal/store/history/garbage"
)

// reclaimPause is how long after a rewrite that failed the next one is tried.
const reclaimPause = 10 * time.Second

// reclaimState is what the reclaimer shares with the other parts of a log. Its lock comes before core.mu,
// and is not held over anything long.
type reclaimState struct {
	sync.Mutex
	changed sync.Cond // some field below
	kicked  bool      // there may be work
	busy    bool
	// asked counts the calls of Reclaim and done those that were served: while they differ,
	// all garbage is to be reclaimed.
	asked, done uint64
	stopped     bool
	// stop ends a rewrite in progress.
	stop  context.Context
	end   context.CancelFunc
	err   error // why the last rewrite failed; nil if it did not
	stats ReclaimStats
}

func newReclaimState() *reclaimState {
	r := &reclaimState{}
	r.changed.L = &r.Mutex
	r.stop, r.end = context.WithCancel(context.Background())
	return r
}

// kick makes the reclaimer look for work.
func (r *reclaimState) kick() {
	r.Lock()
	defer r.Unlock()
	r.kicked = true
	r.changed.Broadcast()
}

// halt makes the reclaimer end.
func (r *reclaimState) halt() {
	r.Lock()
	defer r.Unlock()
	r.stopped = true
	r.end()
	r.changed.Broadcast()
}

// reclaimer is the goroutine that rewrites segments without their dead records.
type reclaimer struct {
	*core
	*reclaimState
	cat   *catalog
	alloc *allocator
	seal  *sealer
}

// run is the goroutine.
func (r *reclaimer) run() {
	for {
		r.Lock()
		r.busy = false
		r.changed.Broadcast()
		for !r.kicked && !r.stopped {
			r.changed.Wait()
		}
		if r.stopped {
			r.Unlock()
			return
		}
		r.kicked, r.busy = false, true
		r.Unlock()
		for r.reclaimOnce() {
		}
	}
}

// reclaimOnce rewrites the segments that are most worth it, and returns false if none are.
func (r *reclaimer) reclaimOnce() bool {
	r.Lock()
	asked := r.asked
	thorough := asked != r.done
	r.Unlock()
	segs, cs, dead, live, waits := r.cat.candidates()
	t, rate := r.terms(dead, live, thorough)
	from, to := garbage.Choose(cs, dead, t)
	if from == to {
		// By what Choose has seen: a segment that was sealed since is for the next time, which is thorough as well.
		r.Lock()
		defer r.Unlock()
		r.err = nil
		if !waits {
			r.done = asked
		}
		return false
	}
	start := time.Now()
	run := segs[from:to]
	merged, err := r.rewrite(r.stop, run, rate)
	r.Lock()
	defer r.Unlock()
	r.err = err
	if err == nil {
		r.stats.Rewrites++
		r.stats.Segments += uint64(len(run))
		for _, s := range run {
			r.stats.Read += s.size.Load()
		}
		r.stats.Written += merged.size.Load()
		r.stats.Busy += time.Since(start)
		return true
	}
	if r.stopped || r.alive() != nil {
		r.stopped = true
		r.changed.Broadcast()
		return false
	}
	r.stats.Failures++
	r.changed.Broadcast()
	level := slog.LevelWarn
	if errors.Is(err, kv.ErrCorrupt) {
		level = slog.LevelError
	}
	r.o.Logger.Log(context.Background(), level, "cannot reclaim space in the history", "error", err.Error())
	again := time.AfterFunc(reclaimPause, func() {
		r.Lock()
		defer r.Unlock()
		r.err = nil
		r.changed.Broadcast()
	})
	defer again.Stop()
	for r.err != nil && !r.stopped {
		r.changed.Wait()
	}
	return !r.stopped
}

// ReclaimStats count what reclaim has done since Open.
type ReclaimStats struct {
	// Rewrites is the number of merged segments written, Segments that of the ones they replaced.
	Rewrites, Segments uint64
	// Read and Written are the bytes of the files replaced and of those that replaced them.
	Read, Written int64
	// Failures is the number of failed rewrites.
	Failures uint64
	// Busy is the total time of rewriting.
	Busy time.Duration
}

// ReclaimStats returns the present counts.
func (l *Log) ReclaimStats() ReclaimStats {
	l.rec.Lock()
	defer l.rec.Unlock()
	return l.rec.stats
}

// Reclaim requests that all segments with dead records are rewritten now, even where it is not worth it, and returns.
func (l *Log) Reclaim() {
	l.rec.Lock()
	l.rec.asked++
	l.rec.Unlock()
	l.rec.kick()
}

// WaitReclaimed returns when reclaim has nothing to do. Its errors are ctx's, that of a rewrite that
// failed, and ErrClosed.
func (l *Log) WaitReclaimed(ctx context.Context) error {
	r := l.rec.reclaimState
	defer context.AfterFunc(ctx, func() {
		r.Lock()
		defer r.Unlock()
		r.changed.Broadcast()
	})()
	r.Lock()
	defer r.Unlock()
	for (r.kicked || r.busy) && r.err == nil && !r.stopped && ctx.Err() == nil {
		r.changed.Wait()
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case r.err != nil:
		return r.err
	case r.stopped:
		return ErrClosed
	}
	return nil
}

// terms returns the terms of the next choice, and how many bytes a second the rewrite may take.
func (r *reclaimer) terms(dead, live int64, thorough bool) (t garbage.Terms, rate int64) {
	free, err := r.o.FS.Free(r.o.Dir)
	total, _ := r.cat.size()
	r.mu.Lock()
	reserve := r.alloc.reserveSize
	r.mu.Unlock()
	d := garbage.Disk{Free: free, Total: total, Unknown: err != nil, Segment: r.o.SegmentBytes, Merged: r.cat.mergedSize(), Reserve: reserve}
	return d.Terms(dead, live, thorough)
}
