package watch

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"vigil/internal/kv"
)

// handOver is the number of watchers that a worker moves between groups at a time.
const handOver = 1024

// addPending hands a watcher that is behind and in no list to the workers. mu is held.
func (h *Hub) addPending(w *watcher) {
	s := w.stream
	s.pending.add(w, inPending)
	if !s.queued {
		s.queued = true
		h.mu.pending = append(h.mu.pending, s)
	}
	h.work.Signal()
}

// catchUp is a worker: it takes the scans in turn, and reads one batch for each.
func (h *Hub) catchUp() {
	d := deliverer{hub: h}
	p := newPacer(0, 0)
	for {
		g := h.nextScan(p)
		if g == nil || !p.pause(nil, h.done) {
			return
		}
		h.runTurn(&d, g)
		// There may be much more to read, and goroutines that serve clients take precedence.
		runtime.Gosched()
	}
}

const (
	// mostRest bounds the pause of the workers after a batch.
	mostRest = 50 * time.Millisecond
	// mostLate bounds the lost time that workers make up for after a pause that was too long.
	mostLate = 25 * time.Millisecond
	// quietAfter is how long after the last write workers no longer pause.
	quietAfter = 100 * time.Millisecond
)

// isNear reports whether a scan is so near the newest revision that its watchers only lag for a
// moment. mu is held.
func (h *Hub) isNear(g *group) bool { return h.ring.published.Load()-g.pos <= h.opt.CatchUpNear }

// limitRate sets when workers continue after they have read and delivered the given bytes: at once
// if there are no writes, otherwise at the rates of the options. mu is held.
func (h *Hub) limitRate(read, delivered int64) {
	now := time.Now()
	if published := h.ring.published.Load(); published != h.mu.seen {
		h.mu.seen, h.mu.seenAt = published, now
	}
	if now.Sub(h.mu.seenAt) > quietAfter {
		return
	}
	seconds := max(float64(read)/float64(h.opt.CatchUpReadRate),
		float64(delivered)/float64(h.opt.CatchUpSendRate))
	until := h.mu.restUntil
	if late := now.Add(-mostLate); until.Before(late) {
		until = late
	}
	until = until.Add(time.Duration(seconds * float64(time.Second)))
	if most := now.Add(mostRest); until.After(most) {
		until = most
	}
	h.mu.restUntil = until
}

// nextScan waits for the scan whose turn is next and takes it. It returns nil when the hub is
// closed. It sets in p the time to read.
func (h *Hub) nextScan(p *pacer) *group {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		if h.mu.closed {
			return nil
		}
		h.placePending()
		for len(h.mu.scans) > 0 {
			g := h.takeScan()
			if len(g.members) == 0 {
				continue
			}
			g = h.mergeScans(g)
			g.running = true
			if p.until = h.mu.restUntil; h.isNear(g) {
				p.until = time.Time{}
			}
			h.mu.reading = append(h.mu.reading, g)
			if len(h.mu.scans) > 0 || len(h.mu.pending) > 0 {
				h.work.Signal()
			}
			return g
		}
		if len(h.mu.pending) == 0 {
			h.work.Wait()
		}
	}
}

// placePending adds each pending watcher to a scan that is a short way before it, or to a new scan.
// mu is held.
func (h *Hub) placePending() {
	var some []*watcher
	for len(some) < handOver && len(h.mu.pending) > 0 {
		s := h.mu.pending[0]
		h.mu.pending[0] = nil
		h.mu.pending = h.mu.pending[1:]
		for range min(len(s.pending), placeAtOnce) {
			w := s.pending[len(s.pending)-1]
			s.pending.remove(w)
			some = append(some, w)
		}
		if s.queued = len(s.pending) > 0; s.queued {
			h.mu.pending = append(h.mu.pending, s)
		}
		s.pending.trim()
	}
	slices.SortFunc(some, func(a, b *watcher) int { return cmp.Compare(a.next, b.next) })
	var g *group
	for _, w := range some {
		if only := h.ownScans(w.stream); g == nil || g.only != only ||
			w.next-g.pos > h.opt.CatchUpNear {
			g = h.scanFor(w.next, only)
		}
		g.add(w)
	}
}

// scanFor returns the waiting scan that is nearest before next, or a new one if none is near. When
// there are many scans, it returns the nearest one at any distance. only is the stream that the
// scan serves, nil if it serves many. mu is held.
func (h *Hub) scanFor(next int64, only *Stream) *group {
	var best *group
	for _, g := range h.mu.scans {
		if g.only == only && g.pos <= next && (best == nil || g.pos > best.pos) {
			best = g
		}
	}
	if best != nil && (next-best.pos <= h.opt.CatchUpNear || h.crowded(only)) {
		return best
	}
	g := newGroup()
	g.pos = next
	h.addScan(g, only)
	return g
}

// mergeScans joins g, whose turn is next, with the waiting scans whose position g will reach soon.
// It returns the group that holds all their watchers. mu is held.
func (h *Hub) mergeScans(g *group) *group {
	near := h.opt.CatchUpNear
	for i := 0; i < len(h.mu.scans); {
		o := h.mu.scans[i]
		if o.only != g.only || o.pos < g.pos || o.pos-g.pos > near && !h.crowded(g.only) ||
			min(len(o.members), len(g.members)) > handOver {
			i++
			continue
		}
		h.mu.scans = slices.Delete(h.mu.scans, i, i+1)
		into, from := g, o
		if len(o.members) > len(g.members) {
			into, from = o, g
		}
		pos := g.pos
		o.position()
		for len(from.members) > 0 {
			w := from.members[len(from.members)-1]
			from.remove(w)
			into.add(w)
		}
		into.pos, into.left = pos, true
		g = into
	}
	return g
}

// runTurn reads one batch for the scan, queues it, and makes watchers live when they have seen
// everything.
func (h *Hub) runTurn(d *deliverer, g *group) {
	pos := g.pos
	var failure error
	var read int64
	d.bytes, d.only, d.onlyBytes = 0, g.only, 0
	newest := h.revision()
	if to := h.ring.deliverable(); pos <= to {
		events, next, err := h.src.EventsIn(&d.events, pos, to, h.batchBytes(len(g.members)))
		switch {
		case err != nil:
			failure = err
		case next <= pos || next > to+1:
			failure = fmt.Errorf("watch: the source read revisions %d..%d up to %d", pos, to, next)
		default:
			pos = next
			read = d.deliverRead(g, next-1, newest, events)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.parkStalled(d, g)
	if failure == nil {
		g.pos = pos
	} else {
		h.failScan(g, failure)
	}
	h.dropCanceled(g)
	h.skipUnwanted(g)
	for range handOver {
		if g.pos <= h.mu.claimed || len(g.members) == 0 {
			break
		}
		w := g.members[len(g.members)-1]
		g.remove(w)
		if w.dead {
			g.dead--
			continue
		}
		w.next = max(w.next, g.pos)
		h.mu.live.add(w) // W2
		w.stream.behind--
		h.leaveLive(w)
	}
	g.running = false
	h.mu.reading = slices.DeleteFunc(h.mu.reading, func(o *group) bool { return o == g })
	h.chargeTurn(g, read, d.onlyBytes)
	if len(g.members) > 0 {
		h.mu.scans = append(h.mu.scans, g)
	}
	if !h.isNear(g) {
		h.limitRate(read, d.bytes)
	}
}

// batchBytes returns how many bytes to read at once for a number of watchers. A worker would have
// to read a batch again if no stream had room for it, and a batch for many watchers is much to
// send.
func (h *Hub) batchBytes(watchers int) int {
	const least = 64 << 10
	return min(h.opt.CatchUpBytes,
		max(least, min(int(h.limit()), 4*h.opt.CatchUpBytes/max(watchers, 1))))
}

// deliverRead queues a batch for the watchers of the scan and returns its size. newest is the
// revision of the store. No lock is held.
func (d *deliverer) deliverRead(g *group, last, newest int64, events []kv.Event) (bytes int64) {
	b := &d.batch
	b.begin(last, events)
	b.head = newest
	for i := range b.events {
		d.find(g, b, i)
		bytes += int64(len(b.events[i].KV))
	}
	d.hub.counts.catchUpBytes.Add(bytes)
	d.hub.counts.catchUpEvents.Add(int64(len(b.events)))
	if len(d.hits) == 0 {
		b.end()
		return bytes
	}
	d.encode(b)
	d.deliver(b, false)
	d.wakeAll()
	return bytes
}

// dropCanceled removes the canceled watchers from a scan if there are many. mu is held, and
// released from time to time; g is running.
func (h *Hub) dropCanceled(g *group) {
	if g.dead*2 < len(g.members) {
		return
	}
	for i, looks := 0, 1; i < len(g.members) && g.dead > 0; looks++ {
		if looks%h.opt.slice == 0 {
			h.yieldLock()
		}
		if w := g.members[i]; w.dead {
			g.remove(w) // puts another in its slot
			g.dead--
		} else {
			i++
		}
	}
}

// skipUnwanted raises the position of a scan to the first revision that a member wants, if other
// members have gone: the hub may have merged scans at very different positions. It checks members
// until it finds one that wants the current position, and checks many only once in some turns. mu
// is held, and released from time to time; g is running.
func (h *Hub) skipUnwanted(g *group) {
	g.unchecked++
	if !g.left || g.unchecked < len(g.members)/handOver {
		return
	}
	g.left, g.unchecked = false, 0
	first := int64(math.MaxInt64)
	for i, w := range g.members {
		if (i+1)%h.opt.slice == 0 {
			h.yieldLock()
		}
		if w.dead {
			continue
		}
		if first = min(first, w.next); first <= g.pos {
			return
		}
	}
	if first < math.MaxInt64 {
		g.pos = first
	}
}

// failScan cancels the watchers of a scan after an error: after a compaction the watchers that need
// older revisions (W9), after any other error all. mu is held.
func (h *Hub) failScan(g *group, err error) {
	if !errors.Is(err, kv.ErrCompacted) {
		h.opt.Logger.Error("watch: cannot read history, watchers are canceled", "revision", g.pos,
			"watchers", len(g.members), "error", err)
		h.cancelAll(g, func(*watcher) bool { return true },
			Response{Revision: h.revision(), Reason: ReasonHistory})
		return
	}
	compacted := h.src.CompactRevision()
	var ce *kv.CompactedError
	if errors.As(err, &ce) {
		compacted = max(compacted, ce.CompactRevision)
	}
	compacted = max(compacted, g.pos+1) // the source says so
	n := h.cancelAll(g, func(w *watcher) bool { return w.next < compacted },
		Response{CompactRevision: compacted})
	h.counts.compacted.Add(int64(n))
	g.pos = compacted
}

// cancelAll cancels the members for which which returns true, and returns their number. mu is held,
// and released from time to time; g is running.
func (h *Hub) cancelAll(g *group, which func(*watcher) bool, r Response) int {
	n := 0
	for i, looks := 0, 1; i < len(g.members); looks++ {
		if looks%h.opt.slice == 0 {
			h.yieldLock()
		}
		w := g.members[i]
		if w.dead || !which(w) {
			i++
			continue
		}
		h.cancel(w, r) // puts another in its slot
		n++
	}
	return n
}
