// Package debugpage defines the JSON of the pages /debug/watch and /debug/archive. Members write
// these types, and vigilctl reads them.
package debugpage

import "time"

// Watchers is the page /debug/watch: the watchers of one member.
type Watchers struct {
	Revision    int64     `json:"revision"`
	Distributed int64     `json:"distributed_revision"`
	Streams     int       `json:"streams"`
	Watchers    []Watcher `json:"watchers"`
}

// Watcher is one watcher. Key and End are quoted if they are not empty, because keys are bytes.
type Watcher struct {
	Stream         uint64    `json:"stream"`
	Watcher        int64     `json:"watcher"`
	Client         string    `json:"client"`
	User           string    `json:"user,omitempty"`
	Key            string    `json:"key"`
	End            string    `json:"range_end,omitempty"`
	Options        []string  `json:"options,omitempty"`
	State          string    `json:"state"`
	StartRevision  int64     `json:"start_revision"`
	NextRevision   int64     `json:"next_revision"`
	Lag            int64     `json:"lag_revisions"`
	QueuedBytes    int64     `json:"queued_bytes"`
	DeliveredCount int64     `json:"delivered_events"`
	DeliveredBytes int64     `json:"delivered_bytes"`
	Created        time.Time `json:"created"`
}
