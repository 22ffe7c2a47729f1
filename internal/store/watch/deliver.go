package watch

import (
	"errors"

	"vigil/internal/kv"
)

// deliverer brings batches to the watchers of a group. The matcher and each worker have their own.
type deliverer struct {
	hub      *Hub
	batch    batch
	events   kv.EventBuffer // of a worker
	touched  []*target      // targets that events of the batch fall into
	found    []*target
	variants [variantFlags + 1]variant
	own      []chunk
	stalls   []stall
	failed   []*watcher
	cur      *Stream   // its mu is held
	wake     []*Stream // to be woken
	queued   int       // responses since the last wakeAll
	bytes    int64     // of all responses
	// only is the stream that a worker's scan is for, nil for several, and onlyBytes are those of its responses.
	only      *Stream
	onlyBytes int64
}

// stall is a watcher whose queue had no room.
type stall struct {
	w    *watcher
	next int64 // first revision that it was not given
	need int64 // bytes that it needed
}

// find notes the targets of g that event i of the batch falls into.
func (d *deliverer) find(g *group, b *batch, i int) {
	e := &b.events[i]
	d.found = g.lookup(e.Key, d.found[:0])
	for _, t := range d.found {
		if t.n == 0 {
			d.touched = append(d.touched, t)
		}
		t.hit(int32(i), !e.Delete)
		if t.plain > 0 || e.Create {
			b.want[i] |= wantPlain
		}
		if e.Delete && t.prevDelete > 0 || !e.Delete && t.prevPut > 0 {
			b.want[i] |= wantPrev
		}
	}
}

// encode makes the bytes of the events that somebody wants. No lock is held.
func (d *deliverer) encode(b *batch) {
	b.plain = make([][]byte, len(b.events))
	var a arena
	if len(d.touched) == 1 && len(b.events) > 1 {
		a.size = arenaBlock
	}
	for i, want := range b.want {
		if want == 0 {
			continue
		}
		e := &b.events[i]
		if want&wantPlain != 0 {
			b.plain[i] = a.encode(e, nil)
		}
		if want&wantPrev == 0 {
			continue
		}
		if b.prev == nil {
			b.prev = make([][]byte, len(b.events))
		}
		var prev []byte
		if !e.Create {
			var err error
			prev, err = d.hub.src.Get(e.Key, e.Rev.Main-1)
			d.hub.counts.prevReads.Add(1)
			if err != nil && !errors.Is(err, kv.ErrCompacted) {
				d.hub.opt.Logger.Error("watch: cannot read the previous value for prev_kv", "revision", e.Rev.Main, "error", err)
				continue // the watchers that want it fail
			}
			if err != nil {
				prev = nil
			}
		}
		switch {
		case prev != nil:
			b.prev[i] = a.encode(e, prev)
		case b.plain[i] != nil:
			b.prev[i] = b.plain[i]
		default:
			b.prev[i] = a.encode(e, nil)
		}
	}
	if b.prev == nil {
		b.prev = b.plain
	}
}

// deliver queues the encoded batch for the watchers of the touched targets. For live ones Hub.mu is
// held, and let go now and then.
func (d *deliverer) deliver(b *batch, live bool) {
	before := d.queued
	for _, t := range d.touched {
		d.deliverTo(t, b, live)
		t.clear()
		if live && d.queued-before >= d.hub.opt.slice {
			before = d.queued
			d.release()
			d.hub.yield()
		}
	}
	d.release()
	clear(d.touched)
	d.touched = d.touched[:0]
	for i := range d.variants {
		v := &d.variants[i]
		clear(v.chunks[:cap(v.chunks)])
		*v = variant{chunks: v.chunks[:0]}
	}
	clear(d.own[:cap(d.own)])
	b.end()
}

// deliverTo queues the batch for the watchers of one target. Chunk by chunk rather than watcher by
// watcher, so that watchers of one stream share a run. The group is running: while Hub.mu is let go
// watchers may join the target, but they have next > b.last (W2), and none leaves it.
func (d *deliverer) deliverTo(t *target, b *batch, live bool) {
	for i := range d.variants {
		d.variants[i].built = false
	}
	more := 1
	for k := 0; k < more; k++ {
		for i := 0; i < len(t.watchers); i++ {
			if live && (i+1)%d.hub.opt.slice == 0 {
				d.release()
				d.hub.yield()
			}
			w := t.watchers[i]
			if w.next > b.last {
				continue
			}
			v := &d.variants[w.flags&variantFlags]
			if !v.built {
				v.build(b, t, w.flags, &d.hub.opt)
			}
			switch {
			case len(v.events) == 0 || w.stalled:
			case v.failed:
				if k == 0 {
					d.failed = append(d.failed, w)
				}
			case w.next > v.rev(0):
				if k == 0 {
					d.deliverRest(w, v)
				}
			case k < len(v.chunks):
				d.push(w, &v.chunks[k])
				more = max(more, len(v.chunks))
			}
		}
	}
}

// deliverRest queues for w what it has not seen of the variant.
func (d *deliverer) deliverRest(w *watcher, v *variant) {
	d.own = v.split(v.after(w.next), &d.hub.opt, d.own[:0])
	for i := range d.own {
		if !w.stalled {
			d.push(w, &d.own[i])
		}
	}
}

// push queues a chunk for w, or notes that there was no room.
func (d *deliverer) push(w *watcher, c *chunk) {
	s := w.stream
	if s != d.cur {
		d.release()
		d.cur = s
		s.mu.Lock()
	}
	if w.dead || s.mu.closed {
		return
	}
	need, ok := s.putEvents(w, c)
	if !ok {
		w.stalled = true
		d.stalls = append(d.stalls, stall{w, c.first, need})
		return
	}
	d.queued++
	d.bytes += c.bytes
	if s == d.only {
		d.onlyBytes += c.bytes
	}
	w.events += int64(len(c.events))
	w.bytes += c.bytes
	w.quiet = false
	if s.mu.waiting {
		s.mu.waiting = false
		d.wake = append(d.wake, s)
	}
}

// release lets go of the stream that is being filled.
func (d *deliverer) release() {
	if d.cur != nil {
		d.cur.mu.Unlock()
		d.cur = nil
	}
}

// wakeAll wakes the senders of the streams that something was queued for. No Stream.mu is held.
func (d *deliverer) wakeAll() {
	for i, s := range d.wake {
		s.signal()
		d.wake[i] = nil
	}
	d.wake, d.queued = d.wake[:0], 0
}

// settle gives the watchers of g that did not get the batch their place: those without room are
// parked, those whose events cannot be read are canceled. Hub.mu is held.
func (h *Hub) settle(d *deliverer, g *group) {
	live := g == h.mu.live
	for i := range d.stalls {
		if (i+1)%h.opt.slice == 0 {
			h.yield()
		}
		w := d.stalls[i].w
		w.stalled = false
		if w.dead {
			continue
		}
		if live {
			w.stream.behind++
			h.counts.fellBehind.Add(1)
		}
		g.remove(w)
		w.next = d.stalls[i].next
		h.park(w, d.stalls[i].need)
	}
	clear(d.stalls)
	d.stalls = d.stalls[:0]
	for i, w := range d.failed {
		h.cancel(w, Response{Revision: h.revision(), Reason: ReasonHistory})
		d.failed[i] = nil
	}
	d.failed = d.failed[:0]
}

// park puts a watcher aside until its stream has room for need bytes. mu is held.
//
// W7 holds because the watcher had no room: either something is queued or in flight, and Next will
// look at resumeAt again, or another watcher goes first, whose response or cancel will be in flight.
func (h *Hub) park(w *watcher, need int64) {
	s := w.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	limit := max(h.limit(), 0)
	at := min(limit/2, limit-need)
	if at < 0 && !w.alone {
		w.alone = true
		s.mu.alone++
	}
	at = max(at, 0)
	if s.mu.queued <= at && (w.alone || s.mu.alone == 0) {
		h.addPending(w) // the sender was faster
		return
	}
	s.parked.add(w, inParked)
	if s.mu.resumeAt < 0 || at < s.mu.resumeAt {
		s.mu.resumeAt = at
	}
}

// resume gives the parked watchers of a stream to the workers.
func (h *Hub) resume(s *Stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(s.parked) > 0 {
		w := s.parked[len(s.parked)-1]
		s.parked.remove(w)
		h.addPending(w)
	}
	s.parked.trim()
}

// cancel ends a watcher by the hub's decision; its id stays known until the client cancels it. mu
// is held; the group of the watcher, if any, is owned by the caller.
func (h *Hub) cancel(w *watcher, r Response) {
	if w.dead {
		return
	}
	s := w.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	g := w.group
	h.end(w)
	if w.place == inGroup {
		g.remove(w)
		g.dead--
	}
	r.WatchID, r.Canceled = w.id, true
	s.putAnswer(r)
}
