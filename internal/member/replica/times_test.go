package replica

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"vigil/internal/kv"
)

// A cluster records when revisions were made, while leaders change and their clocks differ, and
// every member has the same times: also one that was restarted, and one that was sent a snapshot.
func TestTimes(t *testing.T) {
	var ahead [4]atomic.Int64
	g := startGroup(t, func(i int, c *Config) {
		c.Clock = func() time.Time { return time.Now().Add(time.Duration(ahead[i].Load())) }
	})
	type write struct{ rev, before, after int64 }
	var writes []write
	puts := func(n int) {
		for range n {
			w := write{before: time.Now().UnixMilli()}
			w.rev = g.put(fmt.Sprint(len(writes)), nil)
			w.after = time.Now().UnixMilli()
			writes = append(writes, w)
		}
	}
	// spans returns when the writes were made, as a member knows it.
	spans := func(r *Replica) []kv.TimeSpan {
		t.Helper()
		var revisions []int64
		for _, w := range writes {
			revisions = append(revisions, w.rev)
		}
		spans, err := r.Times.Spans(t.Context(), revisions)
		if err != nil {
			t.Fatal(err)
		}
		return spans
	}
	check := func() {
		t.Helper()
		for _, r := range g.list {
			spans := spans(r)
			for i, w := range writes {
				if s := spans[i]; s.After > w.after || s.At < w.before || s.At > s.After+1 {
					t.Errorf("revision %d was written between %d and %d, and the span is %+v",
						w.rev, w.before, w.after, s)
				}
				if rev, err := r.Times.RevisionAt(t.Context(), spans[i].At,
					false); err != nil || rev < w.rev {
					t.Errorf("at %d: revision %d, %v, want at least %d", spans[i].At,
						rev, err, w.rev)
				}
			}
		}
	}
	for range 5 {
		puts(10)
	}
	check()

	// The next leader's clock is a little behind: times do not descend.
	lead := g.leader()
	g.net.setCut(lead.memberID, true)
	next := g.leader()
	g.net.setCut(lead.memberID, false)
	for i := range ahead {
		if fmt.Sprint("m", i) == next.cfg.Name {
			ahead[i].Store(-int64(50 * time.Millisecond))
		}
	}
	puts(10)
	for i := range ahead {
		ahead[i].Store(0)
	}
	want := spans(g.leader())
	if !slices.IsSortedFunc(want, func(a, b kv.TimeSpan) int { return cmp.Compare(a.At, b.At) }) {
		t.Errorf("the times descend: %v", want)
	}

	// A member that was restarted, and one that a snapshot was sent to, have the same times.
	r := g.restart(g.other(), nil)
	g.ready(r)
	if got := spans(r); !slices.Equal(got, want) {
		t.Errorf("after a restart: %v, want %v", got, want)
	}
	r = g.other()
	g.net.setCut(r.memberID, true)
	g.lag(r, 100)
	g.net.setCut(r.memberID, false)
	g.caughtUp(r)
	puts(1)
	want = spans(g.leader())
	for _, m := range g.list {
		if got := spans(m); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", m.cfg.Name, got, want)
		}
	}

	// What is compacted says which time can be read.
	rev := writes[len(writes)-1].rev
	if _, err := g.leader().Compact(t.Context(), &kv.CompactRequest{Revision: rev}); err != nil {
		t.Fatal(err)
	}
	_, err := g.leader().Times.RevisionAt(t.Context(), writes[20].after, false)
	var e *kv.TimeError
	if !errors.As(err, &e) || !errors.Is(err, kv.ErrCompacted) || e.CompactRevision != rev ||
		e.Revision >= rev || e.Bound == 0 {
		t.Fatalf("at a compacted time: %v", err)
	}
	if got, err := g.leader().Times.RevisionAt(t.Context(), e.Bound,
		false); err != nil || got < rev {
		t.Errorf("at the first time that can be read: revision %d, %v", got, err)
	}
}
