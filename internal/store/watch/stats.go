package watch

import (
	"cmp"
	"slices"
	"time"
)

// State is the state of a watcher.
type State string

// The states of a watcher.
const (
	// Live: it receives published events.
	Live State = "live"
	// Future: live, and its start revision is not published yet.
	Future State = "future"
	// Behind: it receives events from history.
	Behind State = "behind"
	// Stalled: behind, and its client does not read fast enough.
	Stalled State = "stalled"
)

// Stats describes all watchers and how far they are behind.
type Stats struct {
	Revision int64 // newest published
	Matched  int64 // newest distributed to live watchers
	Streams  []StreamStats
}

// StreamStats describes one stream.
type StreamStats struct {
	ID      uint64
	Client  string
	User    string
	Created time.Time
	// QueuedBytes and QueuedResponses count the responses that are not sent yet; QueuedBytes
	// includes bytes in flight.
	QueuedBytes     int64
	QueuedResponses int
	Watchers        []WatcherStats // by id
}

// WatcherStats describes one watcher. Key and End are as in the API.
type WatcherStats struct {
	ID                               int64
	Key, End                         []byte
	StartRev                         int64
	NoPut, NoDelete                  bool
	PrevKV, ProgressNotify, Fragment bool
	State                            State
	// Next is the first revision that is not queued for the watcher yet, Lag the number of
	// published revisions from Next on.
	Next, Lag int64
	// QueuedBytes is the size of its queued responses. Watchers of one stream share events, so the
	// sum may be more than the stream holds.
	QueuedBytes int64
	// Events and Bytes count what the sender has taken for the watcher since its creation.
	Events, Bytes int64
	Created       time.Time
}

// Options lists the names of the watcher's options that are set.
func (w *WatcherStats) Options() []string {
	var list []string
	for _, o := range []struct {
		name string
		set  bool
	}{
		{"noput", w.NoPut}, {"nodelete", w.NoDelete}, {"prev_kv", w.PrevKV},
		{"progress_notify", w.ProgressNotify}, {"fragment", w.Fragment},
	} {
		if o.set {
			list = append(list, o.name)
		}
	}
	return list
}

// Stats describes every stream and watcher, the streams in the order in which they were opened. It
// takes the hub's lock for one stream at a time, so it shows the streams at slightly different
// moments.
func (h *Hub) Stats() Stats {
	h.mu.Lock()
	st := Stats{Revision: h.ring.published.Load(), Matched: h.distributed()}
	streams := make([]*Stream, 0, len(h.mu.streams))
	for _, s := range h.mu.streams {
		streams = append(streams, s)
	}
	h.mu.Unlock()
	slices.SortFunc(streams, func(a, b *Stream) int { return cmp.Compare(a.id, b.id) })
	for _, s := range streams {
		if stats, ok := s.stats(); ok {
			slices.SortFunc(stats.Watchers,
				func(a, b WatcherStats) int { return cmp.Compare(a.ID, b.ID) })
			st.Streams = append(st.Streams, stats)
		}
	}
	return st
}

// stats describes the stream, its watchers in no order.
func (s *Stream) stats() (StreamStats, bool) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return StreamStats{}, false
	}
	st := StreamStats{
		ID: s.id, Client: s.info.Client, User: s.info.User, Created: time.Unix(0, s.created),
		QueuedBytes: s.mu.queued,
		Watchers:    make([]WatcherStats, 0, s.active),
	}
	type waiting struct{ events, bytes, wire int64 }
	queued := map[int64]waiting{}
	for _, r := range s.mu.runs[s.mu.runHead:] {
		st.QueuedResponses += r.len()
		for i := range r.len() {
			id := r.id
			if i > 0 {
				id = r.also[i-1]
			}
			q := queued[id]
			q.wire += r.bytes
			if n := len(r.events); n > 0 {
				q.events += int64(n)
				q.bytes += r.bytes - headerSize
			}
			queued[id] = q
		}
	}
	published := h.ring.published.Load()
	for w := range s.watchers.all() {
		if w.dead {
			continue
		}
		q := queued[w.id]
		events, bytes := w.counted()
		ws := WatcherStats{
			ID: w.id, StartRev: w.start, Created: time.Unix(0, w.created),
			NoPut: w.flags&noPut != 0, NoDelete: w.flags&noDelete != 0, PrevKV: w.flags&prevKV != 0,
			ProgressNotify: w.flags&notify != 0, Fragment: w.flags&fragment != 0,
			Next: w.next, QueuedBytes: q.wire, Events: events - q.events, Bytes: bytes - q.bytes,
		}
		ws.Key, ws.End = w.asked()
		switch {
		case w.place == inParked || w.place == inRetrying:
			ws.State = Stalled
		case w.group == h.mu.live:
			ws.State = Live
			ws.Next = max(w.next, h.mu.matched+1)
			if w.start > published {
				ws.State = Future
			}
		default:
			ws.State = Behind
			if w.group != nil {
				ws.Next = max(w.next, w.group.pos)
			}
		}
		ws.Lag = max(0, published+1-ws.Next)
		st.Watchers = append(st.Watchers, ws)
	}
	return st, true
}
