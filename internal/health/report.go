package health

import (
	"slices"
)

// Report is what a member says of itself besides its status and metrics. Who receives one calls
// Limit: the member may be of another version, or lie.
type Report struct {
	// Member is the ID of the member, 0 if it does not tell.
	Member uint64 `json:"-"`
	// Settings are values of flags, by name without dashes; nil if they are not known. Of etcd they
	// are those of the command line, so that what a file or the environment sets is missing.
	Settings map[string]string `json:"settings"`
	// Waits is set while the member does not serve clients, Failures are why it cannot send
	// messages to others. Not with etcd.
	Waits    *Wait         `json:"waits,omitempty"`
	Failures []PeerFailure `json:"failures,omitempty"`
	// Recent is what the member counted lately; etcd and older versions do not tell.
	Recent []Window `json:"recent"`
	// Certificates are those that the member uses; etcd and older versions do not tell.
	Certificates []Certificate `json:"certificates,omitempty"`
}

// Bounds of a report. Members stay far below them.
const (
	maxFailures     = 64
	maxCertificates = 32
	maxWindows      = 8
	maxBounds       = 64  // of a histogram
	maxSettingText  = 256 // bytes
	maxSubjectText  = 256
	maxWordText     = 64
	maxSeconds      = 1 << 32
)

// Limit removes what no member has counted, and cuts off what exceeds the bounds.
func (s *Report) Limit() {
	for name, value := range s.Settings {
		s.Settings[name] = clip(value, maxSettingText)
	}
	if w := s.Waits; w != nil {
		w.For, w.What, w.Name = clip(w.For, maxWordText), clip(w.What, maxWaitText),
			clip(w.Name, maxWaitName)
		w.Seconds = max(0, min(w.Seconds, maxSeconds))
	}
	seen := map[string]bool{}
	s.Failures = slices.DeleteFunc(s.Failures, func(f PeerFailure) bool {
		if seen[f.Member] || len(seen) == maxFailures {
			return true
		}
		seen[f.Member] = true
		return false
	})
	for i := range s.Failures {
		f := &s.Failures[i]
		f.Reason, f.Text = clip(f.Reason, maxWordText), clip(f.Text, maxFailureText)
		f.Cluster, f.Answered = clip(f.Cluster, maxWordText), clip(f.Answered, maxWordText)
	}
	s.Certificates = slices.DeleteFunc(s.Certificates,
		func(c Certificate) bool { return c.End.IsZero() })
	s.Certificates = s.Certificates[:min(len(s.Certificates), maxCertificates)]
	for i := range s.Certificates {
		c := &s.Certificates[i]
		c.Listener, c.Use, c.Subject = clip(c.Listener, maxWordText), clip(c.Use, maxWordText),
			clip(c.Subject, maxSubjectText)
	}
	s.Recent = s.Recent[:min(len(s.Recent), maxWindows)]
	s.Recent = slices.DeleteFunc(s.Recent,
		func(w Window) bool { return !(w.Seconds > 0 && w.Seconds <= maxSeconds) })
	for i := range s.Recent {
		s.Recent[i].limit()
	}
}

// limit keeps the metrics of windows that can have been counted.
func (w *Window) limit() {
	histograms, counters := map[string]Histogram{}, map[string]float64{}
	for _, name := range windowHistograms {
		if h := w.Histograms[name]; h.valid() && len(h.Bounds) <= maxBounds {
			histograms[name] = h
		}
	}
	for _, name := range windowCounters {
		counters[name] = max(0, w.Counters[name])
	}
	w.Histograms, w.Counters = histograms, counters
}
