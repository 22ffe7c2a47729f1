package console

import "fmt"

// finding is a problem that the overview shows, and the next step. vigilctl doctor checks more, and takes longer.
type finding struct {
	Severity string `json:"severity"` // critical, warning or note
	Member   string `json:"member,omitempty"`
	What     string `json:"what"`
	Next     string `json:"next"`
}

// Limits from which on a measurement is a finding; those of vigilctl doctor.
const (
	quotaHigh      = .80
	quotaCritical  = .95
	lagHigh        = 5000
	watcherLagHigh = 10_000
	revisionsHigh  = 1_000_000
	pendingHigh    = 100
)

// findings returns what needs an action according to the newest samples.
func findings(o *overview) []finding {
	out := []finding{}
	add := func(severity, member, what, next string) {
		out = append(out, finding{severity, member, what, next})
	}
	voters, alive, leaders := 0, 0, map[string]bool{}
	for i := range o.Members {
		m := &o.Members[i]
		name := m.Name
		if name == "" {
			name = m.ID
		}
		if !m.Learner {
			voters++
		}
		if m.Sample == nil {
			if m.Error != "" {
				add("critical", name, "does not answer: "+m.Error, "check its process and its log, and start it again with its data directory, which loses nothing")
			}
			continue
		}
		if !m.Learner {
			alive++
		}
		leaders[m.Sample.Leader] = true
		if m.Role == "no leader" {
			add("critical", name, "knows no leader", "check whether a majority of the members runs and reaches this member")
		}
		memberFindings(name, m, add)
	}
	if voters > 0 && alive == voters/2+1 && alive < voters {
		add("critical", "", fmt.Sprintf("%d of %d voting members answer: the loss of one more stops all writes", alive, voters), "start the members that do not answer")
	}
	if delete(leaders, "0"); len(leaders) > 1 {
		add("warning", "", "the members do not agree on a leader", "wait for the election to end; if it does not, check the network between the members")
	}
	for _, a := range o.Alarms {
		add("critical", nameOf(o, a.Member), "the alarm "+a.Name+" is raised", alarmAdvice[a.Name])
	}
	return out
}

var alarmAdvice = map[string]string{
	"NOSPACE": "free space: delete keys, compact, or raise --quota-backend-bytes; the alarm ends by itself",
	"CORRUPT": "see docs/operations/corruption.md: the data of the member differ from those of the others",
}

func nameOf(o *overview, id string) string {
	for i := range o.Members {
		if o.Members[i].ID == id && o.Members[i].Name != "" {
			return o.Members[i].Name
		}
	}
	return id
}

// memberFindings adds what the sample of one member shows.
func memberFindings(name string, m *memberView, add func(severity, member, what, next string)) {
	s := m.Sample
	if s.DiskFull {
		add("critical", name, "its disk is full: it rejects puts", "free space on the volume of its data directory; it accepts puts again without a restart")
	}
	if n := s.Values["damage"]; n > 0 {
		add("critical", name, fmt.Sprintf("%.0f damaged records were found on its disk", n), "its log names file and offset; see docs/operations/disks.md")
	}
	if s.Quota > 0 {
		if used := float64(s.InUse) / float64(s.Quota); used >= quotaCritical {
			add("critical", name, fmt.Sprintf("%.0f%% of the quota are used; at 100%% puts are rejected", 100*used), "delete, compact, or raise --quota-backend-bytes")
		} else if used >= quotaHigh {
			add("warning", name, fmt.Sprintf("%.0f%% of the quota are used; at 100%% puts are rejected", 100*used), "delete, compact, or raise --quota-backend-bytes")
		}
	}
	if m.Lag > lagHigh {
		add("warning", name, fmt.Sprintf("lags the leader by %d entries", m.Lag), "check its disk, its processor and the network to the leader")
	}
	if s.Learner {
		add("note", name, "is a learner: it does not vote", "promote it under Members when it has caught up")
	}
	if n := s.Values["watcher_lag"]; n > watcherLagHigh {
		add("warning", name, fmt.Sprintf("a watcher is %.0f revisions behind", n), "find it under Watches, sorted by lag")
	}
	if n := s.Values["stalled_watchers"]; n > 0 {
		add("warning", name, fmt.Sprintf("the clients of %.0f watchers do not read", n), "find them under Watches, sorted by lag")
	}
	if n := s.Values["pending"]; n > pendingHigh {
		add("warning", name, fmt.Sprintf("%.0f writes wait for agreement", n), "check disks and network, or reduce the writes of clients")
	}
	if kept := s.Revision - max(0, s.CompactRevision); kept > revisionsHigh {
		add("warning", name, fmt.Sprintf("%d revisions are kept", kept), "compact under Members, or start the members with --auto-compaction-retention")
	}
}
