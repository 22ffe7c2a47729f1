package history

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/vfs"
)

// filled returns a log on disk with n records of 256 bytes, a segment's size being size.
func filled(b testing.TB, n int, size int64) *Log {
	b.Helper()
	o := Options{FS: vfs.OS(), Dir: filepath.Join(b.TempDir(), "history"), SegmentBytes: size,
		ClusterID: 1, MemberID: 2, NoSync: true}
	l, err := Create(o, Applied{Term: 1, Index: 1}, nil)
	if err != nil {
		b.Fatal(err)
	}
	data := make([]byte, 256)
	for i := 1; i <= n; i++ {
		if _, err := l.AppendKV(kv.Rev{Main: int64(i)}, false, data); err != nil {
			b.Fatal(err)
		}
		if i%100 == 0 || i == n {
			if err := l.Commit(Applied{Term: 1, Index: uint64(i)}); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Cleanup(func() {
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
	})
	return l
}

// BenchmarkAppend is the cost of a record, with its share of the Commit, in batches of several
// sizes.
func BenchmarkAppend(b *testing.B) {
	for _, each := range []int{1, 100} {
		b.Run(fmt.Sprintf("batch=%d", each), func(b *testing.B) {
			l := filled(b, 1, 0)
			data := make([]byte, 256)
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; i++ {
				if _, err := l.AppendKV(kv.Rev{Main: int64(i) + 2}, false, data); err != nil {
					b.Fatal(err)
				}
				if i%each == each-1 {
					if err := l.Commit(Applied{Term: 1, Index: uint64(i) + 2}); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

func BenchmarkGet(b *testing.B) {
	const n = 100000
	for _, in := range []string{"tail", "sealed", "file"} {
		b.Run(in, func(b *testing.B) {
			l := benchLog(b, in, n)
			v := l.View()
			rng := rand.New(rand.NewPCG(1, 1))
			var buf []byte
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				var err error
				if buf, err = v.Get(kv.Rev{Main: 1 + rng.Int64N(n)}, buf[:0]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// benchLog returns a log of n records that lie in the open segment, in mapped sealed ones, or in
// sealed ones that are not mapped.
func benchLog(b *testing.B, in string, n int) *Log {
	b.Helper()
	if in == "tail" {
		return filled(b, n, 0)
	}
	o := Options{FS: vfs.OS(), Dir: filepath.Join(b.TempDir(), "history"),
		SegmentBytes: 1 << 20, NoSync: true}
	if in == "file" {
		o.FS = unmapped{o.FS}
	}
	l, err := Create(o, Applied{Term: 1, Index: 1}, nil)
	if err != nil {
		b.Fatal(err)
	}
	data := make([]byte, 256)
	for i := 1; i <= n+5000; i++ {
		if _, err := l.AppendKV(kv.Rev{Main: int64(i)}, false, data); err != nil {
			b.Fatal(err)
		}
		if i%100 == 0 {
			if err := l.Commit(Applied{Term: 1, Index: uint64(i)}); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Cleanup(func() {
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
	})
	return l
}

func BenchmarkGetParallel(b *testing.B) {
	const n = 100000
	v := benchLog(b, "sealed", n).View()
	b.ResetTimer()
	b.RunParallel(func(p *testing.PB) {
		rng := rand.New(rand.NewPCG(1, 1))
		var buf []byte
		for p.Next() {
			var err error
			if buf, err = v.Get(kv.Rev{Main: 1 + rng.Int64N(n)}, buf[:0]); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkGetMany is the cost of a record in a range of 500 that were written at random times.
func BenchmarkGetMany(b *testing.B) {
	const n = 100000
	for _, in := range []string{"tail", "sealed"} {
		b.Run(in, func(b *testing.B) {
			v := benchLog(b, in, n).View()
			rng := rand.New(rand.NewPCG(1, 1))
			revs := make([]kv.Rev, 500)
			for i := range revs {
				revs[i].Main = 1 + rng.Int64N(n)
			}
			var out kv.Records
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; i += len(revs) {
				out.Buf, out.Ends = out.Buf[:0], out.Ends[:0]
				if _, err := v.GetSome(revs, math.MaxInt, &out); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkScan(b *testing.B) {
	const n = 100000
	for _, in := range []string{"tail", "sealed", "file"} {
		b.Run(in, func(b *testing.B) {
			v := benchLog(b, in, n).View()
			b.SetBytes(256)
			b.ReportAllocs()
			b.ResetTimer()
			s := v.Scan(kv.Rev{})
			for range b.N {
				if !s.Next() {
					if s.Err() != nil {
						b.Fatal(s.Err())
					}
					s = v.Scan(kv.Rev{})
				}
			}
		})
	}
}

// BenchmarkChecksum is what the checksum of one record costs of the above.
func BenchmarkChecksum(b *testing.B) {
	rec := make([]byte, format.RecordHeaderSize+256)
	format.PutRecordHeader(rec, format.KindPut, kv.Rev{Main: 1}, 0)
	b.SetBytes(int64(len(rec)))
	for range b.N {
		if !format.CheckRecord(rec) {
			b.Fatal("bad")
		}
	}
}
