package watch

import (
	"errors"

	"vigil/internal/kv"
)

// deliverer queues batches for the watchers of a group. The matcher and each worker have one each.
type deliverer struct {
	hub      *Hub
	batch    batch
	events   kv.EventBuffer // of a worker
	hits     []hits         // events of the batch, by target
	found    []*target
	variants [variantFlags + 1]variant
	stalls   []stall
	failed   []*watcher
	cur      *Stream   // its mu is held
	wake     []*Stream // to be woken
	owners   []any     // of the streams that a Ready reports
	queued   int       // responses since the last wakeAll
	bytes    int64     // of all responses
	// only is the stream that a worker's scan serves, nil for several. onlyBytes is the size of its
	// responses.
	only      *Stream
	onlyBytes int64
}

// stall is a watcher whose queue had no room.
type stall struct {
	w    *watcher
	next int64 // first revision that is not queued for it
	need int64 // bytes that it needed
}

// find records event i of the batch in the hits of the targets of g whose range holds its key.
func (d *deliverer) find(g *group, b *batch, i int) {
	e := &b.events[i]
	d.found = g.lookup(e.Key, d.found[:0])
	for _, t := range d.found {
		if t.hit == 0 {
			d.hits = append(d.hits, hits{target: t})
			t.hit = int32(len(d.hits))
		}
		d.hits[t.hit-1].add(int32(i), !e.Delete)
		if t.plain > 0 || e.Create {
			b.want[i] |= wantPlain
		}
		if e.Delete && t.prevDelete > 0 || !e.Delete && t.prevPut > 0 {
			b.want[i] |= wantPrev
		}
	}
}

// encode encodes the events that a watcher needs. No lock is held.
func (d *deliverer) encode(b *batch) {
	b.plain = make([][]byte, len(b.events))
	var a arena
	if len(d.hits) == 1 && len(b.events) > 1 {
		for i, want := range b.want {
			if n := encodedSize(&b.events[i]); want&wantPlain != 0 && n <= arenaBlock/4 {
				a.left += n
			}
		}
	}
	for i, want := range b.want {
		if want == 0 {
			continue
		}
		e := &b.events[i]
		if want&wantPlain != 0 {
			b.plain[i] = encode(e, nil, &a)
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
				d.hub.opt.Logger.Error("watch: cannot read the previous value for prev_kv",
					"revision", e.Rev.Main, "error", err)
				continue // the watchers that need it fail
			}
			if err != nil {
				prev = nil
			}
		}
		switch {
		case prev != nil:
			b.prev[i] = encode(e, prev, nil)
		case b.plain[i] != nil:
			b.prev[i] = b.plain[i]
		default:
			b.prev[i] = encode(e, nil, nil)
		}
	}
	if b.prev == nil {
		b.prev = b.plain
	}
	b.arena = a.total
}

// deliver queues the encoded batch for the watchers of the targets that it hits. For live watchers
// Hub.mu is held, and released from time to time.
func (d *deliverer) deliver(b *batch, live bool) {
	before := d.queued
	for i := range d.hits {
		d.deliverTo(&d.hits[i], b, live)
		d.hits[i].target.hit = 0
		if live && d.queued-before >= d.hub.opt.slice {
			before = d.queued
			d.release()
			d.hub.yieldLock()
		}
	}
	d.release()
	clear(d.hits)
	d.hits = reuse(d.hits, keepPeak)
	for i := range d.variants {
		if v := &d.variants[i]; v.batch != nil { // otherwise variant did not build it
			v.end()
		}
	}
	b.end()
}

// deliverTo queues the batch for the watchers of one target, chunk by chunk rather than watcher by
// watcher, so that watchers of one stream share a run. The group is running: while Hub.mu is
// released, watchers may join the target, but they have next > b.last (W2), and none leaves it.
func (d *deliverer) deliverTo(h *hits, b *batch, live bool) {
	t := h.target
	for i := range d.variants {
		d.variants[i].built = false
	}
	visits := 0
	pause := func() {
		if visits++; live && visits%d.hub.opt.slice == 0 {
			d.release()
			d.hub.yieldLock()
		}
	}
	if t.begin() {
		d.release()
		t.divide(b.last, pause)
	}
	cohorts := t.cohorts() // a watcher that joins drops the cohorts of t
	for k, more := 0, 1; k < more; k++ {
		for _, c := range cohorts {
			pause()
			v := d.variant(b, h, c.flags)
			if c.single = c.single && k > 0 || !d.deliverCohort(c, v, k); c.single {
				for _, w := range c.watchers {
					pause()
					d.deliverOne(w, v, b, k)
				}
			}
			more = max(more, len(v.chunks))
		}
		for i := 0; cohorts == nil && i < len(t.watchers); i++ {
			pause()
			if w := t.watchers[i]; w.next <= b.last {
				v := d.variant(b, h, w.flags)
				d.deliverOne(w, v, b, k)
				more = max(more, len(v.chunks))
			}
		}
	}
}

// variant returns the events of the batch for watchers of a target with these flags.
func (d *deliverer) variant(b *batch, h *hits, f flags) *variant {
	v := &d.variants[f&variantFlags]
	if !v.built {
		v.build(b, h, f, &d.hub.opt)
	}
	return v
}

// deliverOne queues the k-th chunk of the variant for w.
func (d *deliverer) deliverOne(w *watcher, v *variant, b *batch, k int) {
	switch {
	case w.next > b.last || len(v.events) == 0 || w.stalled:
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
	}
}

// deliverCohort queues the k-th chunk of the variant for the watchers of c. It returns false, and
// does nothing, if each watcher needs its own decision.
func (d *deliverer) deliverCohort(c *cohort, v *variant, k int) bool {
	switch {
	case len(v.events) == 0:
		return true
	case v.failed:
		return false
	case k >= len(v.chunks):
		return true
	}
	s, chunk := c.stream, &v.chunks[k]
	d.fill(s)
	if s.mu.closed || !c.dropEnded() {
		return true
	}
	if c.next > v.rev(0) || s.crammed() || c.flags&fragment != 0 && s.splits(chunk) {
		return false
	}
	if _, ok := s.putEvents(c.watchers[0], c.also, chunk); !ok {
		return false // each watcher has to wait for room
	}
	c.sums.events += int64(len(chunk.events))
	c.sums.bytes += chunk.bytes
	c.sums.active = true
	d.count(s, len(c.watchers), chunk)
	return true
}

// deliverRest queues the part of the variant that w has not seen.
func (d *deliverer) deliverRest(w *watcher, v *variant) {
	rest := v.after(w.next, &d.hub.opt)
	for i := range rest {
		if !w.stalled {
			d.push(w, &rest[i])
		}
	}
}

// push queues a chunk for w, or records that w had no room.
func (d *deliverer) push(w *watcher, c *chunk) {
	s := w.stream
	d.fill(s)
	if w.dead || s.mu.closed {
		return
	}
	need, ok := s.putEvents(w, nil, c)
	if !ok {
		w.stalled = true
		d.stalls = append(d.stalls, stall{w, c.first, need})
		return
	}
	w.events += int64(len(c.events))
	w.bytes += c.bytes
	w.quiet = false
	d.count(s, 1, c)
}

// count records that a chunk was queued for some watchers of a stream, whose mu is held.
func (d *deliverer) count(s *Stream, watchers int, c *chunk) {
	bytes := int64(watchers) * c.bytes
	d.queued += watchers
	d.bytes += bytes
	if s == d.only {
		d.onlyBytes += bytes
	}
	if s.mu.waiting {
		s.mu.waiting = false
		d.wake = append(d.wake, s)
	}
}

// fill locks s to fill its queue, unless it is locked already, and releases the previous stream.
func (d *deliverer) fill(s *Stream) {
	if s != d.cur {
		d.release()
		d.cur = s
		s.mu.Lock()
	}
}

// release unlocks the stream that is being filled.
func (d *deliverer) release() {
	if d.cur != nil {
		d.cur.mu.Unlock()
		d.cur = nil
	}
}

// wakeAll wakes the senders of the streams with new responses. No Stream.mu is held.
func (d *deliverer) wakeAll() {
	var to *Ready
	for i, s := range d.wake {
		if s.mu.ready == nil || to != nil && s.mu.ready != to {
			s.signal()
		} else {
			to = s.mu.ready
			d.owners = append(d.owners, s.mu.owner)
		}
		d.wake[i] = nil
	}
	if to != nil {
		to.Add(d.owners...)
		clear(d.owners)
		d.owners = d.owners[:0]
	}
	d.wake, d.queued = d.wake[:0], 0
}

// parkStalled parks the watchers of g that had no room for the batch, and cancels the watchers
// whose events cannot be read. Hub.mu is held.
func (h *Hub) parkStalled(d *deliverer, g *group) {
	live := g == h.mu.live
	for i := range d.stalls {
		if (i+1)%h.opt.slice == 0 {
			h.yieldLock()
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

// cancel ends a watcher because the hub decided so; its id stays known until the client cancels it.
// mu is held; the caller owns the group of the watcher, if it has one.
func (h *Hub) cancel(w *watcher, r Response) {
	if w.dead {
		return
	}
	s := w.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	g := w.group
	h.endWatcher(w)
	if w.place == inGroup {
		g.remove(w)
		g.dead--
	}
	r.WatchID, r.Canceled = w.id, true
	s.putAnswer(r)
}
