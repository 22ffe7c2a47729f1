package history

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vigil/internal/vfs/memfs"
)

// TestCandidatesAreNeighbors: segments that are sealed while candidates are taken leave no hole
// between those. The segments of a hole would be lost when its neighbors are merged. One that is
// sealed just before is not left out either: its garbage counts.
func TestCandidatesAreNeighbors(t *testing.T) {
	o := testOptions(memfs.New())
	o.SegmentBytes = minSegmentBytes
	l, m := create(t, o)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				run := l.cat.findCandidates().segs
				v := l.View()
				if len(run) > len(v.segs) || !slices.Equal(v.segs[:len(run)], run) {
					t.Error("a segment is left out")
					return
				}
				next := uint64(1)
				for i, s := range v.segs {
					if s.id != next || s.last != v.lasts[i] || i+1 < len(v.segs) &&
						s.full() != nil {
						t.Errorf("segment %d of %d has id %d, want %d", i, len(v.segs), s.id, next)
						return
					}
					next++
				}
				if v.open.id != next || v.growing.Head.ID != next {
					t.Errorf("the open segment %d does not follow %d segments",
						v.open.id, len(v.segs))
					return
				}
			}
		})
	}
	rng := seeded(t, 5)
	for until := time.Now().Add(200 * time.Millisecond); time.Now().Before(until); {
		b := m.randomBatch(rng, m.last(), m.batches[len(m.batches)-1].applied.Index+1)
		m.batches = append(m.batches, b)
		if err := appendBatch(l, b); err != nil {
			t.Fatal(err)
		}
		if err := l.Commit(b.applied); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestRewriteOfNeighborsOnly: what lies between segments that are merged would be lost.
func TestRewriteOfNeighborsOnly(t *testing.T) {
	o := testOptions(memfs.New())
	o.SegmentBytes = minSegmentBytes
	l, m := create(t, o)
	compactSome(t, l, m)
	if _, err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	segs := l.cat.segments()
	_, err := l.rec.rewriteRun(context.Background(), []*segment{segs[0], segs[2]}, math.MaxInt64)
	if err == nil || !strings.Contains(err.Error(), "not neighbors") {
		t.Errorf("error %v", err)
	}
	if err := verifyLog(l, m); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
