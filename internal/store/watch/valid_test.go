package watch

import (
	"fmt"
	"slices"
	"testing"
)

// checkValid checks the invariants of the hub's state. The hub must be idle.
func checkValid(t testing.TB, h *Hub) {
	t.Helper()
	if err := h.valid(); err != nil {
		t.Fatal(err)
	}
}

func (h *Hub) valid() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	published := h.ring.published.Load()
	if len(h.mu.streams) > 0 && (h.mu.matched != h.mu.claimed || h.mu.claimed != published) {
		return fmt.Errorf("matched %d, claimed %d, published %d", h.mu.matched, h.mu.claimed, published)
	}
	if n := len(h.mu.pending) + len(h.mu.scans) + len(h.mu.reading); n != 0 {
		return fmt.Errorf("%d streams with watchers pending, %d scans waiting, %d running", len(h.mu.pending), len(h.mu.scans), len(h.mu.reading))
	}
	if len(h.mu.requests) != 0 {
		return fmt.Errorf("%d streams wait for progress", len(h.mu.requests))
	}
	var queued int64
	watchers, live := 0, 0
	for _, s := range h.mu.streams {
		s.mu.Lock()
		err := s.valid()
		queued += s.mu.queued
		s.mu.Unlock()
		if err != nil {
			return fmt.Errorf("stream %d: %w", s.id, err)
		}
		watchers += s.active
		live += s.active - s.behind
	}
	if watchers != h.mu.watchers {
		return fmt.Errorf("%d watchers counted, the streams have %d", h.mu.watchers, watchers)
	}
	if live != len(h.mu.live.members) {
		return fmt.Errorf("%d watchers in the live group, the streams have %d", len(h.mu.live.members), live)
	}
	if got := h.queued.Load(); got != queued {
		return fmt.Errorf("%d bytes counted, the streams hold %d", got, queued)
	}
	if n := len(h.mu.gone) + h.mu.live.dead; n != 0 || h.mu.live.running {
		return fmt.Errorf("the live group is being delivered to, or has %d canceled watchers", n)
	}
	return h.mu.live.valid()
}

func (s *Stream) valid() error {
	active, behind, notifies, members := 0, 0, 0, 0
	size := int64(0)
	for w := range s.watchers.all() {
		id := w.id
		size += w.size()
		if s.watchers.get(id) != w || w.stream != s {
			return fmt.Errorf("watcher %d is in the wrong place", id)
		}
		if w.dead {
			if w.place != nowhere {
				return fmt.Errorf("canceled watcher %d is in a list", id)
			}
			continue
		}
		active++
		if w.start > s.hub.mu.matched && !slices.Contains(s.future, w) {
			return fmt.Errorf("watcher %d starts in the future, at %d", id, w.start)
		}
		if w.flags&notify != 0 {
			notifies++
		}
		if w.member {
			members++
		}
		if s.queued || len(s.pending) > 0 {
			return fmt.Errorf("%d watchers are pending", len(s.pending))
		}
		if w.stalled {
			return fmt.Errorf("watcher %d is stalled outside a delivery", id)
		}
		switch {
		case w.place == inGroup && w.group == s.hub.mu.live:
		case w.place == inParked && s.parked[w.slot] == w && !w.member, w.place == inRetrying && s.retrying[w.slot] == w && w.member:
			behind++
		default:
			return fmt.Errorf("watcher %d is in place %d", id, w.place)
		}
	}
	if size != s.held {
		return fmt.Errorf("watchers of %d bytes, counted %d", size, s.held)
	}
	if active != s.active || behind != s.behind || notifies != int(s.notifies) || members != s.mu.members || behind != len(s.parked)+len(s.retrying) {
		return fmt.Errorf("has %d active, %d behind, %d with progress, %d members of the round, %d parked; counted %d, %d, %d, %d",
			active, behind, notifies, members, len(s.parked)+len(s.retrying), s.active, s.behind, s.notifies, s.mu.members)
	}
	if behind > 0 && s.mu.queued == 0 || len(s.parked) > 0 != (s.mu.resumeAt >= 0) || len(s.retrying) > 0 != s.mu.retry || members != len(s.retrying) {
		return fmt.Errorf("W7: %d watchers parked, %d bytes queued, resume at %d; %d members, %d of them parked", behind, s.mu.queued, s.mu.resumeAt, members, len(s.retrying))
	}
	held, answers := s.mu.inflight, 0
	for _, r := range s.mu.runs[s.mu.runHead:] {
		held += r.charge + idSize*int64(r.len())
		if r.answer != nil {
			answers++
		}
	}
	if held != s.mu.queued || answers != s.mu.answers {
		return fmt.Errorf("queue holds %d bytes, %d answers; counted %d, %d", held, answers, s.mu.queued, s.mu.answers)
	}
	return nil
}

func (t *target) validCohorts() error {
	if t.division == nil {
		return nil
	}
	seen := map[*watcher]bool{}
	for _, c := range t.cohorts() {
		if len(c.also) != len(c.watchers)-1 {
			return fmt.Errorf("a cohort of %d watchers has %d further ids", len(c.watchers), len(c.also))
		}
		for i, w := range c.watchers {
			switch {
			case seen[w] || w.target != t || w.stream != c.stream || w.flags&cohortFlags != c.flags || w.sums != c.sums || w.next > c.next:
				return fmt.Errorf("watcher %d of stream %d is in the wrong cohort", w.id, w.stream.id)
			case i > 0 && c.also[i-1] != w.id:
				return fmt.Errorf("watcher %d of stream %d is queued as %d", w.id, w.stream.id, c.also[i-1])
			}
			seen[w] = true
		}
	}
	if len(seen) != len(t.watchers) {
		return fmt.Errorf("the cohorts of a target have %d watchers of %d", len(seen), len(t.watchers))
	}
	return nil
}

func (g *group) valid() error {
	if err := g.ranges.Valid(); err != nil {
		return err
	}
	targets := map[*target]int{}
	for i, w := range g.members {
		if int(w.slot) != i || w.group != g || w.place != inGroup || w.target == nil || w.target.watchers[w.inTarget] != w || g.find(w) != w.target {
			return fmt.Errorf("watcher %d of stream %d is not where it says", w.id, w.stream.id)
		}
		targets[w.target]++
	}
	for t, n := range targets {
		if len(t.watchers) != n || t.hit != 0 {
			return fmt.Errorf("a target has %d watchers of %d, and is hit %d of the batch", len(t.watchers), n, t.hit)
		}
		if err := t.validCohorts(); err != nil {
			return err
		}
	}
	if len(targets) != len(g.exact)+g.ranges.Len() {
		return fmt.Errorf("%d targets have watchers, %d exist", len(targets), len(g.exact)+g.ranges.Len())
	}
	return nil
}
