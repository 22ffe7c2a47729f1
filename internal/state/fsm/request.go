package fsm

import (
	"vigil/internal/kv"
	"vigil/internal/state/auth"
	"vigil/internal/state/cluster"
	"vigil/internal/state/lineage"
)

// Kind is the kind of a request. The numbers are part of the log's format and never reused.
type Kind uint8

// The kinds of requests. Nested operations of a transaction use the numbers too, 0 being an
// operation without content and KindRange occurring only there.
const (
	KindPut         Kind = 1
	KindDeleteRange Kind = 2
	KindTxn         Kind = 3
	KindRange       Kind = 4
	KindCompact     Kind = 5

	KindLeaseGrant      Kind = 6
	KindLeaseRevoke     Kind = 7
	KindLeaseCheckpoint Kind = 8
	KindLeaseExpire     Kind = 9
	// 10 to 31 are reserved for the key space and leases.

	KindAttributes Kind = 32
	KindAlarm      Kind = 33
	KindVersion    Kind = 34
	KindClaim      Kind = 35
	KindArchive    Kind = 36
	// 37 to 63 are reserved for the cluster.

	KindAuth Kind = 64
)

// Level identifies the kinds and fields of requests that this program knows. It increases by one
// with each version that adds some. Every member publishes its level, and cluster.State.Level is
// the lowest one: what a level adds is proposed only when the cluster has reached it, so members
// can be upgraded one by one.
const Level uint64 = 1

// laterKinds holds the kinds that not every level knows, with the first level that does.
var laterKinds = map[Kind]uint64{}

// Request is one request of a group: exactly one of the pointers is set.
type Request struct {
	// Identity says in whose name the request is made; zero means nobody.
	Identity    auth.Identity
	Put         *kv.PutRequest
	DeleteRange *kv.DeleteRangeRequest
	Txn         *kv.TxnRequest
	Compact     *kv.CompactRequest

	LeaseGrant      *kv.LeaseGrantRequest
	LeaseRevoke     *kv.LeaseRevokeRequest
	LeaseCheckpoint *kv.LeaseCheckpointRequest
	LeaseExpire     *kv.LeaseExpireRequest

	// Attributes sets name, client URLs and level of the member ID; the other fields are not used.
	Attributes *cluster.Member
	// Alarm raises or clears an alarm.
	Alarm *kv.AlarmChange
	// Version changes the level of the API that the cluster speaks.
	Version *kv.VersionChange
	// Claim claims the term of the leader that proposes it.
	Claim *lineage.Claim
	// Archive notes that the cluster has begun an archive.
	Archive *lineage.Archive
	// Auth changes users and roles, or issues a token.
	Auth *kv.AuthRequest
}

// Kind returns the kind of r, 0 if nothing is set.
func (r *Request) Kind() Kind {
	switch {
	case r.Put != nil:
		return KindPut
	case r.DeleteRange != nil:
		return KindDeleteRange
	case r.Txn != nil:
		return KindTxn
	case r.Compact != nil:
		return KindCompact
	case r.LeaseGrant != nil:
		return KindLeaseGrant
	case r.LeaseRevoke != nil:
		return KindLeaseRevoke
	case r.LeaseCheckpoint != nil:
		return KindLeaseCheckpoint
	case r.LeaseExpire != nil:
		return KindLeaseExpire
	case r.Attributes != nil:
		return KindAttributes
	case r.Alarm != nil:
		return KindAlarm
	case r.Version != nil:
		return KindVersion
	case r.Claim != nil:
		return KindClaim
	case r.Archive != nil:
		return KindArchive
	case r.Auth != nil:
		return KindAuth
	}
	return 0
}

// Level returns the first level that knows r: at a lower level, the cluster has a member that could
// not apply it.
func (r *Request) Level() uint64 { return max(laterKinds[r.Kind()], 1) }

// NeedsIdentity reports whether apply judges r by its identity. The others are requests that no
// client can cause, which members propose by themselves, and requests about tokens.
func (r *Request) NeedsIdentity() bool {
	switch r.Kind() {
	case KindLeaseCheckpoint, KindLeaseExpire, KindAttributes, KindClaim, KindArchive:
		return false
	case KindVersion:
		return r.Version.Op != kv.VersionSet
	case KindAuth:
		// For Authenticate, the proposer has verified the password; the leader proposes TokensEnd.
		return r.Auth.Op != kv.Authenticate && r.Auth.Op != kv.TokensEnd
	}
	return true
}

// GroupHeader is the header of a group.
type GroupHeader struct {
	// Proposer is the member that proposed the group, Sequence its number for it. Sequences begin
	// at a random number when a member starts, so a group of an earlier run is not taken for one of
	// this run.
	Proposer, Sequence uint64
	// Time is when the leader added the group to its log, in milliseconds since 1970, rounded up,
	// by its clock. It is 0 before, and for a configuration change. The revisions that the group
	// makes have this time, see mvcc.Writer.SetTime.
	Time int64
	// Count is the number of requests.
	Count int
}
