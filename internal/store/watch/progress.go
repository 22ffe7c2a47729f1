package watch

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"time"
)

// queueProgress adds a stream to the list that the matcher processes after its batch. mu is held.
func (h *Hub) queueProgress(s *Stream) {
	if !s.queuedAsk {
		s.queuedAsk = true
		h.mu.requests = append(h.mu.requests, s)
	}
}

// forgetProgress removes a closed stream from the list: without other streams the matcher matches
// nothing, and the list would keep the stream. mu is held.
func (h *Hub) forgetProgress(s *Stream) {
	if s.queuedAsk {
		h.mu.requests = slices.DeleteFunc(h.mu.requests, func(o *Stream) bool { return o == s })
		s.queuedAsk = false
	}
}

// answerProgressRequests answers the requests whose revision has been distributed. The matcher is
// between batches. mu is held.
func (h *Hub) answerProgressRequests() {
	rest := h.mu.requests[:0]
	for _, s := range h.mu.requests {
		if s.tickDue {
			s.tickDue = false
			if h.tick(s) && s.tickSlot >= 0 { // leave the rest to runTicks
				s.tickAt = 0
				heap.Fix(&h.mu.ticks, int(s.tickSlot))
				signal(h.tickKick)
			}
		}
		if s.asks > 0 && s.askRev > h.mu.matched {
			rest = append(rest, s)
			continue
		}
		s.queuedAsk = false
		if s.asks > 0 {
			h.answerProgress(s, int(s.asks))
			s.asks = 0
		}
	}
	clear(h.mu.requests[len(rest):])
	h.mu.requests = rest
	if len(rest) == 0 && cap(rest) > keepPeak {
		h.mu.requests = nil
	}
}

// answerProgress queues n notifications for the stream, if all its watchers have caught up (W6).
// The matcher is between batches. mu is held.
func (h *Hub) answerProgress(s *Stream, n int) {
	if s.closed || s.active == 0 || s.behind > 0 {
		return
	}
	rev := h.mu.matched
	if s.startsAfter(rev) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		if !s.mu.closed {
			s.putProgress(InvalidID, rev)
		}
	}
}

// addFuture adds a watcher that starts in the future. It drops ended watchers from the list when
// they are the majority. Hub.mu is held.
func (s *Stream) addFuture(w *watcher) {
	if len(s.future) >= 2*s.active+fewWatchers {
		s.future = slices.DeleteFunc(s.future, func(w *watcher) bool { return w.dead })
	}
	s.future = append(s.future, w)
}

// startsAfter reports whether an active watcher starts after a revision. Before that it drops other
// watchers from the list for good, so that each of them costs one check in all: a client may ask at
// any time. Hub.mu is held.
func (s *Stream) startsAfter(rev int64) bool {
	for n := len(s.future); n > 0; n-- {
		if w := s.future[n-1]; !w.dead && w.start > rev {
			return true
		}
		s.future[n-1] = nil
		s.future = s.future[:n-1]
	}
	s.future = nil
	return false
}

// ticking is an unfinished tick of the progress interval. It visits all watchers twice; next counts
// the visits.
type ticking struct {
	all  []*watcher
	next int
}

// tick notifies the watchers of a stream that had no event since the last tick. It visits a part of
// them: if it returns true, the caller must call it again. The matcher is between batches. mu is
// held.
func (h *Hub) tick(s *Stream) (more bool) {
	if s.closed || s.notifies == 0 {
		s.ticking = nil
		return false
	}
	if s.ticking == nil {
		s.ticking = &ticking{all: slices.AppendSeq(make([]*watcher, 0, s.watchers.len()),
			s.watchers.all())}
	}
	t, rev := s.ticking, h.mu.matched
	s.mu.Lock()
	defer s.mu.Unlock()
	for end := min(t.next+h.opt.slice, 2*len(t.all)); t.next < end; t.next++ {
		if t.next >= len(t.all) {
			// Change the state that several watchers share after visiting all of them.
			if w := t.all[t.next-len(t.all)]; w.sums != nil {
				w.sums.active = false
			}
			continue
		}
		w := t.all[t.next]
		if w.dead || w.flags&notify == 0 {
			continue
		}
		if w.isQuiet() && w.group == h.mu.live && w.start <= rev && w.next <= rev+1 {
			s.putProgress(w.id, rev)
		}
		w.quiet = true
	}
	if t.next < 2*len(t.all) {
		return true
	}
	s.ticking = nil
	return false
}

// startTicks starts the stream's progress interval for one more watcher. mu is held.
func (h *Hub) startTicks(s *Stream) {
	s.notifies++
	if s.tickSlot >= 0 {
		return
	}
	if s.interval == 0 {
		s.interval = h.opt.ProgressInterval + rand.N(h.opt.ProgressInterval/10)
	}
	s.tickAt = time.Since(h.began) + s.interval
	heap.Push(&h.mu.ticks, s)
	if s.tickSlot == 0 {
		signal(h.tickKick)
	}
}

// stopTicks ends the stream's progress interval. mu is held.
func (h *Hub) stopTicks(s *Stream) {
	s.ticking = nil
	if s.tickSlot >= 0 {
		heap.Remove(&h.mu.ticks, int(s.tickSlot))
	}
}

// tickLoop runs the progress intervals of all streams.
func (h *Hub) tickLoop() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(h.runTicks())
		select {
		case <-h.done:
			return
		case <-h.tickKick:
		case <-timer.C:
		}
	}
}

// runTicks runs the ticks that are due and returns the time until the next one.
func (h *Hub) runTicks() time.Duration {
	for {
		h.mu.Lock()
		if len(h.mu.ticks) == 0 {
			h.mu.Unlock()
			return time.Hour
		}
		s := h.mu.ticks[0]
		now := time.Since(h.began)
		if wait := s.tickAt - now; wait > 0 {
			h.mu.Unlock()
			return wait
		}
		if s.notifies == 0 {
			h.stopTicks(s)
		} else {
			more := false
			if h.mu.matched == h.ring.published.Load() {
				more = h.tick(s)
			} else {
				s.tickDue = true
				h.queueProgress(s)
			}
			if !more {
				s.tickAt = now + s.interval
				heap.Fix(&h.mu.ticks, 0)
			}
		}
		h.mu.Unlock()
	}
}

// tickHeap orders streams by the time of their next tick.
type tickHeap []*Stream

func (t tickHeap) Len() int           { return len(t) }
func (t tickHeap) Less(i, j int) bool { return t[i].tickAt < t[j].tickAt }
func (t tickHeap) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].tickSlot, t[j].tickSlot = int32(i), int32(j)
}

// Push implements heap.Interface.
func (t *tickHeap) Push(x any) {
	s := x.(*Stream)
	s.tickSlot = int32(len(*t))
	*t = append(*t, s)
}

// Pop implements heap.Interface.
func (t *tickHeap) Pop() any {
	old := *t
	s := old[len(old)-1]
	old[len(old)-1] = nil
	*t = old[:len(old)-1]
	s.tickSlot = -1
	return s
}
