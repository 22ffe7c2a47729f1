package history

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/vfs/memfs"
)

// rises returns the key that is alive in what a scan showed though it was deleted, or replaced by a
// record that is not there: the newest record of the key below the compact revision is one that a
// later one made dead.
func rises(m *model, shown map[kv.Rev]bool) error {
	dead := map[kv.Rev]bool{}
	for _, d := range m.dead() {
		dead[d.Rev] = true
	}
	newest := map[byte]*rec{}
	recs := m.recs()
	for i := range recs {
		r := &recs[i]
		if !shown[r.rev] {
			if !dead[r.rev] {
				return fmt.Errorf("the record at %v is missing", r.rev)
			}
			continue
		}
		if r.rev.Main < m.compacted() {
			newest[r.keyOf()] = r
		}
	}
	for k, r := range newest {
		if dead[r.rev] && !r.tombstone {
			return fmt.Errorf("key %d: the record at %v rises from the dead", k, r.rev)
		}
	}
	return nil
}

// churn makes a log of many small segments that belong to few keys, most of them deleted in the
// end, and returns what is dead.
func churn(t *testing.T, l *Log, m *model) []DeadRecord {
	t.Helper()
	rng := seeded(t, 17)
	write := func(b batch) {
		b.applied = Applied{Term: 1, Index: m.batches[len(m.batches)-1].applied.Index + 1}
		m.batches = append(m.batches, b)
		if err := appendBatch(l, b); err != nil {
			t.Fatal(err)
		}
		if err := l.Commit(b.applied); err != nil {
			t.Fatal(err)
		}
	}
	change := func(key byte, tombstone bool) {
		data := make([]byte, 200)
		data[0] = key
		write(batch{recs: []rec{{rev: kv.Rev{Main: m.last().Main + 1},
			tombstone: tombstone, data: data}}})
	}
	for range 600 {
		change(byte(rng.IntN(7)), rng.IntN(2) == 0)
	}
	for key := range byte(5) {
		change(key, true)
	}
	for range 30 {
		change(6, false)
	}
	compact := m.compact(rng, m.last())
	write(batch{metas: []Meta{compact}})
	if _, err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	return m.dead()
}

// A Scanner of Hold shows the segments as they were at one moment: a deletion is missing only if
// all that it deletes is missing too, however many segments are rewritten while they are taken.
func TestHoldBesideReclaim(t *testing.T) {
	for _, chunk := range []int{50} {
		o := testOptions(memfs.New())
		o.SegmentBytes = minSegmentBytes
		l, m := create(t, o)
		dead := churn(t, l, m)
		old := l.View()
		stop := make(chan struct{})
		var wg sync.WaitGroup
		var holds, looked atomic.Int64
		for range 8 * runtime.GOMAXPROCS(0) {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					// What is rewritten while Hold takes its segments is rewritten while this
					// goroutine does not run, so that only holds that took long are worth a look.
					before := l.ReclaimStats().Rewrites
					sc, err := old.Hold(kv.Rev{})
					if err != nil {
						t.Error(err)
						return
					}
					if holds.Add(1); l.ReclaimStats().Rewrites > before {
						looked.Add(1)
						shown := map[kv.Rev]bool{}
						for sc.Next() {
							shown[sc.Rev()] = true
						}
						if err := errors.Join(sc.Err(), rises(m, shown)); err != nil {
							t.Error(err)
							return
						}
					}
					sc.Close()
				}
			})
		}
		for part := range slices.Chunk(dead, chunk) {
			if err := l.Dead(part); err != nil {
				t.Fatal(err)
			}
			l.Reclaim()
			waitReclaimed(t, l)
		}
		close(stop)
		wg.Wait()
		t.Logf("%d holds, %d of them while segments were rewritten, %+v", holds.Load(),
			looked.Load(), l.ReclaimStats())
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// What is taken of the segments before some of them are rewritten does not pass for one state with
// what is taken afterwards, wherever that is.
func TestTakeNoticesRewrites(t *testing.T) {
	noticed := 0
	for part := 1; part < 10; part++ {
		o := testOptions(memfs.New())
		o.SegmentBytes = minSegmentBytes
		l, m := create(t, o)
		dead := churn(t, l, m)
		spans := l.View().spans(kv.Rev{})
		at := len(spans) * part / 10
		takeAll := func(spans []span) {
			for i := range spans {
				if err := spans[i].holdSource(); err != nil {
					t.Fatal(err)
				}
			}
		}
		takeAll(spans[:at])
		if err := l.Dead(dead); err != nil {
			t.Fatal(err)
		}
		l.Reclaim()
		waitReclaimed(t, l)
		takeAll(spans[at:])
		for i := range spans {
			if err := spans[i].findRecords(); err != nil {
				t.Fatal(err)
			}
		}
		moved := slices.ContainsFunc(spans, span.hasMoved)
		sc := &Scanner{spans: spans, held: true}
		shown := map[kv.Rev]bool{}
		for sc.Next() {
			shown[sc.Rev()] = true
		}
		if sc.Err() != nil {
			t.Error(sc.Err())
		}
		if err := rises(m, shown); err != nil {
			noticed++
			if !moved {
				t.Errorf("%v, and nothing has moved", err)
			}
		}
		sc.Close()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if noticed == 0 {
		t.Error("nothing rose")
	}
}
