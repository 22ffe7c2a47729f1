package mvcc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"vigil/internal/kv"
	"vigil/internal/store/mvcc/record"
)

// TestConcurrentReaders moves tokens among keys, one or more per revision, so that at every revision
// from the first on there is the same number of keys, while readers count, list and page at the
// newest and at older revisions and compactions follow closely.
func TestConcurrentReaders(t *testing.T) {
	const tokens, places = 300, 900
	rng := seed(t)
	b := newBed(t, Options{TrimKeys: 16, Pins: 3}, 64<<10)
	w := b.Writer()
	place := func(i int) []byte { return fmt.Appendf(nil, "place/%03d", i) }
	first := &kv.TxnRequest{}
	var full, empty []int
	for i := range places {
		if i < tokens {
			first.Success = append(first.Success, kv.Op{Put: &kv.PutRequest{Key: place(i), Value: []byte("2")}})
			full = append(full, i)
		} else {
			empty = append(empty, i)
		}
	}
	if _, err := w.Txn(first, nil); err != nil {
		t.Fatal(err)
	}
	b.commit(t)

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	all := []byte("place0")
	var reads, overtaken, byRank atomic.Int64
	var wg sync.WaitGroup
	reader := func(rng *rand.Rand) error {
		at := int64(0)
		if rng.IntN(2) == 0 {
			at = max(b.Revision()-rng.Int64N(50), 2)
		}
		r := &kv.RangeRequest{Key: []byte("place/"), End: all, Revision: at}
		switch rng.IntN(4) {
		case 0:
			r.CountOnly = true
		case 1:
			r.KeysOnly = true
		case 2:
			return pages(ctx, b.Store, r, rng.Int64N(50)+20, tokens, &byRank)
		}
		res, err := b.Range(ctx, r)
		if err != nil {
			return err
		}
		kvs, err := plainKVs(res.KVs)
		if err != nil {
			return err
		}
		if res.Count != tokens || !r.CountOnly && len(kvs) != tokens {
			return fmt.Errorf("%+v: %d keys, count %d", r, len(kvs), res.Count)
		}
		for _, k := range kvs {
			if !r.KeysOnly && k.Value != fmt.Sprint(k.Mod) {
				return fmt.Errorf("%+v has another revision's value", k)
			}
		}
		return nil
	}
	for range 4 {
		rng := rand.New(rand.NewPCG(rng.Uint64(), 0))
		wg.Go(func() {
			for ctx.Err() == nil {
				err := reader(rng)
				reads.Add(1)
				switch {
				case errors.Is(err, kv.ErrCompacted):
					overtaken.Add(1)
				case err != nil && ctx.Err() == nil:
					t.Error(err)
					cancel()
				}
			}
		})
	}
	for n := 0; n < 1000 || reads.Load() < 300 || overtaken.Load() == 0 || byRank.Load() == 0; n++ {
		if ctx.Err() != nil {
			break
		}
		for range 1 + rng.IntN(3) {
			f, e := rng.IntN(len(full)), rng.IntN(len(empty))
			full[f], empty[e] = empty[e], full[f]
			rev := fmt.Append(nil, w.Revision()+1)
			txn := &kv.TxnRequest{Success: []kv.Op{
				{Delete: &kv.DeleteRangeRequest{Key: place(empty[e])}},
				{Put: &kv.PutRequest{Key: place(full[f]), Value: rev}},
				{Put: &kv.PutRequest{Key: place(full[(f+1)%len(full)]), Value: rev}},
			}}
			if _, err := w.Txn(txn, nil); err != nil {
				t.Fatal(err)
			}
		}
		if rng.IntN(20) == 0 {
			if _, err := w.Compact(w.Revision() - rng.Int64N(40)); err != nil && !errors.Is(err, kv.ErrCompacted) {
				t.Fatal(err)
			}
		}
		b.commit(t)
	}
	cancel()
	wg.Wait()
	t.Logf("%d reads, %d overtaken by a compaction, %d pages counted by rank", reads.Load(), overtaken.Load(), byRank.Load())
	b.close(t)
}

// pages lists a range page by page at the revision of the first one.
func pages(ctx context.Context, s *Store, r *kv.RangeRequest, limit, want int64, byRank *atomic.Int64) error {
	page := *r
	page.Limit = limit
	seen := int64(0)
	for {
		res, err := s.Range(ctx, &page)
		if err != nil {
			return err
		}
		if res.Count != want-seen {
			return fmt.Errorf("%d keys seen at %d, %d to come, want %d", seen, page.Revision, res.Count, want)
		}
		seen += int64(res.KVs.Len())
		if !res.More {
			break
		}
		if page.Revision == 0 {
			page.Revision = res.Revision
		}
		if _, ok := s.trees.Find(page.Revision); ok && page.Revision < s.snap.Load().live {
			byRank.Add(1)
		}
		var last record.KeyValue
		if err := last.Decode(res.KVs.At(res.KVs.Len() - 1)); err != nil {
			return err
		}
		page.Key = append(last.Key, 0)
	}
	if seen != want {
		return fmt.Errorf("%d keys on all pages, want %d", seen, want)
	}
	return nil
}

// TestPinnedCountByRank: the pages of a list are counted without visiting keys though the set of
// keys has changed since the first one.
func TestPinnedCountByRank(t *testing.T) {
	b := newBed(t, Options{Pins: 2}, 0)
	w := b.Writer()
	for i := range 100 {
		if _, err := w.Put(&kv.PutRequest{Key: fmt.Appendf(nil, "%03d", i)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	b.commit(t)
	page := &kv.RangeRequest{Key: []byte{0}, End: []byte{0}, Limit: 10}
	res, err := b.Range(context.Background(), page)
	if err != nil || res.Count != 100 || !res.More {
		t.Fatalf("%+v %v", res, err)
	}
	if _, err := w.DeleteRange(&kv.DeleteRangeRequest{Key: []byte("05"), End: []byte("06")}); err != nil {
		t.Fatal(err)
	}
	b.commit(t)
	v := b.read()
	if n, ok := v.rank("010", "", res.Revision); !ok || n != 90 {
		t.Fatalf("the second page is counted as %d, %v", n, ok)
	}
	if _, ok := v.rank("010", "", res.Revision-1); ok {
		t.Fatal("a revision without a kept tree is counted by rank")
	}
	if n, ok := v.rank("010", "", v.rev); !ok || n != 80 {
		t.Fatalf("the newest state is counted as %d, %v", n, ok)
	}
	if _, err := w.Compact(w.Revision()); err != nil {
		t.Fatal(err)
	}
	b.commit(t)
	if n := b.Stats().Pinned; n != 0 {
		t.Fatalf("%d states below the compaction are still pinned", n)
	}
	b.close(t)
}

// TestContext: a read of many keys ends soon after its context.
func TestContext(t *testing.T) {
	b := newBed(t, Options{Pins: -1}, 0)
	w := b.Writer()
	for i := range 5000 {
		if _, err := w.Put(&kv.PutRequest{Key: fmt.Appendf(nil, "%04d", i)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	b.commit(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, r := range []*kv.RangeRequest{
		{Key: []byte{0}, End: []byte{0}},
		{Key: []byte{0}, End: []byte{0}, KeysOnly: true},
		{Key: []byte{0}, End: []byte{0}, Sort: kv.SortByValue},
		{Key: []byte{0}, End: []byte{0}, CountOnly: true, Revision: 3000},
	} {
		if _, err := b.Range(ctx, r); !errors.Is(err, context.Canceled) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	txn := &kv.TxnRequest{Compare: []kv.Compare{{Key: []byte{0}, End: []byte{0}, Target: kv.CompareVersion, Number: 1}}}
	if _, err := b.ReadTxn(ctx, txn); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := b.WaitTrimmed(ctx, 10); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	b.close(t)
}
