package wal

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"go.etcd.io/raft/v3"
	"google.golang.org/protobuf/proto"

	"vigil/internal/vfs"
	"vigil/internal/vfs/memfs"
)

// Readers and truncation concurrently with the appender: a read returns the entries that were
// appended, or that they are gone, and never what a recycled file holds now.
func TestConcurrentReads(t *testing.T) {
	for name, o := range map[string]Options{
		"memory": testOptions(memfs.New()),
		"disk":   {FS: vfs.OS(), Dir: filepath.Join(t.TempDir(), "wal"), ID: testID},
	} {
		t.Run(name, func(t *testing.T) {
			o.SegmentBytes = 16 << 10
			o.CacheBytes = 4 << 10
			w := create(t, o, Start{})
			defer func() { must(t, w.Close()) }()
			appended, stop := make(chan uint64, 1), make(chan struct{})
			var last atomic.Uint64
			var reads atomic.Int64
			var wg sync.WaitGroup
			for i := range 3 {
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(i), 9))
					for {
						select {
						case <-stop:
							return
						default:
						}
						if err := readSome(w, rng, last.Load()); err != nil {
							t.Error(err)
							return
						}
						reads.Add(1)
					}
				})
			}
			wg.Go(func() {
				// What the log does with its files is never a difference.
				for {
					select {
					case <-stop:
						return
					default:
					}
					if err := w.CheckPlaces(); err != nil {
						t.Error(err)
						return
					}
				}
			})
			wg.Go(func() {
				for n := range appended {
					if err := w.TruncateBefore(n); err != nil {
						t.Error(err)
					}
				}
			})
			done := func() bool {
				m := w.Metrics()
				return m.Recycled > 0 && m.DiskReads > 0 && reads.Load() > 100
			}
			for next := uint64(1); next < 2000 || !done(); {
				must(t, w.Append(Batch{Entries: entries(next, 1, 8, 200), Sync: next%5 == 0}))
				next += 8
				last.Store(next - 1)
				if next > 200 {
					select {
					case appended <- next - 150:
					default:
					}
				}
			}
			close(stop)
			close(appended)
			wg.Wait()
		})
	}
}

func readSome(w *WAL, rng *rand.Rand, last uint64) error {
	first, _ := w.FirstIndex()
	if last <= first {
		return nil
	}
	lo := first + rng.Uint64N(last-first)
	ents, err := w.Entries(lo, last+1, rng.Uint64N(20000))
	if errors.Is(err, raft.ErrCompacted) {
		return nil
	}
	if err != nil {
		return err
	}
	for i, e := range ents {
		if want := entries(lo+uint64(i), 1, 1, 200)[0]; !proto.Equal(e, want) {
			return fmt.Errorf("entry %d is %v", lo+uint64(i), e)
		}
	}
	return nil
}

// The log answers as raft's own storage in memory does, for the same calls.
func TestAgainstMemoryStorage(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 11))
		o := testOptions(memfs.New())
		o.CacheBytes = 3000
		w := create(t, o, Start{})
		m := raft.NewMemoryStorage()
		term := uint64(1)
		for range 300 {
			first, _ := m.FirstIndex()
			last, _ := m.LastIndex()
			switch rng.IntN(8) {
			case 0:
				if last >= first {
					i := first + rng.Uint64N(last-first+1)
					must(t, m.Compact(i))
					must(t, w.TruncateBefore(i+1))
				}
			case 1, 2, 3:
				lo, limit := first-min(first, 2)+rng.Uint64N(last-first+4), rng.Uint64N(3000)
				hi := last + 1
				if lo >= hi {
					continue
				}
				want, werr := m.Entries(lo, hi, limit)
				got, err := w.Entries(lo, hi, limit)
				if err != werr || !sameEntries(got, want) {
					t.Fatalf("seed %d: Entries(%d, %d, %d):%s, %v, want%s, %v", seed, lo, hi, limit,
						describe(got), err, describe(want), werr)
				}
				cached, err := w.Cached(lo, hi, limit)
				if err != werr || len(cached) > 0 && !sameEntries(cached, want) {
					t.Fatalf("seed %d: Cached(%d, %d, %d):%s, %v, want%s or nothing, %v", seed, lo,
						hi, limit, describe(cached), err, describe(want), werr)
				}
				outline, err := w.Outline(lo, hi)
				if err != werr {
					t.Fatalf("seed %d: Outline(%d, %d): %v, want %v", seed, lo, hi, err, werr)
				}
				for i, e := range outline {
					if i >= len(want) {
						break
					}
					o := want[i]
					if e.GetIndex() != o.GetIndex() || e.GetTerm() != o.GetTerm() ||
						e.GetType() != o.GetType() {
						t.Fatalf("seed %d: Outline(%d, %d): %v, want %v", seed, lo, hi, e, o)
					}
				}
			case 4:
				i := first - min(first, 2) + rng.Uint64N(last-first+4)
				want, werr := m.Term(i)
				got, err := w.Term(i)
				if err != werr || got != want {
					t.Fatalf("seed %d: Term(%d): %d, %v, want %d, %v", seed, i, got,
						err, want, werr)
				}
			default:
				next := last + 1
				if rng.IntN(4) == 0 && last >= first {
					next = first + rng.Uint64N(last-first+1)
					term++
				}
				ents := entries(next, term, rng.IntN(6)+1, rng.IntN(400))
				must(t, m.Append(ents))
				must(t, w.Append(Batch{Entries: ents, Sync: true}))
			}
			f, _ := w.FirstIndex()
			l, _ := w.LastIndex()
			wf, _ := m.FirstIndex()
			wl, _ := m.LastIndex()
			if f != wf || l != wl {
				t.Fatalf("seed %d: from %d to %d, want from %d to %d", seed, f, l, wf, wl)
			}
		}
		if _, err := w.Entries(1, math.MaxUint64, 1); err == nil {
			t.Fatal("read beyond the end")
		}
	}
}
