package kv

import "errors"

// MaxLeaseTTL is the longest time to live that can be granted, in seconds.
const MaxLeaseTTL = 9_000_000_000

var (
	// ErrLeaseExists: there is a lease of that id.
	ErrLeaseExists = errors.New("lease already exists")
	// ErrLeaseTTLTooLarge: a lease was asked for with a TTL above MaxLeaseTTL.
	ErrLeaseTTLTooLarge = errors.New("too large lease TTL")
)

// LeaseGrantRequest makes a lease.
type LeaseGrantRequest struct {
	// ID is not 0.
	ID int64
	// TTL is how long the lease lives without being kept alive, in seconds.
	TTL int64
}

// LeaseRevokeRequest ends a lease and deletes its keys.
type LeaseRevokeRequest struct {
	ID int64
}

// LeaseRef names one life of a lease: an id may be granted again after the lease has ended.
type LeaseRef struct {
	ID int64
	// Granted is the index of the log entry that granted it.
	Granted uint64
}

// LeaseCheckpoint says how long a lease has left.
type LeaseCheckpoint struct {
	LeaseRef
	// Remaining is in seconds; 0 means the whole TTL.
	Remaining int64
	// Since is the index of the log entry from which the time was counted: the one that granted the lease, or
	// the last checkpoint with the whole TTL. The checkpoint has no effect if the lease counts from another
	// one by now: the whole TTL was promised to the client meanwhile. It is not looked at if Remaining is 0.
	Since uint64
}

// LeaseCheckpointRequest tells all members how long leases have left. It has no effect if it becomes
// an entry of another term than Term: what a leader says about time counts only while it leads.
type LeaseCheckpointRequest struct {
	Term        uint64
	Checkpoints []LeaseCheckpoint
}

// LeaseExpireRequest ends leases whose time is over. It has no effect if it becomes an entry of another
// term than Term.
type LeaseExpireRequest struct {
	Term   uint64
	Leases []LeaseRef
}

// LeaseResult answers a grant, a revocation and an expiry.
type LeaseResult struct {
	// Revision is the newest revision after the request.
	Revision int64
	// ID and TTL are those of the lease that was granted.
	ID, TTL int64
	// Ended is the number of leases that were revoked or expired.
	Ended int
}

// LeaseStatus is what is to be known about a lease.
type LeaseStatus struct {
	ID int64
	// TTL is what remains, Granted what was granted, in seconds.
	TTL, Granted int64
	// Keys are attached to the lease, in order, if they were asked for.
	Keys []string
}
