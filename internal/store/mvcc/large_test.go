package mvcc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"sync"
	"testing"
	"time"
	"vigil/internal/kv"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc/record"
	"vigil/internal/store/ration"
)

// shorten puts a long list into one buffer and gives its pieces back.
func shorten(l *kv.LongRecords) (kv.Records, error) {
	var all []byte
	for _, p := range l.Pieces {
		all = append(all, *p...)
		for i := range *p {
			(*p)[i] = 0xff
		}
		l.Lender.Return(p)
	}
	if len(all) != l.Bytes {
		return kv.Records{}, fmt.Errorf("%d bytes in the pieces, said to be %d", len(all), l.Bytes)
	}
	out := kv.Records{Buf: []byte{}}
	for len(all) > 0 {
		size, n := binary.Uvarint(all[1:])
		if all[0] != 0x12 || n <= 0 || size > uint64(len(all)-1-n) {
			return kv.Records{}, errors.New("a frame is broken")
		}
		out.Buf = append(out.Buf, all[1+n:1+n+int(size)]...)
		out.Close()
		all = all[1+n+int(size):]
	}
	if out.Len() != l.N {
		return kv.Records{}, fmt.Errorf("%d records, said to be %d", out.Len(), l.N)
	}
	var last record.KeyValue
	if err := last.Decode(out.At(out.Len() - 1)); err != nil || string(last.Key) != l.Last {
		return kv.Records{}, fmt.Errorf("the last key is %q, said to be %q (%v)", last.Key, l.Last, err)
	}
	return out, nil
}

// largeBed is a store whose values are up to most bytes, and a second one on the same log that takes
// the memory of results from a budget.
func largeBed(t testing.TB, rng *rand.Rand, keys, most int, limit int64) (b *bed, lending *Store, budget *ration.Budget) {
	t.Helper()
	b = newBed(t, Options{}, 1<<20)
	w := b.Writer()
	for i := range 3 * keys {
		value := make([]byte, rng.IntN(1+rng.IntN(most)))
		for j := range value {
			value[j] = byte(rng.Uint32())
		}
		if _, err := w.Put(&kv.PutRequest{Key: fmt.Appendf(nil, "k%05d", rng.IntN(keys)), Value: value}, nil); err != nil {
			t.Fatal(err)
		}
		if i%10 == 9 {
			if _, err := w.DeleteRange(&kv.DeleteRangeRequest{Key: fmt.Appendf(nil, "k%05d", rng.IntN(keys))}); err != nil {
				t.Fatal(err)
			}
			b.commit(t)
		}
	}
	b.commit(t)
	budget, err := ration.New(limit)
	if err != nil {
		t.Fatal(err)
	}
	if lending, err = Open(b.log, Options{Ranges: budget}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		lending.Close()
		b.close(t)
		if s := budget.Stats(); s.Held != 0 || s.Waiting != 0 {
			t.Errorf("the budget at the end: %+v", s)
		}
	})
	return b, lending, budget
}

// TestLargeRanges: what is read into lent pieces is what is read into one buffer, for every kind of
// request, also when many reads want more memory than there is.
//
//vigil:norace
func TestLargeRanges(t *testing.T) {
	rng := seed(t)
	const keys = 400
	b, lending, budget := largeBed(t, rng, keys, 100<<10, 4<<20)
	request := func(rng *rand.Rand) *kv.RangeRequest {
		r := &kv.RangeRequest{Key: fmt.Appendf(nil, "k%05d", rng.IntN(keys)), End: []byte{0}}
		pick := func(most int64) int64 { return max(0, rng.Int64N(2*most)-most) }
		r.Limit, r.Revision = pick(keys), pick(b.Revision())
		r.Sort, r.Order = kv.SortTarget(rng.IntN(5)), kv.SortOrder(rng.IntN(3))
		r.KeysOnly = rng.IntN(5) == 0
		if rng.IntN(3) == 0 {
			r.MinModRevision, r.MaxCreateRevision = pick(b.Revision()), pick(b.Revision())
		}
		switch rng.IntN(4) {
		case 0:
			r.Key = []byte{0}
		case 1:
			r.Limit, r.Revision, r.Order = 0, 0, 0
			r.Sort, r.MinModRevision, r.MaxCreateRevision = 0, 0, 0
		}
		return r
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	long := 0
	for i := range uint64(8) {
		rng := rand.New(rand.NewPCG(rng.Uint64(), i))
		wg.Go(func() {
			for range rounds(t, 12) {
				req := request(rng)
				want, err := b.Range(t.Context(), req)
				if err != nil {
					t.Error(err)
					return
				}
				got, err := lending.Range(t.Context(), req)
				if err != nil {
					t.Errorf("%+v: %v", req, err)
					return
				}
				if got.KVs.Long != nil {
					mu.Lock()
					long++
					mu.Unlock()
					time.Sleep(time.Duration(rng.IntN(3)) * time.Millisecond) // as if it were sent
				}
				plainWant, _ := plainRange(want)
				plainGot, err := plainRange(got)
				if err != nil || !reflect.DeepEqual(plainGot, plainWant) {
					t.Errorf("%+v: %v: the answers differ: %d keys, %d, %v; want %d, %d, %v", req, err,
						len(plainGot.KVs), got.Count, got.More, len(plainWant.KVs), want.Count, want.More)
				}
			}
		})
	}
	wg.Wait()
	s := budget.Stats()
	t.Logf("%d long answers, %d had to wait", long, s.Waits)
	if long == 0 || s.Waits == 0 {
		t.Error("nothing was large")
	}
}

// TestLargeTxn: the ranges of a read-only transaction are one answer.
func TestLargeTxn(t *testing.T) {
	b, lending, budget := largeBed(t, seed(t), 300, 60<<10, 4<<20)
	all := &kv.RangeRequest{Key: []byte{0}, End: []byte{0}}
	txn := &kv.TxnRequest{Success: []kv.Op{{Range: all}, {Range: &kv.RangeRequest{Key: []byte("k")}},
		{Txn: &kv.TxnRequest{Success: []kv.Op{{Range: all}}}}}}
	want, err := b.ReadTxn(t.Context(), txn)
	if err != nil {
		t.Fatal(err)
	}
	// While another holds memory it has to wait; before that it gives back what it had.
	other, err := budget.Force(t.Context(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		got, err := lending.ReadTxn(t.Context(), txn)
		if err == nil {
			var plain, wanted *modelResult
			if plain, err = plainTxn(got); err == nil {
				if wanted, _ = plainTxn(want); !reflect.DeepEqual(plain, wanted) {
					err = errors.New("the answers differ")
				}
			}
		}
		done <- err
	}()
	for !budget.Waiting() {
		time.Sleep(time.Millisecond)
	}
	if held := budget.Stats().Held; held != 1<<20 {
		t.Errorf("%d bytes are held while one waits", held)
	}
	other.Abandon()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	// A transaction that fails gives back what its first ranges took.
	bad := &kv.TxnRequest{Success: []kv.Op{{Range: all}, {Put: &kv.PutRequest{Key: []byte("k")}}}}
	if _, err := lending.ReadTxn(t.Context(), bad); err != errReadOnly {
		t.Fatal(err)
	}
	// And so does one whose client goes away while it waits.
	if other, err = budget.Force(t.Context(), 4<<20); err != nil {
		t.Fatal(err)
	}
	defer other.Abandon()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := lending.ReadTxn(ctx, txn)
		done <- err
	}()
	for !budget.Waiting() {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if s := budget.Stats(); s.Held != 4<<20 || s.Waiting != 0 || s.GaveUp != 1 {
		t.Fatalf("%+v", s)
	}
}

// TestLargeSkewed: an estimate that is far too low or too high still ends in the right answer.
//
//vigil:norace
func TestLargeSkewed(t *testing.T) {
	for _, late := range []bool{true, false} {
		b := newBed(t, Options{}, 0)
		budget, _ := ration.New(4 << 20)
		for i := range 3000 {
			value := make([]byte, 10)
			if (i >= 2990) == late && (late || i < 10) {
				value = make([]byte, 1<<20)
			}
			if _, err := b.Writer().Put(&kv.PutRequest{Key: fmt.Appendf(nil, "%04d", i), Value: value}, nil); err != nil {
				t.Fatal(err)
			}
		}
		b.commit(t)
		s, err := Open(b.log, Options{Ranges: budget})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				res, err := s.Range(t.Context(), &kv.RangeRequest{Key: []byte{0}, End: []byte{0}})
				if err != nil {
					t.Error(err)
					return
				}
				if kvs, err := plainKVs(res.KVs); err != nil || len(kvs) != 3000 {
					t.Errorf("%d keys, %v", len(kvs), err)
				}
			})
		}
		wg.Wait()
		if st := budget.Stats(); st.Held != 0 {
			t.Errorf("%+v", st)
		}
		s.Close()
		b.close(t)
	}
}

// TestLargeWait: a read that waits for memory has not read the records for which it waits, whatever reads them, and
// keeps nothing that it has read before.
func TestLargeWait(t *testing.T) {
	const limit, size, reads = 16 << 20, 1 << 20, 40
	for name, files := range map[string]bool{"in memory": false, "in files": true} {
		t.Run(name, func(t *testing.T) {
			segment := int64(0)
			if files {
				segment = 1 << 20
			}
			b := newBed(t, Options{}, segment)
			for _, key := range []string{"a", "b", "c", "d"} {
				n := size
				if key == "a" {
					n = 20 << 10
				}
				if _, err := b.Writer().Put(&kv.PutRequest{Key: []byte(key), Value: make([]byte, n)}, nil); err != nil {
					t.Fatal(err)
				}
				b.commit(t)
			}
			budget, err := ration.New(limit)
			if err != nil {
				t.Fatal(err)
			}
			s, err := Open(b.log, Options{Ranges: budget})
			if err != nil {
				t.Fatal(err)
			}
			defer b.close(t)
			defer s.Close()
			all := kv.RangeRequest{Key: []byte("a"), End: []byte("z")}
			one := kv.RangeRequest{Key: []byte("b")}
			byValue, byVersion := all, all
			byValue.Sort, byValue.Order = kv.SortByValue, kv.SortDescend
			byVersion.Sort, byVersion.Order = kv.SortByVersion, kv.SortDescend
			compare := kv.TxnRequest{Compare: []kv.Compare{{Key: []byte("c"), Target: kv.CompareValue, Result: kv.Equal}}}
			ranges := kv.TxnRequest{Success: []kv.Op{{Range: &one}, {Range: &all}}}
			for what, read := range map[string]func(context.Context) error{
				"one":        func(ctx context.Context) error { _, err := s.Range(ctx, &one); return err },
				"all":        func(ctx context.Context) error { _, err := s.Range(ctx, &all); return err },
				"by value":   func(ctx context.Context) error { _, err := s.Range(ctx, &byValue); return err },
				"by version": func(ctx context.Context) error { _, err := s.Range(ctx, &byVersion); return err },
				"compare":    func(ctx context.Context) error { _, err := s.ReadTxn(ctx, &compare); return err },
				"ranges":     func(ctx context.Context) error { _, err := s.ReadTxn(ctx, &ranges); return err },
			} {
				others, err := budget.Take(t.Context(), limit)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				for range reads {
					wg.Go(func() {
						if err := read(ctx); err != context.Canceled {
							t.Errorf("%s: without memory: %v", what, err)
						}
					})
				}
				for deadline := time.Now().Add(time.Minute); budget.Stats().Waiting < reads && !t.Failed(); time.Sleep(time.Millisecond) {
					if time.Now().After(deadline) {
						t.Fatalf("%s: %+v", what, budget.Stats())
					}
				}
				runtime.ReadMemStats(&after)
				if n := (after.TotalAlloc - before.TotalAlloc) / reads; n > 256<<10 {
					t.Errorf("%s: each read has allocated %d bytes, and waits", what, n)
				}
				cancel()
				wg.Wait()
				others.Abandon()
				wantHeld(t, budget)
			}
		})
	}
}

func wantHeld(t *testing.T, b *ration.Budget) {
	t.Helper()
	if s := b.Stats(); s.Held != 0 || s.Waiting != 0 {
		t.Errorf("%+v", s)
	}
}

// TestReclaimed: a record that is gone because of a compaction above the revision that is read is no
// fault of the log: a read at that revision fails as compacted, and one of the newest begins anew. A
// record that is gone without such a compaction is an error.
func TestReclaimed(t *testing.T) {
	b := newBed(t, Options{}, 0)
	w := b.Writer()
	for i := range 10 {
		if _, err := w.Put(&kv.PutRequest{Key: fmt.Appendf(nil, "%d", i), Value: []byte("v")}, nil); err != nil {
			t.Fatal(err)
		}
	}
	b.commit(t)
	empty := newBed(t, Options{}, 0)
	old := b.read()
	old.hist = empty.log.View() // where every record has been reclaimed
	read := func(r *kv.RangeRequest) error {
		sc := getScratch()
		defer sc.free()
		_, err := old.rangeKeys(t.Context(), r, sc)
		return err
	}
	txn := func(r *kv.TxnRequest) error {
		sc := getScratch()
		defer sc.free()
		_, err := old.readTxn(t.Context(), r, sc)
		return err
	}
	all := kv.RangeRequest{Key: []byte{0}, End: []byte{0}}
	pinned := all
	pinned.Revision = 5
	compare := &kv.TxnRequest{Compare: []kv.Compare{{Key: []byte("1"), Target: kv.CompareValue, Value: []byte("v")}}}
	nested := &kv.TxnRequest{Success: []kv.Op{{Range: &pinned}}}
	for _, err := range []error{read(&all), read(&pinned), txn(compare), txn(nested)} {
		if !errors.Is(err, history.ErrNotFound) {
			t.Errorf("without a compaction: %v", err)
		}
	}
	if _, err := w.Put(&kv.PutRequest{Key: []byte("1")}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Compact(w.Revision()); err != nil {
		t.Fatal(err)
	}
	b.commit(t)
	for name, err := range map[string]error{"newest": read(&all), "compare": txn(compare), "nested": txn(nested)} {
		if err != errAgain {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, err := range map[string]error{"pinned": read(&pinned)} {
		var c *kv.CompactedError
		if !errors.As(err, &c) || c.CompactRevision != w.Revision() {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.close(t)
	empty.close(t)
}

// TestPlaces: the pages of a list whose pinned tree was lost are counted from the page before them.
func TestPlaces(t *testing.T) {
	b := newBed(t, Options{Pins: -1}, 0)
	w := b.Writer()
	const keys = 3000
	for i := range keys {
		if _, err := w.Put(&kv.PutRequest{Key: fmt.Appendf(nil, "%05d", i)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	b.commit(t)
	at := b.Revision()
	if _, err := w.DeleteRange(&kv.DeleteRangeRequest{Key: []byte("01"), End: []byte("02")}); err != nil {
		t.Fatal(err)
	}
	b.commit(t)
	for _, limit := range []int64{1, 7, batchKeys, batchKeys + 1, 2 * batchKeys} {
		for _, end := range [][]byte{{0}, []byte("02500")} {
			total := int64(keys)
			if end[0] != 0 {
				total = 2500
			}
			r := &kv.RangeRequest{Key: []byte("00000"), End: end, Limit: limit, Revision: at, KeysOnly: true}
			for seen := int64(0); ; {
				res, err := b.Range(t.Context(), r)
				if err != nil {
					t.Fatal(err)
				}
				if res.Count != total-seen {
					t.Fatalf("limit %d: %d keys are left after %d, want %d", limit, res.Count, seen, total-seen)
				}
				seen += int64(res.KVs.Len())
				if res.More != (seen < total) {
					t.Fatalf("limit %d: more is %v after %d keys", limit, res.More, seen)
				}
				if !res.More {
					break
				}
				var last record.KeyValue
				if err := last.Decode(res.KVs.At(res.KVs.Len() - 1)); err != nil {
					t.Fatal(err)
				}
				next := append(bytes.Clone(last.Key), 0)
				if _, ok := b.rests.Find(at, string(next), endOf(end)); !ok {
					t.Fatalf("limit %d: the rest after %q is not remembered", limit, last.Key)
				}
				r.Key = next
			}
		}
	}
	b.close(t)
}

func endOf(end []byte) string {
	_, to, _ := bounds([]byte("k"), end)
	return to
}

// TestReadsBesideReclaim reads, at the newest and at older revisions, while compactions follow each
// other closely and everything that they made needless is rewritten away: a read gives what was there
// or fails as compacted.
func TestReadsBesideReclaim(t *testing.T) {
	b := newBed(t, Options{}, 1<<16)
	budget, err := ration.New(4 << 20)
	if err != nil {
		t.Fatal(err)
	}
	b.opts.Ranges = budget
	b.reopen(t) // only one store reads the log: the one that reports dead records
	rng := seed(t)
	const keys = 60
	// Every key is put in each revision, with the revision as its value.
	write := func() int64 {
		w := b.Writer()
		var ops []kv.Op
		value := make([]byte, 1+rng.IntN(2000))
		for i := range keys {
			v := append(fmt.Appendf(nil, "%d ", w.Revision()+1), value...)
			ops = append(ops, kv.Op{Put: &kv.PutRequest{Key: fmt.Appendf(nil, "%03d", i), Value: v}})
		}
		if _, err := w.Txn(&kv.TxnRequest{Success: ops}, nil); err != nil {
			t.Fatal(err)
		}
		return w.Revision()
	}
	write()
	b.commit(t)
	done := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	counts := map[string]int{}
	for i := range uint64(4) {
		rng := rand.New(rand.NewPCG(rng.Uint64(), i))
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				r := &kv.RangeRequest{Key: []byte{0}, End: []byte{0}, Sort: kv.SortTarget(rng.IntN(5)), Order: kv.SortOrder(rng.IntN(3))}
				newest := b.Revision()
				if rng.IntN(3) > 0 {
					r.Revision = max(newest-rng.Int64N(4), 2)
				}
				var res *kv.RangeResult
				var err error
				if rng.IntN(2) == 0 {
					res, err = b.Range(t.Context(), r)
				} else {
					first := []byte("000")
					txn := &kv.TxnRequest{Compare: []kv.Compare{{Key: first, Target: kv.CompareValue, Result: kv.Greater, Value: []byte("0")}},
						Success: []kv.Op{{Range: r}}}
					var tr *kv.TxnResult
					if tr, err = b.ReadTxn(t.Context(), txn); err == nil {
						if !tr.Succeeded {
							t.Error("the compare failed")
							continue
						}
						res = tr.Responses[0].Range
					}
				}
				what := "read"
				switch {
				case errors.Is(err, kv.ErrCompacted) && r.Revision > 0:
					what = "compacted"
				case err != nil:
					t.Errorf("at %d: %v", r.Revision, err)
				default:
					at := r.Revision
					if at == 0 {
						at = res.Revision
					}
					kvs, err := plainKVs(res.KVs)
					if err != nil || len(kvs) != keys || res.Count != keys {
						t.Errorf("at %d: %d keys, count %d, %v", at, len(kvs), res.Count, err)
					}
					for _, k := range kvs {
						var rev int64
						if fmt.Sscan(k.Value, &rev); rev != at || k.Mod != at {
							t.Errorf("at %d: %s is of revision %d", at, k.Key, k.Mod)
						}
					}
				}
				mu.Lock()
				counts[what]++
				mu.Unlock()
			}
		})
	}
	for range rounds(t, 60) {
		rev := write()
		if rng.IntN(2) == 0 {
			if _, err := b.Writer().Compact(rev); err != nil {
				t.Fatal(err)
			}
		}
		b.commit(t)
		b.log.Reclaim()
	}
	if err := b.log.WaitReclaimed(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(done)
	wg.Wait()
	st := b.log.ReclaimStats()
	t.Logf("%v; %+v", counts, st)
	if held := budget.Stats().Held; held != 0 {
		t.Errorf("%d bytes are still held", held)
	}
	b.close(t)
}
