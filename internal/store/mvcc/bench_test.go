package mvcc

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"vigil/internal/kv"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc/pagecount"
	"vigil/internal/store/mvcc/record"
	"vigil/internal/store/ration"
	"vigil/internal/vfs"
)

const benchKeys = 100_000

func benchKey(i int) []byte {
	return fmt.Appendf(nil, "/registry/pods/namespace-%02d/pod-%06d", i%50, i)
}

// benchBed is a store on a real file system with benchKeys keys of 256 bytes.
func benchBed(b *testing.B) (*Store, func()) { return benchStore(b, benchKeys, 256, benchKey) }

func benchStore(b testing.TB, keys, size int, key func(int) []byte) (*Store, func()) {
	dir := b.TempDir()
	o := history.Options{FS: vfs.OS(), Dir: dir + "/history", NoSync: true}
	log, err := history.Create(o, history.Applied{Term: 1, Index: 1}, nil)
	if err != nil {
		b.Fatal(err)
	}
	s, err := Open(log, Options{})
	if err != nil {
		b.Fatal(err)
	}
	w, value := s.Writer(), make([]byte, size)
	for i := range keys {
		if _, err := w.Put(&kv.PutRequest{Key: key(i), Value: value}, nil); err != nil {
			b.Fatal(err)
		}
		if i%100 == 99 {
			benchCommit(b, w)
		}
	}
	benchCommit(b, w)
	return s, func() {
		s.Close()
		if err := log.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func benchCommit(b testing.TB, w *Writer) {
	if _, err := w.Commit(history.Applied{Term: 1, Index: uint64(w.Revision())}); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkPut(b *testing.B) {
	s, done := benchBed(b)
	defer done()
	w, value := s.Writer(), make([]byte, 256)
	keys := make([][]byte, benchKeys)
	for i := range keys {
		keys[i] = benchKey(i)
	}
	for _, batch := range []int{1, 64} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 2))
			b.ReportAllocs()
			for i := 1; b.Loop(); i++ {
				if _, err := w.Put(&kv.PutRequest{Key: keys[rng.IntN(benchKeys)], Value: value}, nil); err != nil {
					b.Fatal(err)
				}
				if i%batch == 0 {
					benchCommit(b, w)
				}
			}
			benchCommit(b, w)
		})
	}
	b.Run("cas/batch=64", func(b *testing.B) {
		rng := rand.New(rand.NewPCG(1, 2))
		b.ReportAllocs()
		for i := 1; b.Loop(); i++ {
			key := keys[rng.IntN(benchKeys)]
			txn := kv.TxnRequest{
				Compare: []kv.Compare{{Key: key, Target: kv.CompareMod, Result: kv.Greater, Number: 1}},
				Success: []kv.Op{{Put: &kv.PutRequest{Key: key, Value: value}}},
				Failure: []kv.Op{{Range: &kv.RangeRequest{Key: key}}},
			}
			if res, err := w.Txn(&txn, nil); err != nil || !res.Succeeded {
				b.Fatal(err)
			}
			if i%64 == 0 {
				benchCommit(b, w)
			}
		}
		benchCommit(b, w)
	})
}

func BenchmarkRead(b *testing.B) {
	s, done := benchBed(b)
	defer done()
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(1, 2))
	old := s.Revision()
	w := s.Writer()
	for i := range 1000 {
		if _, err := w.Put(&kv.PutRequest{Key: fmt.Appendf(nil, "/zz/%d", i)}, nil); err != nil {
			b.Fatal(err)
		}
	}
	benchCommit(b, w)
	prefix, end := []byte("/registry/pods/"), []byte("/registry/pods0")
	for _, c := range []struct {
		name string
		req  func() *kv.RangeRequest
		n    int
	}{
		{"get", func() *kv.RangeRequest { return &kv.RangeRequest{Key: benchKey(rng.IntN(benchKeys))} }, 1},
		{"range500", func() *kv.RangeRequest {
			return &kv.RangeRequest{Key: benchKey(rng.IntN(benchKeys / 2)), End: end, Limit: 500}
		}, 500},
		{"range500/keys", func() *kv.RangeRequest {
			return &kv.RangeRequest{Key: benchKey(rng.IntN(benchKeys / 2)), End: end, Limit: 500, KeysOnly: true}
		}, 500},
		{"count", func() *kv.RangeRequest { return &kv.RangeRequest{Key: prefix, End: end, CountOnly: true} }, 0},
		{"count/visited", func() *kv.RangeRequest {
			return &kv.RangeRequest{Key: prefix, End: end, CountOnly: true, Revision: old}
		}, 0},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				res, err := s.Range(ctx, c.req())
				if err != nil || res.KVs.Len() > c.n {
					b.Fatal(err, res)
				}
			}
		})
	}
	b.Run("range500/lent", func(b *testing.B) {
		budget, err := ration.New(ration.DefaultLimit)
		if err != nil {
			b.Fatal(err)
		}
		s, err := Open(s.log, Options{Ranges: budget})
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		b.ReportAllocs()
		for b.Loop() {
			res, err := s.Range(ctx, &kv.RangeRequest{Key: benchKey(rng.IntN(benchKeys / 2)), End: end, Limit: 500})
			if err != nil || res.KVs.Long.N != 500 {
				b.Fatal(err, res)
			}
			for _, p := range res.KVs.Long.Pieces {
				res.KVs.Long.Lender.Return(p)
			}
		}
	})
	b.Run("paged", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := benchPages(ctx, s, prefix, end, 0); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(benchKeys/500), "ns/page")
	})
	b.Run("paged/unpinned", func(b *testing.B) {
		s, err := Open(s.log, Options{Pins: -1})
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		b.ReportAllocs()
		for b.Loop() {
			s.rests = pagecount.Rests{}
			if err := benchPages(ctx, s, prefix, end, old); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(benchKeys/500), "ns/page")
	})
}

// benchPages lists the range in pages of 500 at a revision, or that of the first page.
func benchPages(ctx context.Context, s *Store, from, end []byte, at int64) error {
	r := &kv.RangeRequest{Key: from, End: end, Limit: 500, Revision: at}
	for {
		res, err := s.Range(ctx, r)
		if err != nil {
			return err
		}
		if !res.More {
			return nil
		}
		var last record.KeyValue
		if err := last.Decode(res.KVs.At(res.KVs.Len() - 1)); err != nil {
			return err
		}
		if r.Key = append(last.Key, 0); r.Revision == 0 {
			r.Revision = res.Revision
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	s, done := benchBed(b)
	defer done()
	w, value := s.Writer(), make([]byte, 256)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 4 * benchKeys {
		if _, err := w.Put(&kv.PutRequest{Key: benchKey(rng.IntN(benchKeys)), Value: value}, nil); err != nil {
			b.Fatal(err)
		}
		if i%100 == 99 {
			benchCommit(b, w)
		}
	}
	benchCommit(b, w)
	b.Run("rebuild", func(b *testing.B) {
		for b.Loop() {
			if _, _, _, _, err := rebuild(s.log.View(), -1, 0); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(5*benchKeys), "ns/record")
	})
}
