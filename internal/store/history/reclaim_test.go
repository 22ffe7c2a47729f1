package history

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/vfs"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

// compactBucket is where the tests keep their compact revision.
const compactBucket = 3

// keyOf is the key that a record of the tests is of.
func (r *rec) keyOf() byte {
	if len(r.data) == 0 {
		return 0
	}
	return r.data[0] % 7
}

// compacted returns the compact revision.
func (m *model) compacted() int64 {
	v := m.meta()[compactBucket]["compact"]
	if v == "" {
		return 0
	}
	return int64(binary.BigEndian.Uint64([]byte(v)))
}

// dead returns the records that the compact revision makes needless, oldest first.
func (m *model) dead() (dead []DeadRecord) {
	compact := m.compacted()
	newest := map[byte]kv.Rev{}
	recs := m.recs()
	for i := range recs {
		if recs[i].rev.Main < compact {
			newest[recs[i].keyOf()] = recs[i].rev
		}
	}
	for i := range recs {
		r := &recs[i]
		if r.rev.Main < compact && (r.rev != newest[r.keyOf()] || r.tombstone) {
			dead = append(dead, DeadRecord{r.rev, r.tombstone})
		}
	}
	return dead
}

// verifyLeft compares a log whose dead records may be gone with the model. What is dead and still
// there must be as it was, and not be able to rise again: if a record of a key is there, so is what
// came after it and made it dead.
func verifyLeft(l *Log, m *model) error {
	dead := map[kv.Rev]bool{}
	for _, d := range m.dead() {
		dead[d.Rev] = true
	}
	recs := m.recs()
	v := l.View()
	present := map[kv.Rev]bool{}
	sc := v.Scan(kv.Rev{})
	defer sc.Close()
	i := 0
	for sc.Next() {
		for i < len(recs) && recs[i].rev.Less(sc.Rev()) {
			i++
		}
		if i == len(recs) || recs[i].rev != sc.Rev() || recs[i].tombstone != sc.Tombstone() ||
			!bytes.Equal(recs[i].data, sc.Data()) {
			return fmt.Errorf("scan: %v is not what was written", sc.Rev())
		}
		present[sc.Rev()] = true
	}
	if sc.Err() != nil {
		return fmt.Errorf("scan: %w", sc.Err())
	}
	risen := map[byte]*rec{}
	for i := range recs {
		r := &recs[i]
		got, err := v.Get(r.rev, nil)
		switch {
		case err == nil && !bytes.Equal(got, r.data):
			return fmt.Errorf("get %v differs", r.rev)
		case err != nil && (!errors.Is(err, ErrNotFound) || !dead[r.rev]):
			return fmt.Errorf("get %v: %w", r.rev, err)
		}
		if err == nil && r.rev.Main < m.compacted() {
			risen[r.keyOf()] = r
		}
	}
	for k, r := range risen {
		if dead[r.rev] && !r.tombstone {
			return fmt.Errorf("key %d: the record at %v is the last of those that are left and rises from the dead", k, r.rev)
		}
	}
	if err := verifyMeta(l, m.meta()); err != nil {
		return err
	}
	b := m.batches[len(m.batches)-1]
	if l.Applied() != b.applied || v.Last() != m.last().Main {
		return fmt.Errorf("applied %v last %v, want %v %v", l.Applied(), v.Last(),
			b.applied, m.last())
	}
	return l.Check(tContext)
}

// compact makes up a compaction, for a batch.
func (m *model) compact(rng *rand.Rand, last kv.Rev) Meta {
	rev := max(m.compacted(), last.Main-rng.Int64N(20))
	return Meta{Bucket: compactBucket, Key: []byte("compact"),
		Value: binary.BigEndian.AppendUint64(nil, uint64(rev))}
}

// TestReclaimCrashes is TestCrashes with compactions: rewrites end at any operation too.
//
//vigil:norace
func TestReclaimCrashes(t *testing.T) {
	n, from := rounds(t, "VIGIL_HISTORY_CRASHES", 12), rounds(t, "VIGIL_HISTORY_SEED", 0)
	var total struct {
		lives, batches, lost int
		rewrites             uint64
	}
	for seed := from; seed < from+n; seed++ {
		s := lives{rng: rand.New(rand.NewPCG(uint64(seed), 4)), reclaim: true}
		if err := s.run(20); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		total.lives += s.stats.lives
		total.batches += s.stats.batches
		total.lost += s.stats.lost
		total.rewrites += s.stats.rewrites
	}
	t.Logf("%d lives, %d batches tried, %d unsynced ones lost, %d rewrites", total.lives,
		total.batches, total.lost, total.rewrites)
	if total.rewrites == 0 {
		t.Fatal("nothing was rewritten")
	}
}

// compactSome fills a log with segments that are mostly dead, and returns what is dead in them.
func compactSome(t *testing.T, l *Log, m *model) []DeadRecord {
	t.Helper()
	rng := seeded(t, 5)
	for range 300 {
		b := m.randomBatch(rng, m.last(), m.batches[len(m.batches)-1].applied.Index+1)
		m.batches = append(m.batches, b)
		if err := appendBatch(l, b); err != nil {
			t.Fatal(err)
		}
		if err := l.Commit(b.applied); err != nil {
			t.Fatal(err)
		}
	}
	b := batch{applied: m.batches[len(m.batches)-1].applied}
	b.applied.Index++
	b.metas = []Meta{{Bucket: compactBucket, Key: []byte("compact"),
		Value: binary.BigEndian.AppendUint64(nil, uint64(m.last().Main-5))}}
	m.batches = append(m.batches, b)
	if err := appendBatch(l, b); err != nil {
		t.Fatal(err)
	}
	if err := l.Commit(b.applied); err != nil {
		t.Fatal(err)
	}
	return m.dead()
}

// TestReclaimReaders reads everything by every way while segments are merged, again and again, with
// files mapped and not: a view from before, and scanners that are halfway.
func TestReclaimReaders(t *testing.T) {
	for _, mapped := range []bool{true, false} {
		t.Run(fmt.Sprintf("mapped=%v", mapped), func(t *testing.T) {
			var fsys vfs.FS = memfs.New()
			if !mapped {
				fsys = unmapped{fsys}
			}
			o := testOptions(fsys)
			o.SegmentBytes = minSegmentBytes
			l, m := create(t, o)
			dead := compactSome(t, l, m)
			gone := map[kv.Rev]bool{}
			for _, d := range dead {
				gone[d.Rev] = true
			}
			var live []rec
			for _, r := range m.recs() {
				if !gone[r.rev] {
					live = append(live, r)
				}
			}
			stop := make(chan struct{})
			var wg sync.WaitGroup
			old := l.View()
			for n := range 4 {
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(n), 9))
					for round := 0; ; round++ {
						select {
						case <-stop:
							return
						default:
						}
						v := old
						if rng.IntN(2) == 0 {
							v = l.View()
						}
						i := 0
						sc := v.Scan(kv.Rev{})
						for sc.Next() {
							if i < len(live) && sc.Rev() == live[i].rev {
								if !bytes.Equal(sc.Data(), live[i].data) {
									t.Errorf("scan: %v differs", sc.Rev())
								}
								i++
							} else if !gone[sc.Rev()] {
								t.Errorf("scan: %v comes instead of %v", sc.Rev(),
									live[min(i, len(live)-1)].rev)
								return
							}
						}
						if sc.Err() != nil || i != len(live) {
							t.Errorf("scan: %d of %d live records: %v", i, len(live), sc.Err())
							return
						}
						sc.Close()
						for _, p := range v.Split(3) {
							for p.Next() {
								if len(p.Data()) > 1<<20 {
									t.Error("a record that was not written")
								}
							}
							if p.Err() != nil {
								t.Error(p.Err())
								return
							}
							p.Close()
						}
						r := live[rng.IntN(len(live))]
						if b, err := v.Get(r.rev, nil); err != nil || !bytes.Equal(b, r.data) {
							t.Errorf("get %v: %v", r.rev, err)
							return
						}
					}
				})
			}
			// A few at a time, so that there are many rewrites.
			for len(dead) > 0 {
				n := min(len(dead), 20)
				if err := l.Dead(dead[:n]); err != nil {
					t.Fatal(err)
				}
				dead = dead[n:]
				l.Reclaim()
				waitReclaimed(t, l)
			}
			close(stop)
			wg.Wait()
			if err := verifyLeft(l, m); err != nil {
				t.Fatal(err)
			}
			st := l.ReclaimStats()
			if st.Rewrites < 10 || st.Written >= st.Read || st.Failures > 0 {
				t.Fatalf("%+v", st)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if l, err := Open(o); err != nil {
				t.Fatal(err)
			} else if err := errors.Join(verifyLeft(l, m), l.Close()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func waitReclaimed(t *testing.T, l *Log) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := l.WaitReclaimed(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestReclaimFaults fails every operation of a rewrite in turn, in every way: nothing may be lost
// by it, and unless the log says that it has failed it must succeed at the next attempt.
//
//vigil:norace
func TestReclaimFaults(t *testing.T) {
	for _, fault := range []faultfs.Fault{faultfs.Fail, faultfs.FailPersisted, faultfs.ShortWrite,
		faultfs.NoSpace} {
		for n := 1; ; n++ {
			disk := memfs.New()
			armed, count := false, 0
			var mu sync.Mutex
			fsys := faultfs.New(disk, func(op faultfs.Op, _ string) faultfs.Fault {
				mu.Lock()
				defer mu.Unlock()
				if !armed || !op.Changes() {
					return faultfs.None
				}
				if count++; count == n {
					return fault
				}
				return faultfs.None
			})
			o := testOptions(fsys)
			l, m := create(t, o)
			dead := compactSome(t, l, m)
			if _, err := l.Sync(); err != nil {
				t.Fatal(err)
			}
			l.awaitAllocated()
			mu.Lock()
			armed = true
			mu.Unlock()
			if err := l.Dead(dead); err != nil {
				t.Fatal(err)
			}
			l.Reclaim()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			err := l.WaitReclaimed(ctx)
			cancel()
			mu.Lock()
			armed = false
			hit := count >= n
			mu.Unlock()
			if hit != (err != nil) && l.Err() == nil && l.ReclaimStats().Failures > 0 {
				t.Fatalf("%v at operation %d: %v", fault, n, err)
			}
			if err := verifyLeft(l, m); err != nil {
				t.Fatalf("%v at operation %d: %v", fault, n, err)
			}
			_ = l.Close()
			o.FS = disk
			l, err = Open(o)
			if err != nil {
				t.Fatalf("%v at operation %d: %v", fault, n, err)
			}
			if err := l.Dead(dead); err != nil {
				t.Fatal(err)
			}
			l.Reclaim()
			waitReclaimed(t, l)
			if err := errors.Join(verifyLeft(l, m), l.Close()); err != nil {
				t.Fatalf("%v at operation %d: %v", fault, n, err)
			}
			if !hit {
				if n < 10 {
					t.Fatalf("a rewrite has only %d operations", n)
				}
				break
			}
		}
	}
}

// After an I/O error of a rename it is unknown which of the two names is on disk: the log ends, as
// after a failed sync.
func TestFailedRenameEndsTheLog(t *testing.T) {
	for _, fault := range []faultfs.Fault{faultfs.Fail, faultfs.FailPersisted} {
		disk := memfs.New()
		renames := atomic.Int32{}
		o := testOptions(faultfs.New(disk, func(op faultfs.Op, name string) faultfs.Fault {
			if op == faultfs.OpRename &&
				strings.HasSuffix(name, format.SealedSuffix+format.TempSuffix) &&
				renames.Add(1) == 1 {
				return fault
			}
			return faultfs.None
		}))
		l, m := create(t, o)
		dead := compactSome(t, l, m)
		if _, err := l.Sync(); err != nil {
			t.Fatal(err)
		}
		if err := l.Dead(dead); err != nil {
			t.Fatal(err)
		}
		l.Reclaim()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		err := l.WaitReclaimed(ctx)
		cancel()
		if !errors.Is(err, faultfs.ErrInjected) {
			t.Fatalf("%v: %v", fault, err)
		}
		if !errors.Is(l.Err(), faultfs.ErrInjected) {
			t.Errorf("%v: the log goes on", fault)
		}
		if _, err := l.Sync(); !errors.Is(err, faultfs.ErrInjected) {
			t.Errorf("%v: Sync after it: %v", fault, err)
		}
		if err := verifyLeft(l, m); err != nil {
			t.Fatalf("%v: %v", fault, err)
		}
		_ = l.Close()
		if n := renames.Load(); n != 1 {
			t.Errorf("%v: %d rewrites", fault, n)
		}
		o.FS = disk
		if l, err = Open(o); err != nil {
			t.Fatalf("%v: %v", fault, err)
		}
		if err := errors.Join(verifyLeft(l, m), l.Close()); err != nil {
			t.Fatalf("%v: %v", fault, err)
		}
	}
}
