package health

import (
	"sync"
	"time"

	"vigil/internal/amount"
)

// Window has a member's counts for a period that ends with the answer.
type Window struct {
	Seconds    float64              `json:"seconds"`
	Histograms map[string]Histogram `json:"histograms"`
	Counters   map[string]float64   `json:"counters"`

	// Watched is set if the member keeps no windows and the client has looked twice.
	Watched bool `json:"-"`
	// SinceStart is set if the window covers the whole life of the process.
	SinceStart bool `json:"-"`
}

// duration returns the length of the window.
func (w *Window) duration() time.Duration { return time.Duration(w.Seconds * float64(time.Second)) }

// when describes the period of the window as a phrase.
func (w *Window) when() string {
	switch {
	case w.Watched:
		return "in the " + amount.Seconds(w.Seconds) + " between two looks"
	case w.SinceStart:
		return "since it started " + amount.Age(w.duration()) + " ago"
	}
	return "in the last " + amount.Age(w.duration())
}

// The metrics in windows: the checks judge their counts.
var (
	windowHistograms = []string{WALFsync, StoreCommit, Apply, PeerRoundTrip}
	windowCounters   = []string{SlowApplies, AppliedProposals, AppliedRequests, LeaderChanges}
)

// Between returns a member's counts between older and newer metrics. Without older metrics it
// returns all newer counts.
func Between(old, now Metrics, d time.Duration) Window {
	w := Window{Seconds: d.Seconds(), Histograms: map[string]Histogram{},
		Counters: map[string]float64{}}
	for _, name := range windowHistograms {
		w.Histograms[name] = now.Histogram(name).Since(old.Histogram(name))
	}
	for _, name := range windowCounters {
		before, _ := old.Value(name)
		v, _ := now.Value(name)
		if v >= before {
			v -= before
		} // otherwise the member has restarted
		w.Counters[name] = v
	}
	return w
}

// History keeps a member's counts at several times of the last hour. Its methods may be called
// concurrently.
type History struct {
	start time.Time
	mu    struct {
		sync.Mutex
		past []record // the oldest first, at most maxRecords
	}
}

// record has the metrics of windows at one time.
type record struct {
	at      time.Time
	metrics Window // counts since the start of the process
}

// RecordInterval is the time between two records of a member's counts.
const RecordInterval = time.Minute

// windows are the periods to judge, the shortest first. The shortest one with enough counts
// describes the present; a member without load needs a longer one.
var windows = []time.Duration{time.Minute, 10 * time.Minute, time.Hour}

// maxRecords is how many records the longest window needs.
const maxRecords = int(time.Hour/RecordInterval) + 1

// NewHistory returns the history of a member whose counts start at a time.
func NewHistory(start time.Time) *History { return &History{start: start} }

// Record keeps the member's current counts.
func (h *History) Record(now time.Time, m Metrics) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.mu.past) == maxRecords {
		h.mu.past = append(h.mu.past[:0], h.mu.past[1:]...)
	}
	h.mu.past = append(h.mu.past, record{now, Between(nil, m, now.Sub(h.start))})
}

// Recent returns the member's counts in each window, the shortest first. It includes only windows
// that are not longer than the life of the process.
func (h *History) Recent(now time.Time, m Metrics) (out []Window) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := Between(nil, m, now.Sub(h.start))
	for _, d := range windows {
		w := all
		for i := len(h.mu.past) - 1; i >= 0; i-- {
			if r := &h.mu.past[i]; now.Sub(r.at) >= d {
				w = all.since(&r.metrics, now.Sub(r.at))
				break
			}
		}
		if n := len(out); n == 0 || out[n-1].Seconds < w.Seconds {
			out = append(out, w)
		}
	}
	return out
}

// since returns the part of a window after an older window with the same start.
func (w Window) since(old *Window, d time.Duration) Window {
	out := Window{Seconds: d.Seconds(), Histograms: map[string]Histogram{},
		Counters: map[string]float64{}}
	for name, h := range w.Histograms {
		// otherwise parts of the histogram are gone, for instance because a member was removed
		if d, ok := h.minus(old.Histograms[name]); ok {
			out.Histograms[name] = d
		}
	}
	for name, v := range w.Counters {
		out.Counters[name] = max(0, v-old.Counters[name])
	}
	return out
}

// recent returns the windows to judge a member by, the shortest first. A member without windows
// that has run for less than the longest one is judged by its whole life and the watched period.
func (e *Examination) recent(x *Reading) []Window {
	if len(x.Recent) > 0 && !x.Recent[0].Watched {
		return x.Recent
	}
	out := x.Recent
	if up := e.uptime(x); up > 0 && up <= windows[len(windows)-1] {
		w := Between(nil, x.Metrics, up)
		w.SinceStart = true
		out = append(out[:len(out):len(out)], w)
	}
	return out
}

// uptime returns how long the process of a member has run, 0 if unknown.
func (e *Examination) uptime(x *Reading) time.Duration {
	started := x.Value(StartTime)
	if started <= 0 {
		return 0
	}
	return max(0, e.Now.Sub(time.Unix(int64(started), 0)))
}
