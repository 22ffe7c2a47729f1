package watch

import (
	"slices"
	"time"
)

// Catch-up is shared between streams first, then between the watchers of a stream. A stream with many watchers behind
// has scans of its own, and they count together; all others share scans, so that a reconnect storm costs few passes
// over history. Whose turns have cost least has the next one.

const (
	// fewBehind is the number of watchers behind up to which a stream shares scans with others.
	fewBehind = 64
	// placeAtOnce is how many watchers of a stream find a scan before it is another stream's turn.
	placeAtOnce = 64
	// turnCost is what a turn costs besides what is read and delivered, in nanoseconds.
	turnCost = 100_000
)

// turns is what was spent for one scan, or for all scans of one stream, in nanoseconds at the rates of the options.
type turns struct{ spent int64 }

// alone returns s if it has scans of its own, otherwise nil. mu is held.
func (h *Hub) alone(s *Stream) *Stream {
	if s.behind <= fewBehind {
		return nil
	}
	if own, others := h.scansOf(s); own == 0 && others >= 4*h.opt.CatchUpScans {
		return nil
	}
	return s
}

// addScan adds a new scan, for a stream alone if only is not nil. It has no advantage over those that have had turns.
// mu is held.
func (h *Hub) addScan(g *group, only *Stream) {
	g.only, g.turns = only, &turns{}
	if only != nil {
		g.turns = &only.turns
	}
	g.turns.spent = max(g.turns.spent, h.mu.spent)
	h.mu.scans = append(h.mu.scans, g)
}

// scansOf returns the number of scans that are for a stream alone, or for many if it is nil, and how many are for
// other streams alone. mu is held.
func (h *Hub) scansOf(only *Stream) (own, others int) {
	for _, list := range [][]*group{h.mu.scans, h.mu.reading} {
		for _, g := range list {
			if g.only == only {
				own++
			} else if g.only != nil {
				others++
			}
		}
	}
	return own, others
}

// crowded reports whether there are so many scans of a kind that watchers join those that are far: CatchUpScans, and
// four times as many for all the streams that have their own. mu is held.
func (h *Hub) crowded(only *Stream) bool {
	own, others := h.scansOf(only)
	return own >= h.opt.CatchUpScans || only != nil && own+others >= 4*h.opt.CatchUpScans
}

// takeScan takes the waiting scan whose turn it is. There is one. mu is held.
func (h *Hub) takeScan() *group {
	best := 0
	for i, g := range h.mu.scans {
		if g.turns.spent < h.mu.scans[best].turns.spent {
			best = i
		}
	}
	g := h.mu.scans[best]
	h.mu.scans = slices.Delete(h.mu.scans, best, best+1)
	h.mu.spent = max(h.mu.spent, g.turns.spent)
	return g
}

// charge counts a turn: what was read, and what was queued for the stream that the scan is for. mu is held.
func (h *Hub) charge(g *group, read, delivered int64) {
	cost := max(float64(read)/float64(h.opt.CatchUpReadRate), float64(delivered)/float64(h.opt.CatchUpSendRate))
	ns := turnCost + int64(cost*float64(time.Second))
	g.turns.spent += ns
	h.mu.spent += ns / int64(1+len(h.mu.scans)) // so that new scans do not go first for ever
}
