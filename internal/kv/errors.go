package kv

import (
	"errors"
	"fmt"
)

// The errors of the key-value model. Package rpc maps them to errors of the API.
var (
	// ErrCompacted: the requested revision has been compacted. See also CompactedError.
	ErrCompacted = errors.New("required revision has been compacted")
	// ErrFutureRev: the requested revision is above the newest.
	ErrFutureRev = errors.New("required revision is a future revision")
	// ErrLeaseNotFound: a put names a lease that does not exist.
	ErrLeaseNotFound = errors.New("requested lease not found")
	// ErrEmptyKey: a request names no key.
	ErrEmptyKey = errors.New("key is not provided")
	// ErrKeyNotFound: a put with IgnoreValue or IgnoreLease of a key that does not exist.
	ErrKeyNotFound = errors.New("key not found")
	// ErrNoSpace: the store has no room for writes.
	ErrNoSpace = errors.New("database space exceeded")
	// ErrTooManyRequests: the member cannot accept more work now: it lags too far, or the system
	// has no file descriptors or no memory for it.
	ErrTooManyRequests = errors.New("too many requests")
	// ErrAway: the paths of the member's files no longer lead to them: data written to them may be
	// lost.
	ErrAway = errors.New("the data directory is gone")
	// ErrRequestTooLarge: a request is larger than the limit.
	ErrRequestTooLarge = errors.New("request is too large")
	// ErrTimeout: no outcome in time; the request may still take effect.
	ErrTimeout = errors.New("request timed out")
	// ErrTimeoutLeaderFailure: like ErrTimeout, and the leader changed during the request.
	ErrTimeoutLeaderFailure = errors.New("request timed out, possibly due to previous leader failure")
	// ErrTimeoutConnectionLost: like ErrTimeout, and the connection to the leader was lost.
	ErrTimeoutConnectionLost = errors.New("request timed out, possibly due to connection lost")
	// ErrTimeoutWaitApplied: a linearizable read waited too long for this member to apply.
	ErrTimeoutWaitApplied = errors.New("request timed out, waiting for the applied index took too long")
	// ErrNoLeader: the cluster has no leader now; the request had no effect.
	ErrNoLeader = errors.New("no leader")
	// ErrLeaderChanged: the proposal was lost with a change of leader; it had no effect.
	ErrLeaderChanged = errors.New("leader changed")
	// ErrStopped: the member is shutting down; the request may still take effect if it was a write.
	ErrStopped = errors.New("server stopped")
	// ErrNotLeader: only the leader can do this.
	ErrNotLeader = errors.New("not leader")
	// ErrUnhealthy: too few members have been connected for long enough to change the membership.
	ErrUnhealthy = errors.New("unhealthy cluster")
	// ErrNotEnoughStarted: after the change too few members would have been started.
	ErrNotEnoughStarted = errors.New("not enough started members")
	// ErrMemberNotFound: no member with that id exists any more.
	ErrMemberNotFound = errors.New("member not found")
	// ErrMemberExists: a member with that id exists.
	ErrMemberExists = errors.New("member exists")
	// ErrPeerURLExists: another member has one of the peer URLs.
	ErrPeerURLExists = errors.New("peer URL exists")
	// ErrNotLearner: only a learner can be promoted.
	ErrNotLearner = errors.New("member is not a learner")
	// ErrLearnerNotReady: the learner lags too far to become a voter.
	ErrLearnerNotReady = errors.New("learner is not in sync with the leader")
	// ErrTooManyLearners: the cluster has as many learners as the limit allows.
	ErrTooManyLearners = errors.New("too many learners")
	// ErrBadTransferee: leadership cannot be transferred to that member.
	ErrBadTransferee = errors.New("bad leader transferee")
	// ErrTransferTimeout: the other member did not become leader in time.
	ErrTransferTimeout = errors.New("leader transfer timed out")
	// ErrCorrupt: data on disk has a wrong checksum or is inconsistent.
	ErrCorrupt = errors.New("corrupt data")
)

// Shortage reports whether err is about a resource that may be available later. The operation that
// failed with it had no effect and may be retried.
func Shortage(err error) bool {
	return errors.Is(err, ErrNoSpace) || errors.Is(err, ErrTooManyRequests) ||
		errors.Is(err, ErrAway)
}

// TooLargeError is the error of a result that is larger than the largest answer.
type TooLargeError struct {
	// Size is the size of the result when the member gave it up, Limit the largest size, in bytes.
	Size, Limit int64
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the result is larger than the largest answer (%d vs. %d bytes)",
		e.Size, e.Limit)
}

// LimitError is the error of a request that would exceed a limit of the store. It changed nothing.
// The limits are equal on all members, so every member rejects it.
type LimitError struct {
	// What is the limited quantity, Limit its largest value.
	What  string
	Limit int64
	// Advice is what the user can do next.
	Advice string
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("the limit for %s is %d: %s", e.What, e.Limit, e.Advice)
}

// CompactedError is ErrCompacted with the compact revision.
type CompactedError struct {
	CompactRevision int64
}

func (e *CompactedError) Error() string { return ErrCompacted.Error() }

// Is makes errors.Is(err, ErrCompacted) true.
func (e *CompactedError) Is(target error) bool { return target == ErrCompacted }
