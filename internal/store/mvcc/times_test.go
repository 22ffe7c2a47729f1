package mvcc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"vigil/internal/kv"
)

// timesModel has the times of all revisions, as corrections left them, and whether each is still that of the record.
type timesModel struct {
	times   map[int64]int64
	exact   map[int64]bool
	rev     int64
	compact int64
}

// write notes a revision that an entry of a time has made.
func (m *timesModel) write(rev int64, newest, ms int64) {
	m.rev, m.times[rev], m.exact[rev] = rev, NextTime(newest, ms), true
}

// correct notes an entry whose time is far behind.
func (m *timesModel) correct(newest, ms int64) {
	if NextTime(newest, ms) >= newest {
		return
	}
	for rev, t := range m.times {
		if t > ms {
			m.times[rev], m.exact[rev] = ms, false
		}
	}
}

// at returns the newest revision at or before a time, 0 for none.
func (m *timesModel) at(ms int64) (found int64) {
	for rev, t := range m.times {
		if t > 0 && t <= ms {
			found = max(found, rev)
		}
	}
	return found
}

// check compares what a store says with the model. Spans of what is compacted may be wider.
func (m *timesModel) check(s *Store, r *rand.Rand) error {
	for rev := max(m.compact-20, 2); rev <= m.rev; rev++ {
		got, err := s.TimeSpan(rev)
		if err != nil {
			return err
		}
		t := m.times[rev]
		narrow := rev >= m.compact && m.exact[rev] && t > 0
		if t > 0 && (got.After >= t || got.At < t) || narrow && got != (kv.TimeSpan{After: t - 1, At: t}) || rev >= m.compact && t > 0 && got.At != t {
			return fmt.Errorf("revision %d, compacted at %d: %+v, it was made at %d", rev, m.compact, got, t)
		}
	}
	if got, err := s.TimeSpan(m.rev + 1); err != nil || got.At != 0 || got.After != max(m.times[m.rev]-1, 0) {
		return fmt.Errorf("the next revision: %+v, %v", got, err)
	}
	for range 20 {
		ms := m.times[2+r.Int64N(max(m.rev-1, 1))] + r.Int64N(3) - 1
		want := m.at(ms)
		got, err := s.RevisionAt(ms)
		var e *kv.TimeError
		switch {
		case errors.As(err, &e) && e.Reason == kv.TimeCompacted:
			if want >= m.compact || e.Bound > 0 && m.at(e.Bound) < m.compact {
				return fmt.Errorf("at %d: %v, want revision %d", ms, err, want)
			}
		case errors.As(err, &e):
			if want > 0 || e.Reason == kv.TimeBeforeFirst && e.Bound <= ms {
				return fmt.Errorf("at %d: %v, want revision %d", ms, err, want)
			}
		case err != nil || got != want:
			return fmt.Errorf("at %d: revision %d, %v, want %d", ms, got, err, want)
		}
	}
	return nil
}

// Times are those of a simple model, for clocks that jump, after compactions, reclaim and restarts, and with any batches.
func TestTimesOfRevisions(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	for round := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, round))
		b := newBed(t, Options{}, 4<<10)
		m := &timesModel{times: map[int64]int64{}, exact: map[int64]bool{}, compact: -1}
		clock := int64(0) // unknown at first, like after an import
		key := func() []byte { return fmt.Appendf(nil, "k%d", r.IntN(12)) }
		for range 400 {
			w := b.Writer()
			newest := w.times.newest
			switch n := r.IntN(40); {
			case n == 0:
				clock = max(clock, 1_800_000_000_000) + r.Int64N(1e9)
			case n == 1 && clock > 0:
				clock -= r.Int64N(2e7)
			case n == 2 && clock > 0:
				clock -= r.Int64N(MaxClockLag)
			case clock > 0:
				clock += r.Int64N(3)
			}
			m.correct(newest, clock)
			if err := w.SetTime(clock); err != nil {
				t.Fatal(err)
			}
			newest = w.times.newest
			switch r.IntN(12) {
			case 0:
				if _, err := w.DeleteRange(&kv.DeleteRangeRequest{Key: key()}); err != nil {
					t.Fatal(err)
				}
			case 1: // it has no effect
				_, err := w.Txn(&kv.TxnRequest{Success: []kv.Op{{Put: &kv.PutRequest{Key: key()}}, {Put: &kv.PutRequest{Key: []byte("none"), IgnoreValue: true}}}}, nil)
				if err == nil {
					t.Fatal("the transaction has succeeded")
				}
			case 2:
				if rev := w.rev - r.Int64N(30); r.IntN(4) == 0 && rev > w.compact {
					if _, err := w.Compact(rev); err != nil {
						t.Fatal(err)
					}
					m.compact = rev
				}
			default:
				if _, err := w.Put(&kv.PutRequest{Key: key(), Value: make([]byte, r.IntN(200))}, nil); err != nil {
					t.Fatal(err)
				}
			}
			if w.rev > m.rev && w.rev > 1 {
				m.write(w.rev, newest, clock)
			}
			if r.IntN(3) > 0 {
				continue
			}
			b.commit(t)
			switch r.IntN(20) {
			case 0:
				b.reopen(t)
			case 1:
				b.Reclaim()
				if err := b.WaitReclaimed(context.Background(), m.compact); err != nil {
					t.Fatal(err)
				}
			case 2:
				if err := m.check(b.Store, r); err != nil {
					t.Fatalf("seed %d, round %d: %v", seed, round, err)
				}
			}
		}
		b.commit(t)
		before := b.NewestTime()
		b.reopen(t)
		if after := b.NewestTime(); after != before {
			t.Fatalf("seed %d, round %d: the newest time is %d after a restart, it was %d", seed, round, after, before)
		}
		if err := m.check(b.Store, r); err != nil {
			t.Fatalf("seed %d, round %d: %v", seed, round, err)
		}
		b.close(t)
	}
}

// Times below the compact revision do not count for the newest time: members remove these records
// independently, and members that start give the next revisions the same times.
func TestNewestTimeDoesNotDependOnReclaim(t *testing.T) {
	for _, compacted := range []int64{0, 1_000_000} {
		var newest []int64
		for _, reclaimed := range []bool{false, true} {
			b := newBed(t, Options{}, 0)
			at := func(ms int64) {
				t.Helper()
				if err := b.Writer().SetTime(ms); err != nil {
					t.Fatal(err)
				}
			}
			at(900_000)
			b.put(t, "stays")
			if !reclaimed {
				at(1_000_000)
				b.put(t, "goes")
				b.delete(t, "goes", "")
			}
			b.commit(t)
			if err := b.log.AppendMeta(CompactRecord(1000, compacted)); err != nil {
				t.Fatal(err)
			}
			b.commit(t)
			b.reopen(t)
			newest = append(newest, b.NewestTime())
			b.close(t)
		}
		if newest[0] != compacted || newest[1] != compacted {
			t.Errorf("the newest times are %d, want %d", newest, compacted)
		}
	}
}

// A correction also holds for the compact revision if its record is gone.
func TestCorrectionAfterCompaction(t *testing.T) {
	b := newBed(t, Options{}, 0)
	if err := b.log.AppendMeta(CompactRecord(1000, 1_000_000)); err != nil {
		t.Fatal(err)
	}
	b.commit(t)
	b.reopen(t)
	for range 2 {
		if err := b.Writer().SetTime(500_000); err != nil {
			t.Fatal(err)
		}
		b.put(t, "k")
		b.commit(t)
		for rev := int64(1000); rev <= b.Writer().Revision(); rev++ {
			if got, err := b.TimeSpan(rev); err != nil || got.At != 500_000 || got.After >= got.At {
				t.Errorf("revision %d: %+v, %v", rev, got, err)
			}
		}
		for ms, want := range map[int64]int64{500_000: b.Writer().Revision(), 499_999: 0} {
			if got, err := b.RevisionAt(ms); got != want || (err != nil) != (want == 0) {
				t.Errorf("at %d: revision %d, %v; want %d", ms, got, err, want)
			}
		}
		b.reopen(t)
	}
	b.close(t)
}

// Corrections are forgotten when they say nothing any more, and when there are too many.
func TestCorrectionsAreBounded(t *testing.T) {
	b := newBed(t, Options{}, 0)
	w := b.Writer()
	at := func(ms int64) {
		t.Helper()
		if err := w.SetTime(ms); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Put(&kv.PutRequest{Key: []byte("k")}, nil); err != nil {
			t.Fatal(err)
		}
	}
	for i := range int64(MaxSetBacks + 50) {
		at(i*100_000 + 90_000)
		at(i*100_000 + 50_000) // a correction
	}
	b.commit(t)
	b.reopen(t)
	w = b.Writer()
	if n := len(w.times.backs); n != MaxSetBacks {
		t.Errorf("%d corrections, the limit is %d", n, MaxSetBacks)
	}
	at(1) // earlier than all
	if n := len(w.times.backs); n != 1 {
		t.Errorf("%d corrections after one that is earlier than all", n)
	}
	b.commit(t)
	b.reopen(t)
	if n := len(b.Writer().times.backs); n != 1 || b.NewestTime() != 1 {
		t.Errorf("%d corrections after a restart, the newest time is %d", n, b.NewestTime())
	}
	b.close(t)
}
