package metrics

import (
	"vigil/internal/debugpage"
	"vigil/internal/member/archiver"
)

// newArchiveCollector exports the state of the continuous archive.
func newArchiveCollector(a *archiver.Archiver) *table[debugpage.Archive] {
	type stats = debugpage.Archive
	return &table[stats]{source: a.Status, readings: []reading[stats]{
		gauge("vigil_archive_lag_seconds",
			"For how long there has been an applied entry that is not archived, as far as this "+
				"member knows; exact at the leader and the member that archives.",
			func(s stats) float64 { return s.LagSeconds }),
		gauge("vigil_archive_lag_revisions",
			"Revisions that are not archived, as far as this member knows.",
			func(s stats) float64 { return float64(s.LagRevisions) }),
		gauge("vigil_archive_archived_index",
			"Index of the raft log up to which the archive is complete, as far as this "+
				"member knows.",
			func(s stats) float64 { return float64(s.ArchivedIndex) }),
		gauge("vigil_archive_active", "Whether this member archives.",
			func(s stats) float64 {
				return boolValue(s.State == debugpage.ArchiveStarting ||
					s.State == debugpage.ArchiveSending || s.State == debugpage.ArchiveFailing)
			}),
		gauge("vigil_archive_refused",
			"Whether this member has refused the bucket: it belongs to another cluster or "+
				"another history, is missing, or has another encryption.",
			func(s stats) float64 { return boolValue(s.State == debugpage.ArchiveRefused) }),
		gauge("vigil_archive_failing_seconds",
			"For how long all operations of this member on the bucket have failed, 0 if the last "+
				"one succeeded.",
			func(s stats) float64 { return s.FailingSeconds }),
		gauge("vigil_archive_held_entries",
			"Entries of the raft log that are kept for the archive beyond what the member keeps "+
				"anyway.",
			func(s stats) float64 { return float64(s.HeldEntries) }),
		gauge("vigil_archive_hanging_operations", "Operations on the bucket that do not return.",
			func(s stats) float64 { return float64(s.Hanging) }),
		gauge("vigil_archive_base_timestamp_seconds",
			"When the newest base that this member has made or read was cut, in seconds since "+
				"1970, 0 for none.",
			func(s stats) float64 {
				if s.Base == nil {
					return 0
				}
				return float64(s.Base.Time.UnixMilli()) / 1000
			}),
		counter("vigil_archive_objects_total",
			"Objects that this member has written to the bucket.",
			func(s stats) float64 { return float64(s.Objects) }),
		counter("vigil_archive_bytes_total",
			"Bytes of objects that this member has written to the bucket.",
			func(s stats) float64 { return float64(s.Bytes) }),
		counter("vigil_archive_entries_total",
			"Entries of the raft log that this member has archived.",
			func(s stats) float64 { return float64(s.Entries) }),
		counter("vigil_archive_entry_bytes_total", "Bytes of these entries before compression.",
			func(s stats) float64 { return float64(s.EntryBytes) }),
		counter("vigil_archive_bases_total", "Base states that this member has archived.",
			func(s stats) float64 { return float64(s.Bases) }),
		counter("vigil_archive_failures_total",
			"Operations of this member on the archive that have failed.",
			func(s stats) float64 { return float64(s.Failures) }),
		counter("vigil_archive_gaps_total",
			"Ranges of entries that this member has found to be missing in the archive for good.",
			func(s stats) float64 { return float64(s.Gaps) }),
	}}
}
