package history

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"vigil/internal/kv"
)

const (
	// garbageShare is how many bytes may be dead for each one that is live before segments are
	// rewritten, in percent. With the slack that segments have on their own it keeps the directory
	// below 1.5 times the live bytes.
	garbageShare = 15
	// worthShare is the least share of a segment, in percent, that a rewrite should win.
	worthShare = 10
	// reclaimRate is how many bytes a second a rewrite reads and writes while nothing is urgent.
	reclaimRate = 32 << 20
	// reclaimPause is how long after a rewrite that failed the next one is tried.
	reclaimPause = 10 * time.Second
)

// reclaim is the state of the reclaimer: the goroutine that rewrites segments without their dead
// records. Its lock comes before Log.mu, and is not held over anything long.
type reclaim struct {
	sync.Mutex
	changed sync.Cond // some field below
	kicked  bool      // there may be something to do
	busy    bool
	// asked counts the calls of Reclaim and done those that were served: while they differ,
	// everything that can be won is wanted.
	asked, done uint64
	stopped     bool
	// stop ends a rewrite that is under way.
	stop  context.Context
	end   context.CancelFunc
	err   error // why the last rewrite failed; nil if it did not
	stats ReclaimStats
}

// ReclaimStats count what reclaim has done since Open.
type ReclaimStats struct {
	// Rewrites is the number of merged segments written, Segments that of the ones they replaced.
	Rewrites, Segments uint64
	// Read and Written are the bytes of the files replaced and of those that replaced them.
	Read, Written int64
	// Failures is the number of rewrites given up.
	Failures uint64
	// Busy is how long rewriting took.
	Busy time.Duration
}

// ReclaimStats returns the present counts.
func (l *Log) ReclaimStats() ReclaimStats {
	l.rec.Lock()
	defer l.rec.Unlock()
	return l.rec.stats
}

// Reclaim asks for everything to be rewritten that has dead records, now and not when it is worth
// it, and returns.
func (l *Log) Reclaim() {
	l.rec.Lock()
	l.rec.asked++
	l.rec.Unlock()
	l.kickReclaim()
}

// WaitReclaimed returns when reclaim has nothing to do. Its errors are ctx's, that of a rewrite that
// failed, and ErrClosed.
func (l *Log) WaitReclaimed(ctx context.Context) error {
	r := &l.rec
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

func (l *Log) kickReclaim() {
	r := &l.rec
	r.Lock()
	defer r.Unlock()
	r.kicked = true
	r.changed.Broadcast()
}

func (r *reclaim) init() {
	r.changed.L = &r.Mutex
	r.stop, r.end = context.WithCancel(context.Background())
}

// stopReclaim makes the reclaimer end.
func (l *Log) stopReclaim() {
	r := &l.rec
	r.Lock()
	defer r.Unlock()
	r.stopped = true
	r.end()
	r.changed.Broadcast()
}

// reclaimer is the goroutine.
func (l *Log) reclaimer() {
	r := &l.rec
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
		for l.reclaimOnce() {
		}
	}
}

// reclaimOnce rewrites what is most worth it, and returns false if nothing is.
func (l *Log) reclaimOnce() bool {
	r := &l.rec
	r.Lock()
	asked := r.asked
	thorough := asked != r.done
	r.Unlock()
	cs, garbage, live, waits := l.candidates()
	run, rate := l.pick(cs, garbage, live, thorough)
	if run == nil {
		// By what pick has seen: a segment that was sealed since is for the next time, which is thorough as well.
		r.Lock()
		defer r.Unlock()
		r.err = nil
		if !waits {
			r.done = asked
		}
		return false
	}
	start := time.Now()
	merged, err := l.rewrite(r.stop, run, rate)
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
	if r.stopped || l.alive() != nil {
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
	l.o.Logger.Log(context.Background(), level, "cannot reclaim space in the history", "error", err.Error())
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

// candidate is a segment as pick sees it.
type candidate struct {
	seg  *segment
	size int64
	dead int64 // that a rewrite would win
	all  int64 // dead, whether it can be won now or not
	ok   bool  // it is sealed and can be rewritten
}

func (c *candidate) worth() bool { return c.dead > 0 && c.dead*100 >= c.size*worthShare }

// pick returns which of the candidates to rewrite into one, neighbors all, and how many bytes a second that may
// take; none if there is nothing worth it.
//
// Most is won by rewriting what holds most garbage. A tombstone can only go when no segment in front
// holds a dead record, which could be one of its key. So when what is left is tombstones that wait
// for a little garbage in front of them, the oldest segment with some is rewritten. Every choice wins
// something: rewriting ends.
func (l *Log) pick(cs []candidate, garbage, live int64, thorough bool) ([]*segment, int64) {
	share, rate, free := l.urgency()
	allowed := live/100*share + l.o.SegmentBytes/1024
	if thorough {
		allowed, rate = 0, max(rate, 4*reclaimRate)
	}
	if garbage <= allowed {
		return nil, 0
	}
	if garbage > live {
		rate = max(rate, 4*reclaimRate)
	}
	size := l.mergedSize()
	if rate == math.MaxInt64 {
		// On a full disk the reserve is all that there is to write to, on a nearly full one a part of
		// what is free.
		l.mu.Lock()
		room := max(l.mu.reserveSize, free/2)
		l.mu.Unlock()
		size = min(size, room)
		for i := range cs {
			cs[i].ok = cs[i].ok && cs[i].size-cs[i].dead <= room
		}
	}
	best, waiting := -1, int64(0)
	for i := range cs {
		if cs[i].ok {
			waiting += cs[i].all - cs[i].dead
		}
		if c := &cs[i]; c.ok && c.worth() && (best < 0 || c.dead*cs[best].size > cs[best].dead*c.size) {
			best = i
		}
	}
	if best < 0 && waiting <= garbage/2 && !thorough {
		return nil, 0 // a little everywhere
	}
	for i := 0; best < 0 && i < len(cs); i++ {
		switch c := &cs[i]; {
		case c.ok && c.dead > 0:
			best = i
		case c.all > 0 && !thorough:
			// What comes after it waits for it.
			return nil, 0
		}
	}
	if best < 0 {
		return nil, 0
	}
	// Neighbors that are worth it as well, or next to nothing, come along.
	from, to := best, best+1
	room := size - (cs[best].size - cs[best].dead)
	joins := func(i int) bool {
		if i < 0 || i >= len(cs) || !cs[i].ok {
			return false
		}
		left := cs[i].size - cs[i].dead
		if left > room || !cs[i].worth() && left > size/8 {
			return false
		}
		room -= left
		return true
	}
	for grown := true; grown; {
		grown = false
		if joins(from - 1) {
			from, grown = from-1, true
		}
		if joins(to) {
			to, grown = to+1, true
		}
	}
	run := make([]*segment, 0, to-from)
	for _, c := range cs[from:to] {
		run = append(run, c.seg)
	}
	return run, rate
}

// candidates returns the segments in front of the open one, oldest first, the bytes that are dead in
// those that can be rewritten, and the live bytes of all.
// waits says whether one that waits for its seal has garbage.
func (l *Log) candidates() (cs []candidate, garbage, live int64, waits bool) {
	v := l.view.Load()
	segs := l.segments()
	l.dead.Lock()
	defer l.dead.Unlock()
	// blocked says that tombstones have to wait for garbage before them, and kept that they stay.
	blocked, kept := false, false
	for _, s := range segs {
		if s == v.open.seg {
			waits = waits || s.dead.count.records > 0
			continue // it has been handed to the sealer since the view was taken
		}
		c := candidate{seg: s, size: s.size.Load()}
		all, tombs := s.garbage()
		c.all, c.dead = all, all
		kept = kept || s.dead.unsure
		if kept {
			c.all -= tombs
		}
		if blocked || kept {
			c.dead -= tombs
		}
		blocked = blocked || s.dead.count.records > 0
		if src := s.src.Load(); src.file != nil {
			c.ok = !s.damaged
			metas := l.metaAt.deadIn(src.file.foot.firstID, src.file.foot.lastID)
			c.all += metas
			c.dead += metas
		} else {
			waits = waits || c.all > 0
		}
		c.all, c.dead = min(c.all, c.size), min(c.dead, c.size)
		if c.ok {
			garbage += c.all
		}
		live += c.size - c.all
		cs = append(cs, c)
	}
	live += int64(v.end) - min(v.open.seg.dead.count.bytes, int64(v.end))
	return cs, garbage, live, waits
}

// urgency returns how many percent of the live bytes may be garbage and how fast it is taken away:
// less and faster the fuller the disk is. free is what is left of it.
func (l *Log) urgency() (share, rate, free int64) {
	free, err := l.o.FS.Free(l.o.Dir)
	if err != nil {
		return garbageShare, reclaimRate, 0
	}
	total, _ := l.Size()
	switch {
	case free < 4*l.o.SegmentBytes || free < total/16:
		return 1, math.MaxInt64, free
	case free < 16*l.o.SegmentBytes || free < total/4:
		return garbageShare / 3, 4 * reclaimRate, free
	default:
		return garbageShare, reclaimRate, free
	}
}

// RollWanted says whether the open segment wastes so much that it should be sealed, and rewritten
// perhaps: what is dead in it, and what was allocated for it in busier times. With any set, it says
// whether something in it is dead.
func (l *Log) RollWanted(any bool) bool {
	size := l.segmentSize()
	_, live := l.Size()
	l.dead.Lock()
	v := l.view.Load()
	dead := v.open.seg.dead.count.bytes
	l.dead.Unlock()
	waste := dead
	if alloc, err := v.open.file.Size(); err == nil {
		waste += max(alloc-int64(v.end)-size, 0)
	}
	return any && dead > 0 || waste > live/16 && waste > l.o.SegmentBytes/64
}

// WaitNext returns when there is a segment at hand to go on in, no larger than it should be by now,
// and true, or when there will be none soon.
func (l *Log) WaitNext() bool {
	l.fit()
	mu := &l.mu
	mu.Lock()
	defer mu.Unlock()
	for (mu.sealing != nil && mu.sealErr == nil || mu.next == nil && mu.allocErr == nil) && l.aliveLocked() == nil {
		mu.changed.Wait()
	}
	return mu.sealing == nil && mu.next != nil && l.aliveLocked() == nil
}

// Roll goes on in a new segment, so that the open one can be sealed and rewritten, unless it is empty.
// It returns false if no new one is at hand. It is for the writer, between batches.
func (l *Log) Roll() (bool, error) {
	w := &l.w
	if w.seg.batches == 0 {
		return true, nil
	}
	if w.began {
		return false, nil
	}
	l.mu.Lock()
	ready := l.mu.sealing == nil && l.mu.next != nil
	l.mu.Unlock()
	if !ready {
		return false, nil
	}
	if err := l.roll(); err != nil {
		return false, err
	}
	l.publish()
	return true, nil
}

// segments returns the segments in front of the open one as they are now, oldest first.
func (l *Log) segments() []*segment {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.segs
}

// Appended returns how many bytes were written to the segments since the log was opened.
func (l *Log) Appended() int64 { return l.appended.Load() }

// Size returns the bytes that were written to the segments (allocated ones beyond that not counted),
// and how many of them are not known to be dead.
func (l *Log) Size() (total, live int64) {
	v := l.view.Load()
	segs := l.segments()
	l.dead.Lock()
	defer l.dead.Unlock()
	open := v.open.seg.dead.count.bytes
	total = int64(v.end)
	live = total - min(open, total)
	for _, s := range segs {
		if s == v.open.seg {
			continue // it has been handed to the sealer since the view was taken
		}
		n := s.size.Load()
		total += n
		dead, _ := s.garbage()
		if src := s.src.Load(); src.file != nil {
			dead += l.metaAt.deadIn(src.file.foot.firstID, src.file.foot.lastID)
		}
		live += n - min(dead, n)
	}
	return total, live
}

// pace spreads work over time.
type pace struct {
	stop  context.Context
	rate  int64
	start time.Time
	done  int64
}

// wait returns when n more bytes may be handled. Its error is that of stop.
func (p *pace) wait(n int) error {
	if err := p.stop.Err(); err != nil {
		return fmt.Errorf("history: reclaim: %w", err)
	}
	p.done += int64(n)
	if p.rate == math.MaxInt64 {
		return nil
	}
	due := time.Duration(float64(p.done) / float64(p.rate) * float64(time.Second))
	ahead := due - time.Since(p.start)
	if ahead < time.Millisecond {
		return nil
	}
	t := time.NewTimer(ahead)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-p.stop.Done():
		return fmt.Errorf("history: reclaim: %w", p.stop.Err())
	}
}
