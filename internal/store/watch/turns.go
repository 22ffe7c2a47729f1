package watch

import (
	"slices"
	"time"
)

// Catch-up is shared between streams first, then between the watchers of a stream. A stream with
// many watchers behind has separate scans, whose costs add up. All other streams share scans, so
// that a reconnect storm costs few passes over history. The scan whose turns have cost least has
// the next turn.

const (
	// fewBehind is the number of watchers behind up to which a stream shares scans with others.
	fewBehind = 64
	// placeAtOnce is the number of watchers of a stream to add to scans before the next stream's
	// turn.
	placeAtOnce = 64
	// turnCost is the fixed cost of a turn, in nanoseconds.
	turnCost = 100_000
)

// turns holds the cost of one scan, or of all scans of one stream, in nanoseconds at the rates of
// the options.
type turns struct{ spent int64 }

// ownScans returns s if s has separate scans, otherwise nil. mu is held.
func (h *Hub) ownScans(s *Stream) *Stream {
	if s.behind <= fewBehind {
		return nil
	}
	if own, others := h.scansOf(s); own == 0 && others >= 4*h.opt.CatchUpScans {
		return nil
	}
	return s
}

// addScan adds a new scan, only for one stream if only is not nil. Its cost starts at the cost of
// the others, so that it has no advantage over them. mu is held.
func (h *Hub) addScan(g *group, only *Stream) {
	g.only, g.turns = only, &turns{}
	if only != nil {
		g.turns = &only.turns
	}
	g.turns.spent = max(g.turns.spent, h.mu.spent)
	h.mu.scans = append(h.mu.scans, g)
}

// scansOf returns the number of scans that serve only this stream, or many streams if it is nil,
// and the number of scans that serve only one other stream. mu is held.
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

// crowded reports whether there are so many scans of a kind that watchers join distant ones:
// CatchUpScans, and four times as many for all streams with separate scans. mu is held.
func (h *Hub) crowded(only *Stream) bool {
	own, others := h.scansOf(only)
	return own >= h.opt.CatchUpScans || only != nil && own+others >= 4*h.opt.CatchUpScans
}

// takeScan removes and returns the waiting scan whose turn is next. At least one must wait. mu is
// held.
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

// chargeTurn counts the cost of a turn: bytes read, and bytes queued for the stream that the scan
// serves. mu is held.
func (h *Hub) chargeTurn(g *group, read, delivered int64) {
	cost := max(float64(read)/float64(h.opt.CatchUpReadRate),
		float64(delivered)/float64(h.opt.CatchUpSendRate))
	ns := turnCost + int64(cost*float64(time.Second))
	g.turns.spent += ns
	// so that new scans do not always have the next turn
	h.mu.spent += ns / int64(1+len(h.mu.scans))
}
