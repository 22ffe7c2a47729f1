package watch

import "slices"

// cohort holds the watchers of a target that belong to one stream and get the same responses. A
// deliverer queues the events of a batch for all of them at once, without visiting each watcher.
//
// A target has cohorts when its watchers have not changed between two batches and at least half of
// them share a stream with another one (half of the first ones if they are many). A change of the
// watchers of a target drops its cohorts.
type cohort struct {
	stream   *Stream
	flags    flags // only flags in cohortFlags
	watchers []*watcher
	also     []int64 // the ids of watchers[1:]; shared by runs, so it never changes
	next     int64   // the greatest next of the watchers
	// ended is the value of Stream.mu.ended at the last dropEnded.
	ended uint64
	// single: the deliverer queues the rest of this batch for each watcher separately. Owned by the
	// goroutine that delivers.
	single bool
	sums   *sums
}

// sums counts the events and bytes queued for each watcher of a cohort. It outlives the cohort
// until its watchers join other cohorts. Stream.mu guards it.
type sums struct {
	events, bytes int64
	active        bool // since the last tick
}

// division holds the watchers of a target as cohorts.
type division struct{ cohorts []*cohort }

// cohorts returns the cohorts of t, nil if the deliverer serves each watcher separately.
func (t *target) cohorts() []*cohort {
	if t.division == nil {
		return nil
	}
	return t.division.cohorts
}

// cohortFlags are the flags that decide which responses a watcher gets.
const cohortFlags = variantFlags | fragment

// begin begins a batch. It reports whether the watchers of t, which have not changed since the
// batch before, should be divided.
func (t *target) begin() bool {
	settled := t.settled
	t.settled = true
	return settled && t.division == nil && !t.alone && len(t.watchers) > 1
}

// sample is the number of watchers of a target that show whether dividing all of them is worth the
// work.
const sample = 1024

// divide divides the watchers of t into cohorts if that is worth the work. It separates the
// watchers that start after the revision last: otherwise the events of the others could not be
// queued together. The caller owns the group of t, and holds no Stream.mu. divide calls pause from
// time to time: watchers may join during a pause, and then there are no cohorts yet.
func (t *target) divide(last int64, pause func()) {
	type kind struct {
		stream *Stream
		flags  flags
	}
	// part returns 0 if w is in the first cohort of its kind, 1 if it is in the second.
	part := func(w *watcher) int {
		if w.next > last {
			return 1
		}
		return 0
	}
	places := map[kind][2]int{}
	watchers := t.watchers // without watchers that join later
	for i, w := range watchers {
		pause()
		k := kind{w.stream, w.flags & cohortFlags}
		n := places[k]
		n[part(w)]++
		places[k] = n
		if n := i + 1; (n == sample || n == len(watchers)) && len(places) > n/2 {
			t.alone = t.settled
			return
		}
	}
	cohorts := make([]*cohort, 0, len(places))
	all := make([]*watcher, len(watchers))
	for _, w := range watchers {
		pause()
		k, i := kind{w.stream, w.flags & cohortFlags}, part(w)
		n := places[k]
		if n[i] > 0 { // the first one
			cohorts = append(cohorts,
				&cohort{stream: w.stream, flags: k.flags, watchers: all[:0:n[i]]})
			all = all[n[i]:]
			n[i] = -len(cohorts)
			places[k] = n
		}
		c := cohorts[-n[i]-1]
		c.watchers = append(c.watchers, w)
	}
	for _, c := range cohorts {
		pause()
		c.prepare()
	}
	if t.settled {
		t.division = &division{cohorts}
	}
}

// prepare completes a cohort whose watchers are set.
func (c *cohort) prepare() {
	c.sums = &sums{}
	c.stream.mu.Lock()
	defer c.stream.mu.Unlock()
	for _, w := range c.watchers {
		w.events, w.bytes = w.counted()
		w.quiet = w.isQuiet()
		w.sums = c.sums
	}
	c.list()
	c.ended = c.stream.mu.ended - 1 // so that dropEnded checks
}

// list sets the fields that summarize the watchers.
func (c *cohort) list() {
	c.also, c.next = make([]int64, max(len(c.watchers)-1, 0)), 0
	for i, w := range c.watchers {
		if i > 0 {
			c.also[i-1] = w.id
		}
		c.next = max(c.next, w.next)
	}
}

// dropEnded drops the watchers that have ended: they may stay in the group for long. It reports
// whether any are left. Stream.mu is held.
func (c *cohort) dropEnded() bool {
	if c.ended != c.stream.mu.ended {
		c.ended = c.stream.mu.ended
		all := len(c.watchers)
		if c.watchers = slices.DeleteFunc(c.watchers,
			func(w *watcher) bool { return w.dead }); len(c.watchers) < all {
			c.list()
		}
	}
	return len(c.watchers) > 0
}

// counted returns the events and bytes queued for the watcher since its creation. Stream.mu is
// held.
func (w *watcher) counted() (events, bytes int64) {
	if w.sums == nil {
		return w.events, w.bytes
	}
	return w.events + w.sums.events, w.bytes + w.sums.bytes
}

// isQuiet reports whether the watcher had no event since the last tick. Stream.mu is held.
func (w *watcher) isQuiet() bool { return w.quiet && (w.sums == nil || !w.sums.active) }

// undivide drops the cohorts of t because its watchers change. The caller owns the group of t.
func (t *target) undivide() { t.division, t.settled, t.alone = nil, false, false }
