package archiver

import "time"

// Status is what a member says about the archive, as JSON.
type Status struct {
	// Archive is the address of the bucket without secrets, ID the archive in it.
	Archive   string `json:"archive"`
	ID        string `json:"archive_id,omitempty"`
	ClusterID string `json:"cluster_id"`
	MemberID  string `json:"member_id"`
	// State is what this member does: see the constants.
	State  State `json:"state"`
	Leader bool  `json:"leader"`
	// Appointee is the member that archives, as far as this member knows.
	Appointee string `json:"appointee,omitempty"`
	// Archived is the index up to which everything is archived, Applied what this member has applied; LagSeconds for how long
	// there has been an entry that is not archived, and LagRevisions how many revisions are not.
	Archived         uint64  `json:"archived_index"`
	ArchivedRevision int64   `json:"archived_revision"`
	Applied          uint64  `json:"applied_index"`
	Revision         int64   `json:"revision"`
	LagSeconds       float64 `json:"lag_seconds"`
	LagRevisions     int64   `json:"lag_revisions"`
	// HeldEntries is how many entries of the raft log are kept for the archive beyond what the member keeps anyway.
	HeldEntries uint64 `json:"held_entries"`
	// Base is the newest base that this member has made or read.
	Base *BaseStatus `json:"base,omitempty"`
	// Gap is the newest gap that this member has found.
	Gap *Gap `json:"gap,omitempty"`
	// FailingSeconds is for how long this member's attempts have failed, Error the reason.
	FailingSeconds float64 `json:"failing_seconds"`
	Error          string  `json:"error,omitempty"`
	Counters
}

// BaseStatus describes a base.
type BaseStatus struct {
	Index    uint64    `json:"index"`
	Revision int64     `json:"revision"`
	Time     time.Time `json:"time"`
	Parts    int       `json:"parts"`
	Bytes    int64     `json:"bytes"`
}

// Counters count since the start of the process.
type Counters struct {
	// Objects and Bytes are those written to the bucket, Entries the entries in log objects, and EntryBytes their size before
	// compression.
	Objects    uint64 `json:"objects"`
	Bytes      uint64 `json:"bytes"`
	Entries    uint64 `json:"entries"`
	EntryBytes uint64 `json:"entry_bytes"`
	// Bases counts bases, Failures failed operations, Gaps gaps.
	Bases    uint64 `json:"bases"`
	Failures uint64 `json:"failures"`
	Gaps     uint64 `json:"gaps"`
	// Hanging is the number of operations that do not return.
	Hanging int `json:"hanging"`
}

// State is what a member does for the archive.
type State string

// The states.
const (
	// Unknown: the member has not reached the bucket yet.
	Unknown State = "unknown"
	// Refused: the bucket is not one that this cluster may write to.
	Refused State = "refused"
	// Standby: another member archives.
	Standby State = "standby"
	// Starting: this member is appointed, and finds out what the bucket has.
	Starting State = "starting"
	// Archiving: this member archives.
	Archiving State = "archiving"
	// Failing: this member is appointed, and its last attempt failed.
	Failing State = "failing"
)

// Status returns the present state.
func (a *Archiver) Status() Status {
	at, revision := a.o.Source.Position()
	term := a.o.Source.Leading()
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	st := Status{
		Archive: a.o.Address, ClusterID: hexText(a.o.ClusterID), MemberID: hexText(a.o.MemberID),
		Leader: term != 0, Archived: a.mu.archived.index, ArchivedRevision: a.mu.archived.revision,
		Applied: at.Index, Revision: revision, HeldEntries: a.o.Hold.Held(),
		Counters: Counters{Objects: a.counters.objects.Load(), Bytes: a.counters.bytes.Load(), Entries: a.counters.entries.Load(),
			EntryBytes: a.counters.contents.Load(), Bases: a.counters.bases.Load(), Failures: a.counters.failures.Load(),
			Gaps: a.counters.gaps.Load(), Hanging: a.guard.hanging()},
	}
	if a.mu.identity != nil {
		st.ID = a.mu.identity.Archive.String()
	}
	if a.mu.order.appointee != 0 {
		st.Appointee = hexText(a.mu.order.appointee)
	}
	if f := a.failingLocked(); f != nil {
		st.FailingSeconds, st.Error = now.Sub(f.since).Seconds(), f.text
	}
	if a.mu.refused != nil {
		st.Error = oneLine(a.mu.refused.Error())
	}
	st.State = a.stateLocked(now)
	// Lag is counted from when the first entry was applied that is missing.
	if at.Index > a.mu.archived.index {
		if m, ok := a.mu.marks.above(a.mu.archived.index + 1); ok {
			st.LagSeconds = max(now.Sub(m.at).Seconds(), 0)
		}
		if a.mu.known {
			st.LagRevisions = max(revision-a.mu.archived.revision, 0)
		}
	}
	if b := a.mu.base; b != nil {
		st.Base = &BaseStatus{Index: b.Index, Revision: b.Revision, Time: b.Time, Parts: len(b.Parts)}
		for _, p := range b.Parts {
			st.Base.Bytes += p.Size
		}
	}
	if a.mu.gap.Last > 0 {
		g := a.mu.gap
		st.Gap = &g
	}
	return st
}

func (a *Archiver) stateLocked(now time.Time) State {
	appointed := now.Before(a.mu.until)
	switch {
	case a.mu.refused != nil:
		return Refused
	case appointed && a.failingLocked() != nil:
		return Failing
	case appointed && !a.mu.session:
		return Starting
	case appointed:
		return Archiving
	case a.mu.identity == nil && !a.mu.vacant:
		return Unknown
	}
	return Standby
}
