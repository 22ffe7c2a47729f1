package archiver

import (
	"time"

	"vigil/internal/debugpage"
)

// Status returns the present state.
func (a *Archiver) Status() debugpage.Archive {
	at, revision := a.o.Source.Position()
	term := a.o.Source.Leading()
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	st := debugpage.Archive{
		Archive: a.o.Address, ClusterID: hexText(a.o.ClusterID), MemberID: hexText(a.o.MemberID),
		Leader: term != 0, ArchivedIndex: a.mu.archived.index,
		ArchivedRevision: a.mu.archived.revision,
		AppliedIndex:     at.Index, Revision: revision, HeldEntries: a.o.Hold.Held(),
		ArchiveCounters: debugpage.ArchiveCounters{Objects: a.counters.objects.Load(),
			Bytes: a.counters.bytes.Load(), Entries: a.counters.entries.Load(),
			EntryBytes: a.counters.contents.Load(), Bases: a.counters.bases.Load(),
			Failures: a.counters.failures.Load(),
			Gaps:     a.counters.gaps.Load(), Hanging: a.guard.hanging()},
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
	// The lag counts from the time at which the first missing entry was applied.
	if at.Index > a.mu.archived.index {
		if m, ok := a.mu.marks.above(a.mu.archived.index + 1); ok {
			st.LagSeconds = max(now.Sub(m.at).Seconds(), 0)
		}
		if a.mu.known {
			st.LagRevisions = max(revision-a.mu.archived.revision, 0)
		}
	}
	if b := a.mu.base; b != nil {
		st.Base = &debugpage.ArchiveBase{Index: b.Index, Revision: b.Revision, Time: b.Time,
			Parts: len(b.Parts)}
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

func (a *Archiver) stateLocked(now time.Time) debugpage.ArchiveState {
	appointed := now.Before(a.mu.until)
	switch {
	case a.mu.refused != nil:
		return debugpage.ArchiveRefused
	case appointed && a.failingLocked() != nil:
		return debugpage.ArchiveFailing
	case appointed && !a.mu.session:
		return debugpage.ArchiveStarting
	case appointed:
		return debugpage.ArchiveSending
	case a.mu.identity == nil && !a.mu.vacant:
		return debugpage.ArchiveUnknown
	}
	return debugpage.ArchiveStandby
}
