package kv

import (
	"fmt"
	"time"
)

// MaxTime is the latest time of a revision, in milliseconds since 1970: far after every useful
// time, and small enough that sums of times do not overflow.
const MaxTime = 1 << 53

// TimeSpan is when a revision was made, in milliseconds since 1970: after After, and at or before
// At. A revision is made when the leader adds its entry to the log, by the clock of that leader.
type TimeSpan struct {
	// After is 0 if nothing older is known.
	After int64
	// At is 0 if the revision has not been made yet, or nothing as new is known.
	At int64
}

// NoTimeReason says why no revision can be named for a time.
type NoTimeReason uint8

// The reasons of a TimeError.
const (
	// NoTimes: no times are known, because nothing has been written yet, or only by a program that
	// did not record times.
	NoTimes NoTimeReason = iota
	// TimeBeforeFirst: the time is before the first known one.
	TimeBeforeFirst
	// TimeInFuture: the time is after the clock of the member.
	TimeInFuture
	// TimeCompacted: the revision of the time is compacted.
	TimeCompacted
)

// TimeError is the error of a request for the state at a time. It is ErrCompacted or ErrFutureRev
// too, if the reason is the same.
type TimeError struct {
	Reason NoTimeReason
	// Time is the requested time, Bound the nearest possible time; 0 if it is not known.
	Time, Bound int64
	// For TimeCompacted, Revision is the newest known revision at Time, 0 if none is known, and
	// CompactRevision the compact revision.
	Revision, CompactRevision int64
}

// FormatTime returns a time in milliseconds since 1970 as text.
func FormatTime(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

func (e *TimeError) Error() string {
	at := FormatTime(e.Time)
	switch e.Reason {
	case TimeBeforeFirst:
		return fmt.Sprintf("the state at %s is not known: the first known time is %s", at,
			FormatTime(e.Bound))
	case TimeInFuture:
		return fmt.Sprintf("%s is in the future: the clock of the member is at %s", at,
			FormatTime(e.Bound))
	case TimeCompacted:
		first := "no readable revision has a known time yet"
		if e.Bound > 0 {
			first = "the first time that can be read is " + FormatTime(e.Bound)
		}
		what := "the state"
		if e.Revision > 0 {
			what = fmt.Sprintf("revision %d", e.Revision)
		}
		return fmt.Sprintf("%s of %s has been compacted at revision %d: %s", what, at,
			e.CompactRevision, first)
	}
	return "the cluster has no times of revisions yet: they begin when a key is written"
}

// Is makes errors.Is report the error of the key-value model with the same meaning.
func (e *TimeError) Is(target error) bool {
	return target == ErrCompacted && e.Reason == TimeCompacted || target == ErrFutureRev &&
		e.Reason == TimeInFuture
}
