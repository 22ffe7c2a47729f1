package replica

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"vigil/internal/kv"
	"vigil/internal/vfs/memfs"
)

// A cluster records when revisions were made, while leaders change and their clocks differ, and
// every member has the same times: also one that was restarted, and one that was sent a snapshot.
func TestTimes(t *testing.T) {
	var ahead [4]atomic.Int64
	g := startGroup(t, func(i int, c *Config) {
		c.TimeInterval = 5 * time.Millisecond
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
	// marked waits until every member knows a time for the newest write.
	marked := func() {
		t.Helper()
		rev := writes[len(writes)-1].rev
		for _, r := range g.list {
			await(t, "the time of the newest revision", func() bool {
				spans, err := r.Times.Spans(t.Context(), []int64{rev})
				return err == nil && spans[0].At > 0
			})
		}
	}
	check := func() {
		t.Helper()
		for _, r := range g.list {
			var revisions []int64
			for _, w := range writes {
				revisions = append(revisions, w.rev)
			}
			spans, err := r.Times.Spans(t.Context(), revisions)
			if err != nil {
				t.Fatal(err)
			}
			for i, w := range writes {
				// In milliseconds, which are rounded down.
				if s := spans[i]; s.After > w.after || s.At < w.before {
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
		marked()
	}
	check()

	// The next leader's clock is a little behind: marks begin again when it has passed the newest
	// one.
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
	marked()
	for i := range ahead {
		ahead[i].Store(0)
	}

	// A member that was restarted, and one that a snapshot was sent to, have the same times.
	r := g.other()
	before := r.Times.Snapshot()
	r = g.restart(r, nil)
	g.ready(r)
	if after := r.Times.Snapshot(); after.Len() < before.Len() {
		t.Errorf("%d marks after a restart, there were %d", after.Len(), before.Len())
	}
	r = g.other()
	g.net.setCut(r.memberID, true)
	g.lag(r, 100)
	g.net.setCut(r.memberID, false)
	g.caughtUp(r)
	puts(1)
	marked()
	want := fmt.Sprint(g.leader().Times.Snapshot().Records())
	for _, m := range g.list {
		await(t, "equal times",
			func() bool { return fmt.Sprint(m.Times.Snapshot().Records()) == want })
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

// No times are recorded while nothing is written.
func TestNoTimesWithoutWrites(t *testing.T) {
	c := config(memfs.New())
	c.TimeInterval = time.Millisecond
	var looks atomic.Int64
	c.Clock = func() time.Time { looks.Add(1); return time.Now() }
	r := start(t, c)
	for range 3 {
		rev := r.Header().Revision
		await(t, "a time", func() bool {
			last, _ := r.Times.Snapshot().Last()
			return rev == 1 || last.Revision == rev
		})
		// the times are known before the entry counts as applied
		if err := r.Linearize(t.Context()); err != nil {
			t.Fatal(err)
		}
		applied, n := r.Applied(), looks.Load()
		await(t, "looks at the revision", func() bool { return looks.Load() > n+20 })
		if now := r.Applied(); now != applied {
			t.Errorf("entries up to %d were applied while nothing was written, it was %d", now,
				applied)
		}
		mustPut(t, r, "k", "v")
	}
}
