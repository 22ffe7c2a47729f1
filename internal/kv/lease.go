package kv

import "errors"

// MaxLeaseTTL is the longest time to live that can be granted, in seconds.
const MaxLeaseTTL = 9_000_000_000

var (
	// ErrLeaseExists: a lease of that id exists.
	ErrLeaseExists = errors.New("lease already exists")
	// ErrLeaseTTLTooLarge: the requested TTL is above MaxLeaseTTL.
	ErrLeaseTTLTooLarge = errors.New("too large lease TTL")
)

// LeaseGrantRequest grants a lease.
type LeaseGrantRequest struct {
	// ID is not 0.
	ID int64
	// TTL is how long the lease lives without a keep-alive, in seconds.
	TTL int64
}

// LeaseRevokeRequest revokes a lease and deletes its keys.
type LeaseRevokeRequest struct {
	ID int64
}

// LeaseRef identifies one life of a lease: an id may be granted again after the lease has ended.
type LeaseRef struct {
	ID int64
	// Granted is the index of the log entry that granted it.
	Granted uint64
}

// LeaseCheckpoint is the remaining TTL of a lease.
type LeaseCheckpoint struct {
	LeaseRef
	// Remaining is in seconds; 0 means the whole TTL.
	Remaining int64
	// Since is the index of the log entry from which the time counts: the grant of the lease, or
	// the last checkpoint with the whole TTL. The checkpoint has no effect if the time of the lease
	// now counts from another entry: the client has been promised the whole TTL since then. Since
	// is ignored if Remaining is 0.
	Since uint64
}

// LeaseCheckpointRequest stores remaining TTLs on all members. It has no effect in an entry of a
// term other than Term: a leader decides about time only while it leads.
type LeaseCheckpointRequest struct {
	Term        uint64
	Checkpoints []LeaseCheckpoint
}

// LeaseExpireRequest ends expired leases. It has no effect in an entry of a term other than Term.
type LeaseExpireRequest struct {
	Term   uint64
	Leases []LeaseRef
}

// LeaseResult answers a grant, a revocation and an expiry.
type LeaseResult struct {
	// Revision is the newest revision after the request.
	Revision int64
	// ID and TTL describe the granted lease.
	ID, TTL int64
	// Ended is the number of leases that were revoked or expired.
	Ended int
}

// LeaseStatus is the state of one lease.
type LeaseStatus struct {
	ID int64
	// TTL is the remaining TTL, Granted the granted one, in seconds.
	TTL, Granted int64
	// Keys are the keys that are attached to the lease, in order, if they were requested.
	Keys []string
}
