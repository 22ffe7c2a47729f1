package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/client"
	"vigil/client/times"
	"vigil/cmd/vigilctl/exit"
)

// TimeFormats describes the values of a Time in the help of a flag.
const TimeFormats = "10:42, 2026-11-24T10:42:00Z, or 5m for five minutes ago"

// Time is a flag with a point in time.
type Time struct {
	at   time.Time
	text string
}

// String implements pflag.Value.
func (t *Time) String() string { return t.text }

// Type implements pflag.Value.
func (t *Time) Type() string { return "time" }

// Set implements pflag.Value.
func (t *Time) Set(text string) (err error) {
	t.at, err = parseTime(text, time.Now())
	t.text = text
	return err
}

// At returns the time, zero if the flag was not given.
func (t *Time) At() time.Time { return t.at }

// Given reports whether the flag was given.
func (t *Time) Given() bool { return t.text != "" }

// dayTimes and dates are the formats without and with a date, in local time.
var (
	dayTimes = []string{"15:04", "15:04:05", "15:04:05.000"}
	dates    = []string{"2006-01-02", "2006-01-02 15:04", "2006-01-02 15:04:05", "2006-01-02T15:04",
		"2006-01-02T15:04:05"}
)

// parseTime parses a time. The forms are: date and zone as in RFC 3339; a date in local time; a
// time within the last 24 hours; how long ago it was.
func parseTime(text string, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t, nil
	}
	for _, f := range dates {
		if t, err := time.ParseInLocation(f, text, now.Location()); err == nil {
			return t, nil
		}
	}
	for _, f := range dayTimes {
		if t, err := time.ParseInLocation(f, text, now.Location()); err == nil {
			y, m, d := now.Date()
			at := time.Date(y, m, d, t.Hour(), t.Minute(), t.Second(), t.Nanosecond(),
				now.Location())
			if at.After(now) {
				at = time.Date(y, m, d-1, t.Hour(), t.Minute(), t.Second(), t.Nanosecond(),
					now.Location())
			}
			return at, nil
		}
	}
	if ago, err := time.ParseDuration(strings.TrimPrefix(text, "-")); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	return time.Time{}, fmt.Errorf("%q is not a time: want one such as %s", text, TimeFormats)
}

// Revision returns the newest revision known to be made at or before the time.
func (t *Time) Revision(ctx context.Context, cl *client.Client) (int64, error) {
	rev, err := times.RevisionAt(ctx, cl, t.at)
	return rev, timesError(err)
}

// TimesOf looks up when revisions were made.
func TimesOf(ctx context.Context, cl *client.Client, revisions []int64) ([]times.Span, error) {
	spans, err := times.Of(ctx, cl, revisions...)
	return spans, timesError(err)
}

func timesError(err error) error {
	if status.Code(err) == codes.Unimplemented {
		return exit.With(exit.Failure,
			errors.New("the member does not know when revisions were made; only Vigil does, give a revision"))
	}
	if e, ok := errors.AsType[*times.Error](err); ok {
		return exit.With(exit.Failure, errors.New(e.Error())) // without the code
	}
	return CallError(err)
}

// FormatSpan formats in local time when a revision was made. For a compacted revision the span may
// be wider; the end stands for it.
func FormatSpan(s times.Span) string {
	const f = "2006-01-02 15:04:05"
	switch {
	case s.At.IsZero() && s.After.IsZero():
		return "at an unknown time"
	case s.At.IsZero():
		return "after " + s.After.Format(f)
	case s.After.IsZero():
		return "before " + s.At.Format(f)
	case s.At.Sub(s.After) <= 5*time.Second:
		return "at " + s.At.Format(f)
	}
	return "between " + s.After.Format(f) + " and " + s.At.Format(f)
}
