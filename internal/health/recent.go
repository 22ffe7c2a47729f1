package health

import (
	"sync"
	"time"

	"vigil/internal/amount"
)

// Window is what a member counted in a time that ends with the answer.
type Window struct {
	Seconds    float64              `json:"seconds"`
	Histograms map[string]Histogram `json:"histograms"`
	Counters   map[string]float64   `json:"counters"`

	// Watched is set if the member keeps no windows, and whoever asks has looked twice.
	Watched bool `json:"-"`
	// SinceStart is set if the window is the whole life of the process.
	SinceStart bool `json:"-"`
}

// duration returns how long the window is.
func (w *Window) duration() time.Duration { return time.Duration(w.Seconds * float64(time.Second)) }

// when returns the time of the window as a phrase.
func (w *Window) when() string {
	switch {
	case w.Watched:
		return "in the " + amount.Seconds(w.Seconds) + " between two looks"
	case w.SinceStart:
		return "since it started " + amount.Age(w.duration()) + " ago"
	}
	return "in the last " + amount.Age(w.duration())
}

// The metrics of windows: the counts that checks judge.
var (
	windowHistograms = []string{WALFsync, StoreCommit, Apply, PeerRoundTrip}
	windowCounters   = []string{SlowApplies, AppliedProposals, AppliedRequests, LeaderChanges}
)

// Between returns what a member counted from older metrics to newer ones. Without older metrics it
// is all that they have.
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
		} // otherwise the member was restarted
		w.Counters[name] = v
	}
	return w
}

// History keeps what a member had counted at some times of the last hour. Its methods may be called
// concurrently.
type History struct {
	start time.Time
	mu    struct {
		sync.Mutex
		past []record // the oldest first, at most maxRecords
	}
}

// record is the metrics of windows at one time.
type record struct {
	at      time.Time
	metrics Window // since the start of the process
}

// RecordInterval is how often a member records what it has counted.
const RecordInterval = time.Minute

// windows are the times that are judged, the shortest first: the shortest one with enough counts
// shows what is so now, and a member without load needs a longer one.
var windows = []time.Duration{time.Minute, 10 * time.Minute, time.Hour}

// maxRecords is how many records reach back as far as the longest window.
const maxRecords = int(time.Hour/RecordInterval) + 1

// NewHistory returns the history of a member whose counts begin at a time.
func NewHistory(start time.Time) *History { return &History{start: start} }

// Record keeps what the member has counted until now.
func (h *History) Record(now time.Time, m Metrics) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.mu.past) == maxRecords {
		h.mu.past = append(h.mu.past[:0], h.mu.past[1:]...)
	}
	h.mu.past = append(h.mu.past, record{now, Between(nil, m, now.Sub(h.start))})
}

// Recent returns what the member has counted in each window, the shortest first, as far as it has
// run for so long.
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

// since returns the part of a window after an older one that began at the same time.
func (w Window) since(old *Window, d time.Duration) Window {
	out := Window{Seconds: d.Seconds(), Histograms: map[string]Histogram{},
		Counters: map[string]float64{}}
	for name, h := range w.Histograms {
		// otherwise a part of it is gone, as with a member that was removed
		if d, ok := h.minus(old.Histograms[name]); ok {
			out.Histograms[name] = d
		}
	}
	for name, v := range w.Counters {
		out.Counters[name] = max(0, v-old.Counters[name])
	}
	return out
}

// recent returns the windows by which a member is judged, the shortest first. A member that keeps
// none, and has run for less than the longest one, is judged by its whole life besides what was
// watched.
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

// uptime returns for how long the process of a member has run, 0 if that is not known.
func (e *Examination) uptime(x *Reading) time.Duration {
	started := x.Value(StartTime)
	if started <= 0 {
		return 0
	}
	return max(0, e.Now.Sub(time.Unix(int64(started), 0)))
}
