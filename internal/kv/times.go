package kv

import (
	"errors"
	"fmt"
	"time"
)

// MaxTime is the latest time of a TimeMark, in milliseconds since 1970: far after every useful time, and small enough that
// sums of times do not overflow.
const MaxTime = 1 << 53

// MaxTimeMarks is the limit for marks in one request.
const MaxTimeMarks = 16

// TimeMark is the newest revision at a time: revisions up to Revision were made at or before Time, later ones after it. A
// revision is made when the leader of the time applies it, and Time is by the clock of that leader.
type TimeMark struct {
	// Time is in milliseconds since 1970. It is above 0 and at most MaxTime.
	Time     int64
	Revision int64
}

// TimeRequest adds marks to the times of revisions. It has no effect in an entry of another term than Term.
type TimeRequest struct {
	Term uint64
	// Back is set if the first mark may be at or before marks that exist, which it replaces: the clock of an earlier leader
	// was ahead, or that of this one is behind. Without it such a request is rejected.
	Back bool
	// Marks have ascending times, and revisions that do not descend.
	Marks []TimeMark
}

// TimeSpan is when a revision was made, in milliseconds since 1970: after After, and at or before At.
type TimeSpan struct {
	// After is 0 if no mark is older than the revision.
	After int64
	// At is 0 if no mark is as new as the revision.
	At int64
}

// ErrTimeOrder means that marks of a TimeRequest are not newer than those that exist, or not in order.
var ErrTimeOrder = errors.New("times of revisions are not in order")

// NoTimeReason says why no revision can be named for a time.
type NoTimeReason uint8

// The reasons of a TimeError.
const (
	// NoTimes: no times are known: a member does not know this function yet, or nothing was written since all do.
	NoTimes NoTimeReason = iota
	// TimeBeforeFirst: the time is before the first known one.
	TimeBeforeFirst
	// TimeInFuture: the time is after the clock of the member.
	TimeInFuture
	// TimeCompacted: the revision of the time is compacted.
	TimeCompacted
)

// TimeError is the error of a request for the state at a time. It is ErrCompacted or ErrFutureRev too, if the reason is
// the same.
type TimeError struct {
	Reason NoTimeReason
	// Time is the time of the request, Bound the nearest time that is possible; 0 if it is not known.
	Time, Bound int64
	// Revision is the newest revision at Time, CompactRevision the compact revision, for TimeCompacted.
	Revision, CompactRevision int64
}

// FormatTime is a time in milliseconds since 1970 as a text.
func FormatTime(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

func (e *TimeError) Error() string {
	at := FormatTime(e.Time)
	switch e.Reason {
	case TimeBeforeFirst:
		return fmt.Sprintf("the state at %s is not known: the first known time is %s", at, FormatTime(e.Bound))
	case TimeInFuture:
		return fmt.Sprintf("%s is in the future: the clock of the member is at %s", at, FormatTime(e.Bound))
	case TimeCompacted:
		first := "no readable revision has a known time yet"
		if e.Bound > 0 {
			first = "the first time that can be read is " + FormatTime(e.Bound)
		}
		return fmt.Sprintf("revision %d of %s has been compacted at revision %d: %s", e.Revision, at, e.CompactRevision, first)
	}
	return "the cluster has no times of revisions yet: they begin when all members run this version and a key is written"
}

// Is makes errors.Is report the error of the key-value model with the same meaning.
func (e *TimeError) Is(target error) bool {
	return target == ErrCompacted && e.Reason == TimeCompacted || target == ErrFutureRev && e.Reason == TimeInFuture
}
