package history

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/store/history/garbage"
	"vigil/internal/store/pace"
)

// reclaimer rewrites segments without their dead records, in a goroutine.
type reclaimer struct {
	dir    directory
	logger *slog.Logger
	member format.Identity // of merged segments; set before the goroutine starts
	sizes  *sizes
	end    *ending
	cat    *catalog
	work   *agenda
	alloc  *allocator
	seal   *sealer
}

// reclaimInBackground is the goroutine: it rewrites segments while that is worth it, until the log
// ends.
func (r *reclaimer) reclaimInBackground() {
	for r.work.awaitWork() {
		for r.reclaimOnce() {
		}
	}
}

// reclaimOnce rewrites the segments that are most worth it, and returns false if none are.
func (r *reclaimer) reclaimOnce() bool {
	requests, all := r.work.openRequests()
	found := r.cat.findCandidates()
	t, rate := r.terms(&found, all)
	from, to := garbage.Choose(found.list, found.dead, t)
	if from == to {
		// A segment that was sealed since is for the next time, which is thorough as well.
		r.work.noteNothing(requests, !found.waits)
		return false
	}
	start := time.Now()
	run := found.segs[from:to]
	stats := ReclaimStats{Rewrites: 1, Segments: uint64(len(run))}
	for _, s := range run {
		stats.Read += s.size.Load()
	}
	merged, err := r.rewriteRun(r.work.ctx, run, rate)
	if err == nil {
		stats.Written, stats.Busy = merged.size.Load(), time.Since(start)
		r.work.noteRewrite(stats)
		return true
	}
	if r.work.ctx.Err() != nil || r.end.checkWritable() != nil {
		return false
	}
	level := slog.LevelWarn
	if errors.Is(err, kv.ErrCorrupt) {
		level = slog.LevelError
	}
	r.logger.Log(context.Background(), level, "cannot reclaim space in the history",
		"error", err.Error())
	return r.work.noteFailure(err)
}

// terms returns the terms of the next choice, and how many bytes a second the rewrite may take.
func (r *reclaimer) terms(found *candidates, all bool) (t garbage.Terms, rate int64) {
	free, err := r.dir.fs.Free(r.dir.path)
	total, _ := r.cat.countBytes()
	d := garbage.Disk{Free: free, Total: total, Unknown: err != nil, Segment: r.sizes.most,
		Merged: r.sizes.mergedSize(), Reserve: r.alloc.reserveBytes()}
	return d.Terms(found.dead, found.live, all)
}

// rewriteRun merges run, sealed segments that are neighbors, into one segment without their dead
// records, and replaces them by it. If it fails, everything is as it was, or the log has failed.
func (r *reclaimer) rewriteRun(ctx context.Context, run []*segment, rate int64) (*segment, error) {
	plan, err := r.cat.planMerge(run)
	if err != nil {
		return nil, err
	}
	w := &rewriting{mergePlan: plan, dir: r.dir, logger: r.logger, member: r.member,
		most: r.sizes.most,
		cat:  r.cat, alloc: r.alloc, stop: ctx, pace: pace.Rate{BytesPerSecond: rate}}
	if err := w.chooseMetas(); err != nil {
		return nil, err
	}
	// The compaction that made records dead must be durable. Otherwise the raft log could be
	// replayed after a crash on a state without records that it needs.
	if _, err := r.seal.syncAll(); err != nil {
		return nil, err
	}
	defer func() {
		if w.reserved {
			r.alloc.refillReserve()
		}
	}()
	merged, err := w.writeMerged()
	if err != nil {
		return nil, err
	}
	if err := w.nameOutput(); err != nil {
		merged.Release()
		return nil, r.end.failIfFinal(err) // it is unknown which of the names a crash would leave
	}
	s, old := r.cat.mergeRun(&w.mergePlan, merged)
	w.removeFiles(old)
	r.logger.Debug("rewrote history segments", "file", merged.Path(), "segments", len(run),
		"bytes", merged.Footer().FileSize())
	return s, nil
}
