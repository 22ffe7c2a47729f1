package archiver

import (
	"testing"
	"time"

	"vigil/internal/store/archive"
)

func TestChoose(t *testing.T) {
	now := time.Now()
	ok := func(first uint64, change ...func(*heard)) heard {
		h := heard{report{ready: true, first: first, applied: 50_000}, now}
		for _, f := range change {
			f(&h)
		}
		return h
	}
	vacant := func(h *heard) { h.vacant = true }
	failing := func(h *heard) { h.failing = rotateAfter }
	for name, c := range map[string]struct {
		candidates
		want uint64
	}{
		"not the leader": {candidates{reports: map[uint64]heard{1: ok(5), 2: ok(5),
			3: ok(5)}}, 2},
		"the present one": {candidates{reports: map[uint64]heard{1: ok(5), 2: ok(5), 3: ok(5)},
			current: 3}, 3},
		"the one before": {candidates{reports: map[uint64]heard{1: ok(5), 2: ok(5),
			3: ok(5, func(h *heard) { h.appointed = true })}}, 3},
		"one without archive": {candidates{reports: map[uint64]heard{1: ok(5),
			2: ok(5, func(h *heard) { h.ready = false }), 3: ok(5)}, current: 2}, 3},
		"one that is away": {candidates{reports: map[uint64]heard{1: ok(5),
			2: ok(5, func(h *heard) { h.at = now.Add(-heardWithin - 1) }), 3: ok(5)},
			current: 2}, 3},
		"one that lags": {candidates{reports: map[uint64]heard{1: ok(5),
			2: ok(5, func(h *heard) { h.applied -= maxApplyLag + 1 }), 3: ok(5)}}, 3},
		"one without entries": {candidates{reports: map[uint64]heard{1: ok(5), 2: ok(12),
			3: ok(11)}, current: 2, archived: 10, known: true}, 3},
		"only the leader has": {candidates{reports: map[uint64]heard{1: ok(5), 2: ok(12),
			3: ok(12)}, current: 2, archived: 10, known: true}, 1},
		"none has the entries": {candidates{reports: map[uint64]heard{1: ok(15), 2: ok(12),
			3: ok(13)}, current: 3, archived: 10, known: true}, 3},
		"the longest log": {candidates{reports: map[uint64]heard{1: ok(5), 2: ok(12),
			3: ok(5)}}, 3},
		"one that failed": {candidates{reports: map[uint64]heard{1: ok(5), 2: ok(5, failing),
			3: ok(5)}, current: 2, failed: map[uint64]time.Time{2: now}}, 3},
		"both failed": {candidates{reports: map[uint64]heard{1: ok(5), 2: ok(5),
			3: ok(5, failing)}, current: 3,
			failed: map[uint64]time.Time{2: now.Add(-time.Minute), 3: now}}, 1},
		"the leader works": {candidates{reports: map[uint64]heard{1: ok(5), 2: ok(5), 3: ok(5)},
			current: 1, failed: map[uint64]time.Time{2: now.Add(-time.Minute), 3: now}}, 1},
		"another one again": {candidates{reports: map[uint64]heard{1: ok(5), 2: ok(5), 3: ok(5)},
			current: 1, failed: map[uint64]time.Time{2: now.Add(-avoidFor), 3: now}}, 2},
		"all failed": {candidates{reports: map[uint64]heard{1: ok(5, failing), 2: ok(5),
			3: ok(5)}, current: 1,
			failed: map[uint64]time.Time{1: now, 2: now.Add(-2 * time.Minute),
				3: now.Add(-time.Minute)}}, 2},
		"one with an empty bucket": {candidates{reports: map[uint64]heard{1: ok(5),
			2: ok(5, vacant), 3: ok(5)}, current: 2}, 3},
		"only empty buckets": {candidates{reports: map[uint64]heard{1: ok(5, vacant),
			2: ok(5, vacant), 3: ok(5, vacant)}}, 2},
		"a new place": {candidates{reports: map[uint64]heard{2: ok(5, vacant)},
			archived: 10, known: true}, 2},
		"alone": {candidates{reports: map[uint64]heard{1: ok(5)},
			voters: []uint64{1}}, 1},
		"no able": {candidates{reports: map[uint64]heard{}}, 0},
	} {
		c.self = 1
		if c.voters == nil {
			c.voters = []uint64{1, 2, 3}
		}
		if got := c.choose(now); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestHold(t *testing.T) {
	h := NewHold(1 << 20) // 1024 entries
	check := func(what string, first, cut uint64, extra int64, want uint64) {
		t.Helper()
		if got := h.LimitTruncation(first, cut, extra); got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	check("nothing is known", 1000, 1100, 0, 999)
	check("too many entries", 1000, 999+1025, 0, 999+1025)
	check("as many entries", 1000, 999+1024, 0, 999)
	check("too many bytes", 1000, 1100, 1<<20+1, 1100)
	h.noteArchived(1050)
	check("a part", 1000, 1100, 1<<20, 1050)
	if h.Held() != 50 {
		t.Errorf("%d entries are held", h.Held())
	}
	check("all", 1000, 1040, 0, 1040)
	h.noteArchived(20)
	check("it does not fall", 1000, 1100, 0, 1050)
	h.setOff(true)
	check("off", 1000, 1100, 0, 1100)
}

func FuzzWire(f *testing.F) {
	o := order{1, 2, 3, archive.ID{4}}
	r := report{has: true, id: archive.ID{5}, appointed: true, known: true, first: 1, applied: 2,
		archived: 3, revision: 4, failing: time.Second, text: "no"}
	f.Add(o.encode())
	f.Add(r.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if o, err := decodeOrder(b); err == nil {
			if again, err := decodeOrder(o.encode()); err != nil || again != o {
				t.Fatalf("%+v is %+v again (%v)", o, again, err)
			}
		}
		if r, err := decodeReport(b); err == nil && len(r.text) <= maxErrorText {
			if again, err := decodeReport(r.encode()); err != nil || again != r {
				t.Fatalf("%+v is %+v again (%v)", r, again, err)
			}
		}
	})
}

func TestPlanKeepsFewParts(t *testing.T) {
	// Bases of equal additions: the number of parts stays small, and each record is written a few
	// times.
	const full, step = 1 << 20, 1000
	parts, written := []partOf{}, int64(0)
	for i := range int64(2000) {
		revision := (i + 1) * 10
		pieces := planRecords(archiveParts(parts), tallies(parts, 10, step), revision, full)
		parts, written = apply(t, pieces, parts, revision, 10, step, written)
		if len(parts) > 30 {
			t.Fatalf("%d parts after %d bases", len(parts), i+1)
		}
	}
	if written > 25*2000*step {
		t.Errorf("%d bytes were written for %d", written, 2000*step)
	}
}

// TestPlanDropsGarbage rewrites parts of which less than half counts, and nothing else.
func TestPlanDropsGarbage(t *testing.T) {
	parts := []partOf{{0, 10, 100, 1 << 20}, {10, 20, 100, 1 << 20}, {20, 30, 100, 1 << 20}}
	counts := []tally{{items: 100, bytes: 1 << 20}, {items: 49, bytes: 1 << 19},
		{items: 50, bytes: 1 << 19}, {items: 1, bytes: 10}}
	pieces := planRecords(archiveParts(parts), counts, 31, 1<<20)
	if len(pieces) != 4 || pieces[0].keep == nil || pieces[1].keep != nil ||
		pieces[2].keep == nil || pieces[3].keep != nil {
		t.Errorf("%+v", pieces)
	}
}

// TestLateOrder: a member that is appointed while a call to it is under way, with the order of
// before, gets its order when that ends.
func TestLateOrder(t *testing.T) {
	var l leader
	l.init()
	l.resetLocked(5)
	woken := func() bool {
		select {
		case <-l.again:
			return true
		default:
			return false
		}
	}
	if !l.beginCall(5, 2) || l.beginCall(5, 2) {
		t.Fatal("one call at a time")
	}
	l.endCall(5, 2)
	if woken() {
		t.Error("woken for a member that was not appointed")
	}
	for range 2 {
		l.mu.appointee = 0
		l.beginCall(5, 2)
		l.mu.appointee = 2
		if l.beginCall(5, 2) {
			t.Fatal("one call at a time")
		}
		l.endCall(5, 2)
		if !woken() || woken() {
			t.Error("the order waits for the next round")
		}
	}
}
