package wal

import (
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/vfs"
	"vigil/internal/vfs/memfs"
)

// discard is a file system whose files forget what is written, so that a benchmark measures the
// log.
type discard struct{ vfs.FS }

type discardFile struct{ vfs.File }

func (d discard) Create(name string) (vfs.File, error) {
	f, err := d.FS.Create(name)
	return discardFile{f}, err
}

func (d discard) OpenWrite(name string) (vfs.File, error) {
	f, err := d.FS.OpenWrite(name)
	return discardFile{f}, err
}

func (f discardFile) WriteAt(b []byte, off int64) (int, error) {
	if off < headerSize {
		return f.File.WriteAt(b, off)
	}
	return len(b), nil
}

// BenchmarkAppend appends entries of 256 bytes, a number of them to a group, and truncates after
// them. The entries themselves are the caller's and not made here.
func BenchmarkAppend(b *testing.B) {
	for _, c := range []struct {
		name string
		o    Options
	}{
		{"nowhere", Options{FS: discard{memfs.New()}, Dir: testDir, ID: testID}},
		{"disk", Options{FS: vfs.OS(), ID: testID}},
	} {
		for _, n := range []int{1, 16, 256} {
			b.Run(fmt.Sprintf("%s/%d entries", c.name, n), func(b *testing.B) {
				o := c.o
				if o.Dir == "" {
					o.Dir = filepath.Join(b.TempDir(), "wal")
				} else {
					o.Dir += fmt.Sprint(n, b.N)
				}
				w := create(b, o, Start{})
				pool := entries(1, 1, n, 256)
				hs := hard(1, 1, 1)
				next := uint64(1)
				b.SetBytes(int64(n * (256 + entryHeadSize)))
				b.ReportAllocs()
				for b.Loop() {
					for _, e := range pool {
						// The cache keeps the entries, but nothing reads them here.
						*e.Index = next
						next++
					}
					if err := w.Append(Batch{HardState: hs, Entries: pool,
						Sync: true}); err != nil {
						b.Fatal(err)
					}
					if next%(1<<16) < uint64(n) && next > 1<<15 {
						if err := w.TruncateBefore(next - 1<<15); err != nil {
							b.Fatal(err)
						}
					}
				}
				m := w.Metrics()
				b.ReportMetric(float64(m.Writes.Count())/float64(b.N), "writes/op")
				b.ReportMetric(float64(m.Syncs.Count())/float64(b.N), "syncs/op")
				must(b, w.Close())
			})
		}
	}
}

// BenchmarkEntries reads 64 entries of 256 bytes.
func BenchmarkEntries(b *testing.B) {
	for _, from := range []string{"cache", "file"} {
		b.Run(from, func(b *testing.B) {
			o := Options{FS: vfs.OS(), Dir: filepath.Join(b.TempDir(), "wal"),
				ID: testID, NoSync: true}
			if from == "file" {
				o.CacheBytes = 1
			}
			w := create(b, o, Start{})
			must(b, w.Append(Batch{Entries: entries(1, 1, 10000, 256)}))
			b.ReportAllocs()
			var ents []*raftpb.Entry
			for i := uint64(1); b.Loop(); i = i%9000 + 1 {
				var err error
				if ents, err = w.Entries(i, i+64, math.MaxUint64); err != nil {
					b.Fatal(err)
				}
			}
			if len(ents) != 64 {
				b.Fatal(len(ents))
			}
			must(b, w.Close())
		})
	}
}

// BenchmarkOpen opens a log of 48 MiB in entries of 1 KiB.
func BenchmarkOpen(b *testing.B) {
	o := Options{FS: vfs.OS(), Dir: filepath.Join(b.TempDir(), "wal"), ID: testID}
	w := create(b, o, Start{})
	for i := range uint64(48) {
		must(b, w.Append(Batch{Entries: entries(1+i*1024, 1, 1024, 1024)}))
	}
	must(b, w.Close())
	b.SetBytes(48 << 20)
	for b.Loop() {
		w, err := Open(o)
		must(b, err)
		must(b, w.Close())
	}
}
