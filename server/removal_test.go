package server

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// leaver is a member that is removed.
type leaver struct {
	applied chan struct{}
	learner uint64 // its report settles nothing
	left    time.Time
}

func (l *leaver) Removed() <-chan struct{}   { return l.applied }
func (l *leaver) NoteRemoved(by uint64) bool { return by != l.learner }
func (l *leaver) Leave()                     { l.left = time.Now() }

// A member that was removed ends when another one reports it, whether it has applied its removal or
// not; without a report it serves for a second, and a leader stays until it has handed over.
func TestARemovedMemberEnds(t *testing.T) {
	const never = time.Hour
	election := 10 * time.Second
	for what, c := range map[string]struct {
		applies, reported, by uint64 // when, in milliseconds; 0 for never
		leads                 time.Duration
		ends, leaves          time.Duration
	}{
		"reported": {reported: 300, by: 2,
			ends: 300 * time.Millisecond},
		"applied, then reported": {applies: 100, reported: 110, by: 2,
			ends: 110 * time.Millisecond},
		"applied by a follower, not reported": {applies: 100, ends: 1100 * time.Millisecond,
			leaves: 1100 * time.Millisecond},
		"applied by a leader that hands over": {applies: 100, leads: 3 * time.Second,
			ends: 3100 * time.Millisecond, leaves: 1100 * time.Millisecond},
		"applied by a leader that cannot": {applies: 100, leads: never,
			ends: 26100 * time.Millisecond, leaves: 1100 * time.Millisecond},
		"applied by a leader, reported by a voter": {applies: 100, leads: never, reported: 5000,
			by: 2, ends: 5 * time.Second, leaves: 1100 * time.Millisecond},
		"reported to a leader by a learner": {applies: 100, leads: never, reported: 200,
			by: 3, ends: 26100 * time.Millisecond, leaves: 1100 * time.Millisecond},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				l := &leaver{applied: make(chan struct{}), learner: 3}
				reports := make(chan uint64, 1)
				if c.applies > 0 {
					time.AfterFunc(time.Duration(c.applies)*time.Millisecond,
						func() { close(l.applied) })
				}
				if c.reported > 0 {
					time.AfterFunc(time.Duration(c.reported)*time.Millisecond,
						func() { reports <- c.by })
				}
				leads := func() bool { return time.Since(begun) < c.leads }
				if !awaitRemoval(t.Context(), l, reports, leads, time.Second, election) {
					t.Error("it does not end")
				}
				if took := time.Since(begun); took != c.ends {
					t.Errorf("it ends after %v, want %v", took, c.ends)
				}
				left := time.Duration(0)
				if !l.left.IsZero() {
					left = l.left.Sub(begun)
				}
				if left != c.leaves {
					t.Errorf("it has served for %v, want %v", left, c.leaves)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if awaitRemoval(ctx, &leaver{applied: make(chan struct{})}, nil,
			func() bool { return false }, time.Second, election) {
			t.Error("a member that was not removed ends")
		}
	})
}
