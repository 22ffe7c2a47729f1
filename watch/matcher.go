package watch

import "vigil/kv"

// matchSlice is the number of events that are matched, or responses queued, before the matcher lets
// others at Hub.mu.
const matchSlice = 1024

// mergeBytes is the size up to which what waits in the ring is distributed as one batch: enough to
// make responses few, and little beside what a stream may hold.
const mergeBytes = 64 << 10

// match is the matcher: it distributes what is published to the live watchers.
func (h *Hub) match() {
	d := deliverer{hub: h}
	p := newPacer(h.opt.ResponseTime, h.opt.GatherTime)
	var merged []kv.Event
	for {
		select {
		case <-h.done:
			return
		case <-h.ring.kick:
		}
		for {
			e, ok, more := h.ring.take(&merged, mergeBytes)
			if !ok {
				break
			}
			h.distribute(&d, e)
			clear(merged)
			merged = reuse(merged, matchSlice)
			if more && d.queued < 4*matchSlice {
				continue
			}
			p.add(d.queued)
			d.wakeAll()
			if !p.pause(h.ring.urgent, h.done) {
				return
			}
		}
	}
}

// distribute queues the events of an entry for the live watchers.
func (h *Hub) distribute(d *deliverer, e entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.gap {
		h.skipTo(e.last)
		h.answerAsks()
		return
	}
	h.mu.claimed = e.last
	g := h.mu.live
	if len(g.members) > 0 {
		b := &d.batch
		b.begin(e.last, e.events)
		for i := range b.events {
			d.find(g, b, i)
			if i%matchSlice == matchSlice-1 {
				h.mu.Unlock()
				h.mu.Lock()
			}
		}
		if len(d.touched) > 0 {
			// While the lock is not held, watchers may come and go, but those that come have
			// next > claimed (W2) and are skipped below; g stays the live group.
			h.mu.Unlock()
			d.encode(b)
			h.mu.Lock()
			d.deliver(b, true)
			h.settle(d, g)
		} else {
			b.end()
		}
	}
	h.mu.matched = e.last
	h.answerAsks()
}

// skipTo turns all live watchers behind, because what is needed to go on to rev is missing (W4).
// The matcher is between batches. mu is held.
func (h *Hub) skipTo(rev int64) {
	g := h.mu.live
	g.pos = h.mu.matched + 1
	h.mu.claimed, h.mu.matched = rev, rev
	if len(g.members) == 0 {
		return
	}
	h.counts.gaps.Add(1)
	for _, w := range g.members {
		w.stream.behind++
	}
	h.mu.live = newGroup()
	h.mu.scans = append(h.mu.scans, g)
	h.work.Signal()
}
