package watch

import "vigil/internal/store/watch/interval"

// group is a set of watchers that can be found by key: all live watchers, or the watchers of one
// scan of history.
//
// Hub.mu guards the live group, and a scan that waits for its turn. While the matcher delivers to
// the live group (running is set), watchers may join it, and canceled watchers stay until the
// matcher removes them. While a worker runs a scan (running is set), the worker owns it and moves
// its watchers only under Hub.mu. Other goroutines then touch only running and dead, and canceled
// watchers stay until the worker removes them.
type group struct {
	// pos is the first revision that a scan has not read; unused in the live group.
	pos     int64
	exact   map[string]*target
	peak    int // greatest size of exact since it was made
	ranges  interval.Tree[*target]
	members list
	// only is the stream that a scan serves, nil if it serves all streams with few watchers behind.
	// turns holds the cost of its turns. Unused in the live group.
	only  *Stream
	turns *turns

	// Guarded by Hub.mu.
	running bool
	dead    int // members canceled while running
	// left: a member of the scan has gone, or others have joined, since the last check found a
	// member that wants the revision at pos; unchecked is the number of turns since that check.
	left      bool
	unchecked int
}

// keepPeak is the size up to which an empty map is kept for reuse.
const keepPeak = 1024

func newGroup() *group { return &group{exact: map[string]*target{}} }

// target holds the watchers of a group that have the same range. Most targets have one watcher;
// keep the struct small.
type target struct {
	watchers []*watcher
	// division holds the watchers by stream; nil if the deliverer serves each watcher separately.
	division *division
	// The number of watchers without prev_kv, and with prev_kv for puts and for deletions.
	plain, prevPut, prevDelete int32
	// hit is 1 plus the place of the target in deliverer.hits, 0 if no event of the current batch
	// falls into the range. Owned by the matcher or worker that owns the group.
	hit int32
	// settled: the watchers have not changed since the last batch. alone: most of them do not share
	// their stream.
	settled, alone bool
}

// hits holds the n events of a batch that fall into the range of a target, some of them puts:
// consecutive events from first on, or the events in picks if that is not nil.
type hits struct {
	target         *target
	first, n, puts int32
	picks          []int32
}

func (g *group) add(w *watcher) {
	t := g.find(w)
	if t == nil {
		t = &target{}
		if w.flags&ranged != 0 {
			g.ranges.Insert(w.key, w.end, t)
		} else {
			g.exact[w.key] = t
			g.peak = max(g.peak, len(g.exact))
		}
	}
	w.group, w.target, w.inTarget = g, t, int32(len(t.watchers))
	t.watchers = append(t.watchers, w)
	t.undivide()
	t.count(w, 1)
	g.members.add(w, inGroup)
}

func (g *group) find(w *watcher) *target {
	if w.flags&ranged == 0 {
		return g.exact[w.key]
	}
	t, _ := g.ranges.Find(w.key, w.end)
	return t
}

func (g *group) remove(w *watcher) {
	g.left = true
	t := w.target
	last := t.watchers[len(t.watchers)-1]
	t.watchers[w.inTarget], last.inTarget = last, w.inTarget
	t.watchers[len(t.watchers)-1] = nil
	t.watchers = t.watchers[:len(t.watchers)-1]
	t.undivide()
	t.count(w, -1)
	if len(t.watchers) == 0 {
		if w.flags&ranged != 0 {
			g.ranges.Delete(w.key, w.end)
		} else {
			delete(g.exact, w.key)
			if len(g.exact) == 0 && g.peak > keepPeak { // a map never shrinks by itself
				g.exact, g.peak = map[string]*target{}, 0
			}
		}
	}
	g.members.remove(w)
	g.members.trim()
	w.group, w.target = nil, nil
}

func (t *target) count(w *watcher, by int32) {
	if w.flags&prevKV == 0 {
		t.plain += by
		return
	}
	if w.flags&noPut == 0 {
		t.prevPut += by
	}
	if w.flags&noDelete == 0 {
		t.prevDelete += by
	}
}

// position raises each watcher's next to the group's position. It must run before the position is
// lowered.
func (g *group) position() {
	for _, w := range g.members {
		w.next = max(w.next, g.pos)
		w.target.undivide() // cohorts have the greatest next of their watchers
	}
}

// lookup appends to dst the targets whose range holds key.
func (g *group) lookup(key []byte, dst []*target) []*target {
	if t := g.exact[string(key)]; t != nil {
		dst = append(dst, t)
	}
	return g.ranges.Stab(key, dst)
}

// add records that event i of the batch falls into the range.
func (h *hits) add(i int32, put bool) {
	switch {
	case h.n == 0:
		h.first = i
	case h.picks != nil:
		h.picks = append(h.picks, i)
	case h.first+h.n != i:
		h.picks = make([]int32, 0, 2*h.n+2)
		for k := range h.n {
			h.picks = append(h.picks, h.first+k)
		}
		h.picks = append(h.picks, i)
	}
	h.n++
	if put {
		h.puts++
	}
}

// pick returns the index in the batch of the k-th event that fell into the range.
func (h *hits) pick(k int32) int32 {
	if h.picks != nil {
		return h.picks[k]
	}
	return h.first + k
}
