package watch

import "vigil/internal/kv"

// mostUnwoken is the number of responses to queue before waking their senders.
const mostUnwoken = 4096

// mergeBytes is the size up to which the matcher distributes entries of the ring as one batch. It
// is large enough to keep responses few, and small compared with the budget of a stream.
const mergeBytes = 64 << 10

// match is the matcher: it distributes published events to the live watchers.
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
		for more := true; more; {
			// Not after the previous batch: a pause without further events would cost a timer.
			if !p.pause(h.ring.urgent, h.done) {
				return
			}
			for more && d.queued < mostUnwoken {
				var e entry
				var ok bool
				if e, ok, more = h.ring.take(&merged, mergeBytes); ok {
					h.distribute(&d, e)
					clear(merged)
					merged = reuse(merged, 1024)
				}
			}
			p.add(d.queued)
			d.wakeAll()
		}
	}
}

// distribute queues the events of an entry for the live watchers.
func (h *Hub) distribute(d *deliverer, e entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.last <= h.mu.matched {
		return // from before the first stream: no watcher needs it
	}
	if e.gap {
		h.skipTo(e.last)
		h.answerProgressRequests()
		return
	}
	h.mu.claimed = e.last
	g := h.mu.live
	if len(g.members) > 0 {
		b := &d.batch
		b.begin(e.last, e.events)
		for i := range b.events {
			d.find(g, b, i)
			if (i+1)%h.opt.slice == 0 {
				h.yieldLock()
			}
		}
		if len(d.hits) > 0 {
			// While the lock is not held, watchers may be created and canceled. New ones have next
			// > claimed (W2), so they are skipped below. g stays the live group.
			h.mu.Unlock()
			d.encode(b)
			h.mu.Lock()
			g.running = true
			d.deliver(b, true)
			g.running = false
			h.removeGone(g)
			h.parkStalled(d, g)
		} else {
			b.end()
		}
	}
	// matched is greater if all streams were closed during the delivery and another one was opened
	h.mu.matched = max(h.mu.matched, e.last)
	h.answerProgressRequests()
}

// yieldLock lets other goroutines take mu, which is held. No Stream.mu is held.
func (h *Hub) yieldLock() {
	h.mu.Unlock()
	h.mu.Lock()
}

// removeGone removes the watchers that were canceled during a delivery from the live group. mu is
// held.
func (h *Hub) removeGone(g *group) {
	for i, w := range h.mu.gone {
		g.remove(w)
		g.dead--
		h.mu.gone[i] = nil
		if (i+1)%h.opt.slice == 0 {
			h.yieldLock()
		}
	}
	h.mu.gone = reuse(h.mu.gone, keepPeak)
}

// skipTo makes all live watchers fall behind, because the events up to rev are missing (W4). The
// matcher is between batches. mu is held.
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
	h.addScan(g, nil)
	h.work.Signal()
}
