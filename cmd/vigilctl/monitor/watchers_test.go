package monitor

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"vigil/cmd/vigilctl/screen"
	"vigil/internal/debugpage"
)

func watcher(key, end string) debugpage.Watcher {
	w := debugpage.Watcher{Key: strconv.QuoteToASCII(key), State: "live"}
	if end != "" {
		w.End = strconv.QuoteToASCII(end)
	}
	return w
}

func TestWatcherRanges(t *testing.T) {
	for _, c := range []struct {
		key, end, shown string
		with, without   string // prefixes, separated by blanks
	}{
		{"a/b", "", "a/b", "a a/ a/b", "a/b/ b"},
		{"a/", "a0", "a/*", "a a/ a/b a/b/c", "a0 b 9"},
		{"", "\x00", "(all keys)", "a \xff", ""},
		{"b", "\x00", "b and after", "b c \xff b/x", "a"},
		{"b", "d", "b to d", "b c c/", "a d e"},
		{"a\x1b[2J", "", `"a\x1b[2J"`, "a", "b"},
	} {
		w := watcher(c.key, c.end)
		if got := describeRange(w); got != c.shown {
			t.Errorf("%q to %q shows as %q", c.key, c.end, got)
		}
		for _, p := range append(strings.Fields(c.with), "") {
			if !watches(w, p) {
				t.Errorf("%s does not watch %q", c.shown, p)
			}
		}
		for _, p := range strings.Fields(c.without) {
			if watches(w, p) {
				t.Errorf("%s watches %q", c.shown, p)
			}
		}
	}
}

func TestWatcherPicture(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	behind := watcher("/registry/pods/", "/registry/pods0")
	behind.State, behind.Lag, behind.QueuedBytes, behind.Client, behind.User,
		behind.Created = "behind", 4711, 3<<20, "10.0.0.7:41234", "kube", now.Add(-3*time.Hour)
	l := watcherList{Members: 1, Streams: 1, Matching: 3,
		Watchers: []watched{{"10.0.0.1:2379", behind}},
		Failed:   []failedMember{{"10.0.0.2:2379", "connection refused"}}}
	want := `1 of 3 watchers  1 stream  1 member  largest lag 4711  queued 3.0 MiB
10.0.0.2:2379: connection refused

WATCHES           STATE    LAG   QUEUED  SENT  CLIENT          USER  MEMBER         AGE  OPTIONS  NEXT
/registry/pods/*  behind  4711  3.0 MiB     0  10.0.0.7:41234  kube  10.0.0.1:2379   3h  -           0`
	if got := strings.Join(l.draw(0, now, screen.Paint{}), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	narrow := `1 of 3 watchers  1 stream  1 member
largest lag 4711  queued 3.0 MiB
10.0.0.2:2379: connection refused

WATCHES           STATE    LAG   QUEUED
/registry/pods/*  behind  4711  3.0 MiB`
	if got := strings.Join(l.draw(40, now, screen.Paint{}), "\n"); got != narrow {
		t.Errorf("got\n%s\nwant\n%s", got, narrow)
	}
}
