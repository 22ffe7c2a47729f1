package health

import (
	"slices"
)

// Report is a member's description of itself, in addition to its status and metrics. The receiver
// calls Limit: the member may have another version, or lie.
type Report struct {
	// Member is the ID of the member, 0 if unknown.
	Member uint64 `json:"-"`
	// Settings are values of flags, by name without dashes; nil if unknown. For etcd they contain
	// only the command line, not the configuration file and the environment.
	Settings map[string]string `json:"settings"`
	// Waits is set while the member does not serve clients. Failures are the reasons why it cannot
	// send messages to others. etcd reports neither.
	Waits    *Wait         `json:"waits,omitempty"`
	Failures []PeerFailure `json:"failures,omitempty"`
	// Recent has the member's recent counts; etcd and older versions do not report them.
	Recent []Window `json:"recent"`
	// Certificates are the certificates in use; etcd and older versions do not report them.
	Certificates []Certificate `json:"certificates,omitempty"`
}

// Limits of a report. Members stay far below them.
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

// Limit removes impossible counts, and cuts off whatever exceeds the limits.
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

// limit keeps the consistent metrics of windows.
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
