package history

import (
	"context"
	"sync"
	"time"
)

// reclaimPause is how long after a rewrite that failed the next one is tried.
const reclaimPause = 10 * time.Second

// agenda knows whether there may be something to reclaim, and how far the reclaimer is. Its lock is
// not held over anything long.
type agenda struct {
	sync.Mutex
	changed sync.Cond // some field below, or the reclaimer ends
	end     *ending
	ctx     context.Context
	stop    context.CancelFunc // ends the reclaimer and a rewrite in progress

	queued bool // records may have died since the reclaimer looked
	busy   bool
	// requested counts the calls of Reclaim, served those that were served. While they differ, all
	// garbage is to be reclaimed.
	requested, served uint64
	err               error // why the last rewrite failed; nil if it did not
	stats             ReclaimStats
}

func newAgenda(end *ending) *agenda {
	a := &agenda{end: end}
	a.changed.L = &a.Mutex
	a.ctx, a.stop = context.WithCancel(end.ctx)
	context.AfterFunc(a.ctx, a.wakeAll)
	return a
}

func (a *agenda) wakeAll() {
	a.Lock()
	defer a.Unlock()
	a.changed.Broadcast()
}

// queueWork makes the reclaimer look for garbage.
func (a *agenda) queueWork() {
	a.Lock()
	defer a.Unlock()
	a.queued = true
	a.changed.Broadcast()
}

// requestAll makes the reclaimer look for garbage and reclaim all of it.
func (a *agenda) requestAll() {
	a.Lock()
	defer a.Unlock()
	a.requested++
	a.queued = true
	a.changed.Broadcast()
}

// awaitWork waits until there may be something to reclaim. It returns false if the log ends.
func (a *agenda) awaitWork() bool {
	a.Lock()
	defer a.Unlock()
	a.busy = false
	a.changed.Broadcast()
	for !a.queued && a.ctx.Err() == nil {
		a.changed.Wait()
	}
	a.queued, a.busy = false, true
	return a.ctx.Err() == nil
}

// awaitIdle returns when the reclaimer has nothing to do. Its errors are ctx's, the error of a
// rewrite that failed, the error that ended the log, and ErrClosed.
func (a *agenda) awaitIdle(ctx context.Context) error {
	defer context.AfterFunc(ctx, a.wakeAll)()
	a.Lock()
	defer a.Unlock()
	for (a.queued || a.busy) && a.err == nil && a.ctx.Err() == nil && ctx.Err() == nil {
		a.changed.Wait()
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case a.err != nil:
		return a.err
	case a.ctx.Err() != nil:
		return a.end.checkWritable()
	}
	return nil
}

// openRequests returns the number of requests, and whether some are not served yet.
func (a *agenda) openRequests() (n uint64, open bool) {
	a.Lock()
	defer a.Unlock()
	return a.requested, a.requested != a.served
}

// noteNothing records that no segment is worth a rewrite. With all set, that serves the requests up
// to n.
func (a *agenda) noteNothing(n uint64, all bool) {
	a.Lock()
	defer a.Unlock()
	a.err = nil
	if all {
		a.served = n
	}
}

// noteRewrite counts a rewrite.
func (a *agenda) noteRewrite(s ReclaimStats) {
	a.Lock()
	defer a.Unlock()
	a.err = nil
	a.stats.Rewrites += s.Rewrites
	a.stats.Segments += s.Segments
	a.stats.Read += s.Read
	a.stats.Written += s.Written
	a.stats.Busy += s.Busy
}

// noteFailure counts a rewrite that failed with err, and waits for reclaimPause or until a test or
// the end of the log ends the pause. It returns false if the log ends.
func (a *agenda) noteFailure(err error) bool {
	again := time.AfterFunc(reclaimPause, a.endPause)
	defer again.Stop()
	a.Lock()
	defer a.Unlock()
	a.err = err
	a.stats.Failures++
	a.changed.Broadcast()
	for a.err != nil && a.ctx.Err() == nil {
		a.changed.Wait()
	}
	return a.ctx.Err() == nil
}

// endPause ends the pause after a rewrite that failed.
func (a *agenda) endPause() {
	a.Lock()
	defer a.Unlock()
	a.err = nil
	a.changed.Broadcast()
}

// ReclaimStats count what reclaim has done since Open.
type ReclaimStats struct {
	// Rewrites is the number of merged segments written, Segments the number of segments that they
	// replaced.
	Rewrites, Segments uint64
	// Read and Written are the bytes of the replaced files and of the merged ones.
	Read, Written int64
	// Failures is the number of failed rewrites.
	Failures uint64
	// Busy is the total time of rewriting.
	Busy time.Duration
}

// countRewrites returns the present counts.
func (a *agenda) countRewrites() ReclaimStats {
	a.Lock()
	defer a.Unlock()
	return a.stats
}
