package debugpage

import "time"

// Archive is the page /debug/archive: what one member does for the continuous archive, and how far
// the archive is.
type Archive struct {
	// Archive is the address of the bucket without secrets, ID the archive in it.
	Archive   string `json:"archive"`
	ID        string `json:"archive_id,omitempty"`
	ClusterID string `json:"cluster_id,omitempty"`
	MemberID  string `json:"member_id,omitempty"`
	// State is what this member does.
	State  ArchiveState `json:"state"`
	Leader bool         `json:"leader"`
	// Appointee is the member that archives, as far as this member knows.
	Appointee string `json:"appointee,omitempty"`
	// Everything up to ArchivedIndex is in the archive.
	ArchivedIndex    uint64 `json:"archived_index"`
	ArchivedRevision int64  `json:"archived_revision"`
	// This member has applied everything up to AppliedIndex.
	AppliedIndex uint64 `json:"applied_index"`
	Revision     int64  `json:"revision"`
	// LagSeconds is how long there has been an applied entry that is not archived, LagRevisions the
	// number of revisions that are not archived.
	LagSeconds   float64 `json:"lag_seconds"`
	LagRevisions int64   `json:"lag_revisions"`
	// HeldEntries counts the entries of the raft log that only the archive still needs.
	HeldEntries uint64 `json:"held_entries"`
	// Base is the newest base that this member has made or read.
	Base *ArchiveBase `json:"base,omitempty"`
	// Gap is the newest gap that this member has found.
	Gap *ArchiveGap `json:"gap,omitempty"`
	// FailingSeconds is how long this member's attempts have failed, Error the reason.
	FailingSeconds float64 `json:"failing_seconds"`
	Error          string  `json:"error,omitempty"`
	ArchiveCounters
}

// ArchiveState says what a member does for the archive.
type ArchiveState string

// The states.
const (
	// ArchiveNone: the member has no archive. Members do not write this state.
	ArchiveNone ArchiveState = "none"
	// ArchiveUnknown: the member has not reached the bucket yet.
	ArchiveUnknown ArchiveState = "unknown"
	// ArchiveRefused: the cluster may not write to this bucket.
	ArchiveRefused ArchiveState = "refused"
	// ArchiveStandby: another member archives.
	ArchiveStandby ArchiveState = "standby"
	// ArchiveStarting: this member is appointed and reads what the bucket has.
	ArchiveStarting ArchiveState = "starting"
	// ArchiveSending: this member archives.
	ArchiveSending ArchiveState = "archiving"
	// ArchiveFailing: this member is appointed, and its last attempt failed.
	ArchiveFailing ArchiveState = "failing"
)

// ArchiveBase describes a base state in the archive.
type ArchiveBase struct {
	Index    uint64    `json:"index"`
	Revision int64     `json:"revision"`
	Time     time.Time `json:"time"`
	Parts    int       `json:"parts"`
	Bytes    int64     `json:"bytes"`
}

// ArchiveGap is a range of entries that the archive lacks for good.
type ArchiveGap struct {
	First uint64    `json:"first"`
	Last  uint64    `json:"last"`
	Time  time.Time `json:"time"` // when it was found
}

// ArchiveCounters count since the start of the process.
type ArchiveCounters struct {
	// Objects and Bytes count what the member wrote to the bucket, Entries the entries in its log
	// objects, and EntryBytes the size of these entries before compression.
	Objects    uint64 `json:"objects"`
	Bytes      uint64 `json:"bytes"`
	Entries    uint64 `json:"entries"`
	EntryBytes uint64 `json:"entry_bytes"`
	Bases      uint64 `json:"bases"`
	Failures   uint64 `json:"failures"`
	Gaps       uint64 `json:"gaps"`
	// Hanging is the number of operations that do not return.
	Hanging int `json:"hanging"`
}
