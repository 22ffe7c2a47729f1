package watch

import "slices"

// cohort is those watchers of a target that belong to one stream and get the same responses. The events of a batch are queued for all of
// them at once, without a look at the single watchers.
//
// A target has cohorts when its watchers have not changed between two batches and at least half of them share a stream with another
// one, of the first ones if they are many. A change of the watchers of a target drops its cohorts.
type cohort struct {
	stream   *Stream
	flags    flags // those in cohortFlags
	watchers []*watcher
	also     []int64 // the ids of watchers[1:]; shared by runs, so it never changes
	next     int64   // the greatest next of the watchers
	// ended is Stream.mu.ended when dropEnded looked.
	ended uint64
	// single: the rest of this batch is delivered to each watcher by itself. Owned by the goroutine that delivers.
	single bool
	sums   *sums
}

// sums counts what was queued for each watcher of a cohort. It outlives the cohort until its watchers join other ones. It is guarded
// by Stream.mu.
type sums struct {
	events, bytes int64
	active        bool // since the last tick
}

// division is the watchers of a target as cohorts.
type division struct{ cohorts []*cohort }

// cohorts returns the cohorts of t, nil if each watcher is delivered to by itself.
func (t *target) cohorts() []*cohort {
	if t.division == nil {
		return nil
	}
	return t.division.cohorts
}

// cohortFlags are the flags that decide which responses a watcher gets.
const cohortFlags = variantFlags | fragment

// begin begins a batch. It reports whether the watchers of t, which have not changed since the batch before, should be divided.
func (t *target) begin() bool {
	settled := t.settled
	t.settled = true
	return settled && t.division == nil && !t.alone && len(t.watchers) > 1
}

// sample is how many watchers of a target show whether it is worth to divide all.
const sample = 1024

// divide divides the watchers of t into cohorts if that is worth it. Those that start after the revision last are apart: they would keep
// the others from having their events queued together. The caller owns the group of t, and holds no Stream.mu. pause is called again and
// again: watchers may join meanwhile, and then there are no cohorts yet.
func (t *target) divide(last int64, pause func()) {
	type kind struct {
		stream *Stream
		flags  flags
	}
	// part returns whether w is in the first or the second cohort of its kind.
	part := func(w *watcher) int {
		if w.next > last {
			return 1
		}
		return 0
	}
	places := map[kind][2]int{}
	watchers := t.watchers // without those that join
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
			cohorts = append(cohorts, &cohort{stream: w.stream, flags: k.flags, watchers: all[:0:n[i]]})
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

// prepare completes a cohort that has its watchers.
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
	c.ended = c.stream.mu.ended - 1 // dropEnded looks
}

// list sets what is known of the watchers together.
func (c *cohort) list() {
	c.also, c.next = make([]int64, max(len(c.watchers)-1, 0)), 0
	for i, w := range c.watchers {
		if i > 0 {
			c.also[i-1] = w.id
		}
		c.next = max(c.next, w.next)
	}
}

// dropEnded drops the watchers that have ended: they may stay in the group for long. It reports whether others are left. The mu of the
// stream is held.
func (c *cohort) dropEnded() bool {
	if c.ended != c.stream.mu.ended {
		c.ended = c.stream.mu.ended
		all := len(c.watchers)
		if c.watchers = slices.DeleteFunc(c.watchers, func(w *watcher) bool { return w.dead }); len(c.watchers) < all {
			c.list()
		}
	}
	return len(c.watchers) > 0
}

// counted returns what was queued for the watcher since its creation. Stream.mu is held.
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
