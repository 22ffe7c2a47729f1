package kv

import (
	"errors"
	"fmt"
)

// The errors of the key-value model. What they are called on the wire is decided in rpc.
var (
	// ErrCompacted: the revision asked for has been compacted. See also CompactedError.
	ErrCompacted = errors.New("required revision has been compacted")
	// ErrFutureRev: the revision asked for is above the newest.
	ErrFutureRev = errors.New("required revision is a future revision")
	// ErrLeaseNotFound: a put names a lease that does not exist.
	ErrLeaseNotFound = errors.New("requested lease not found")
	// ErrKeyNotFound: a put with IgnoreValue or IgnoreLease of a key that does not exist.
	ErrKeyNotFound = errors.New("key not found")
	// ErrNoSpace: the store has no room for writes.
	ErrNoSpace = errors.New("database space exceeded")
	// ErrTooManyRequests: the member cannot take more work now: it is too far behind, or the system has no
	// file descriptors or no memory for it.
	ErrTooManyRequests = errors.New("too many requests")
	// ErrRequestTooLarge: a request is larger than the limit.
	ErrRequestTooLarge = errors.New("request is too large")
	// ErrTimeout: no outcome in time; the request may still take effect.
	ErrTimeout = errors.New("request timed out")
	// ErrTimeoutLeaderFailure: as ErrTimeout, and the leader changed meanwhile.
	ErrTimeoutLeaderFailure = errors.New("request timed out, possibly due to previous leader failure")
	// ErrTimeoutConnectionLost: as ErrTimeout, and the connection to the leader was lost.
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
	// ErrUnhealthy: too few members are connected for long enough to change the membership.
	ErrUnhealthy = errors.New("unhealthy cluster")
	// ErrNotEnoughStarted: after the change too few members would have been started.
	ErrNotEnoughStarted = errors.New("not enough started members")
	// ErrMemberNotFound: there is no member of that id, or not any more.
	ErrMemberNotFound = errors.New("member not found")
	// ErrMemberExists: there is a member of that id.
	ErrMemberExists = errors.New("member exists")
	// ErrPeerURLExists: another member has one of the peer URLs.
	ErrPeerURLExists = errors.New("peer URL exists")
	// ErrNotLearner: only a learner can be promoted.
	ErrNotLearner = errors.New("member is not a learner")
	// ErrLearnerNotReady: the learner lags too far behind to become a voter.
	ErrLearnerNotReady = errors.New("learner is not in sync with the leader")
	// ErrTooManyLearners: there are as many learners as are allowed.
	ErrTooManyLearners = errors.New("too many learners")
	// ErrBadTransferee: leadership cannot go to that member.
	ErrBadTransferee = errors.New("bad leader transferee")
	// ErrTransferTimeout: the other member did not become leader in time.
	ErrTransferTimeout = errors.New("leader transfer timed out")
	// ErrCorrupt marks data on disk that fails its checksum or contradicts itself.
	ErrCorrupt = errors.New("corrupt data")
)

// Shortage reports whether err says that a resource is missing that may be there later. What failed
// with it had no effect and may be tried again.
func Shortage(err error) bool {
	return errors.Is(err, ErrNoSpace) || errors.Is(err, ErrTooManyRequests)
}

// TooLargeError says that a result is larger than any answer can be.
type TooLargeError struct {
	// Size is the size in bytes that the result had come to, Limit the largest.
	Size, Limit int64
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the result is larger than the largest answer (%d vs. %d bytes)", e.Size, e.Limit)
}

// LimitError says that a request is refused because it would exceed a limit of the store. It changed
// nothing. The limits are equal on all members, so all of them refuse it.
type LimitError struct {
	// What is the thing that is limited, Limit how much of it there may be.
	What  string
	Limit int64
	// Advice is what to do next.
	Advice string
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("the limit for %s is %d: %s", e.What, e.Limit, e.Advice)
}

// CompactedError is ErrCompacted with the revision below which history is gone.
type CompactedError struct {
	CompactRevision int64
}

func (e *CompactedError) Error() string { return ErrCompacted.Error() }

// Is makes errors.Is(err, ErrCompacted) true.
func (e *CompactedError) Is(target error) bool { return target == ErrCompacted }
