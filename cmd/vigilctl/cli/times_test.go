package cli

import (
	"strings"
	"testing"
	"time"

	"vigil/client/times"
)

func TestParseTime(t *testing.T) {
	zone := time.FixedZone("", 3600)
	now := time.Date(2026, 11, 24, 11, 0, 0, 0, zone)
	for text, want := range map[string]string{
		"10:42":                     "2026-11-24T10:42:00+01:00",
		"10:42:05":                  "2026-11-24T10:42:05+01:00",
		"11:00":                     "2026-11-24T11:00:00+01:00",
		"11:01":                     "2026-11-23T11:01:00+01:00",
		"2026-11-24T10:42:00Z":      "2026-11-24T10:42:00Z",
		"2026-11-24T10:42:00.5Z":    "2026-11-24T10:42:00.5Z",
		"2026-11-24T10:42:00+05:30": "2026-11-24T10:42:00+05:30",
		"2026-11-24 10:42":          "2026-11-24T10:42:00+01:00",
		"2026-11-24":                "2026-11-24T00:00:00+01:00",
		"2026-11-24T10:42:07":       "2026-11-24T10:42:07+01:00",
		"-5m":                       "2026-11-24T10:55:00+01:00",
		"5m":                        "2026-11-24T10:55:00+01:00",
		"1h30m":                     "2026-11-24T09:30:00+01:00",
		"0s":                        "2026-11-24T11:00:00+01:00",
	} {
		got, err := parseTime(text, now)
		if err != nil || got.Format(time.RFC3339Nano) != want {
			t.Errorf("%q: %v, %v, want %s", text, got.Format(time.RFC3339Nano), err, want)
		}
	}
	for _, text := range []string{"", "5", "--5m", "25:00", "yesterday", "2026-13-01", "10:42Z"} {
		if got, err := parseTime(text, now); err == nil ||
			!strings.Contains(err.Error(), "want one such as 10:42") {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func TestFormatSpan(t *testing.T) {
	at := func(sec int) time.Time { return time.Date(2026, 11, 24, 10, 42, sec, 0, time.UTC) }
	for want, s := range map[string]times.Span{
		"at an unknown time":                                  {},
		"after 2026-11-24 10:42:01":                           {After: at(1)},
		"before 2026-11-24 10:42:01":                          {At: at(1)},
		"at 2026-11-24 10:42:02":                              {After: at(1), At: at(2)},
		"between 2026-11-24 10:42:01 and 2026-11-24 10:42:30": {After: at(1), At: at(30)},
	} {
		if got := FormatSpan(s); got != want {
			t.Errorf("%v: %s, want %s", s, got, want)
		}
	}
}
