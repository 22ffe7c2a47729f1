package wal

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

var writeGolden = flag.Bool("write-golden", false, "write the golden log of the current version anew")

// goldenLog makes the log that testdata has in every version of the format: truncated, overwritten,
// with all kinds of items and a recycled spare.
func goldenLog(t *testing.T, o Options) *tracked {
	t.Helper()
	l := &tracked{}
	must(t, l.open(o))
	must(t, l.append(Batch{HardState: hard(2, 3, 1), Entries: entries(2, 2, 12, 250), Sync: true}))
	must(t, l.append(Batch{Entries: entries(14, 2, 12, 250), Sync: true}))
	must(t, l.append(Batch{Snapshot: &Start{Index: 40, Term: 3}, HardState: hard(3, 0, 40)}))
	must(t, l.truncate(41))
	e := entries(41, 4, 4, 20)
	e[0].Data, e[1].Data, e[2].Type = nil, []byte{}, nil
	must(t, l.append(Batch{HardState: hard(4, 3, 42), Entries: e}, Batch{Entries: entries(44, 5, 2, 30), Sync: true}))
	must(t, l.append(Batch{HardState: hard(5, 3, 44), Entries: entries(46, 5, 10, 300), Sync: true}))
	must(t, l.append(Batch{HardState: hard(5, 3, 55)}))
	return l
}

// goldenFiles reads the golden log of a version.
func goldenFiles(t *testing.T, version int) *damage {
	t.Helper()
	dir := fmt.Sprintf("testdata/v%d", version)
	d := &damage{files: map[uint64][]byte{}}
	names, err := os.ReadDir(dir)
	must(t, err)
	for _, n := range names {
		id, ok := parseName(n.Name())
		if !ok {
			t.Fatalf("%s is not the name of a segment", n.Name())
		}
		if d.files[id], err = os.ReadFile(filepath.Join(dir, n.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// A log that each released version of the format wrote opens, holds what was written and takes more.
func TestGoldenLogs(t *testing.T) {
	mem := memfs.New()
	l := goldenLog(t, testOptions(mem))
	must(t, l.w.Close())
	want := l.states[len(l.states)-1]
	if *writeGolden {
		dir := fmt.Sprintf("testdata/v%d", Version)
		must(t, os.MkdirAll(dir, 0o755))
		ids, err := segmentIDs(mem, testDir)
		must(t, err)
		for _, id := range ids {
			must(t, os.WriteFile(filepath.Join(dir, segmentName(id)), readBlock(t, mem, id, 0, minSegmentBytes), 0o644))
		}
	}
	for version := oldestVersion; version <= Version; version++ {
		d := goldenFiles(t, version)
		o := testOptions(d.write(t))
		w := reopen(t, o)
		must(t, want.matches(w))
		must(t, w.Append(Batch{Entries: entries(56, 6, 40, 300), Sync: true}))
		must(t, w.Close())
		must(t, want.with([]Batch{{Entries: entries(56, 6, 40, 300)}}).matches(reopen(t, o)))
	}
}

// A log of version 1 loses nothing in crashes on its way to the present version.
func TestCrashesOfUpgrade(t *testing.T) {
	old := goldenLog(t, testOptions(memfs.New()))
	d := goldenFiles(t, oldestVersion)
	for seed := range uint64(crashes(t, 60)) {
		c := &crasher{T: t, rng: rand.New(rand.NewPCG(seed, 2)), mem: d.write(t), created: true, term: 6, states: slices.Clone(old.states)}
		for range 4 {
			c.run()
		}
	}
}

// Each operation of the file system on the way from version 1 to the present one fails in turn, in each way. What was acknowledged is there
// afterwards.
func TestEveryFaultOfUpgrade(t *testing.T) {
	old := goldenLog(t, testOptions(memfs.New()))
	d := goldenFiles(t, oldestVersion)
	life := func(l *tracked, o Options) error {
		err := l.open(o)
		for i := 0; err == nil && i < 12; i++ {
			last := l.states[len(l.states)-1].last()
			if err = l.append(Batch{Entries: entries(last+1, 7, 3, 600), Sync: i%3 > 0}); err == nil && i%5 == 4 {
				err = l.truncate(last)
			}
		}
		return err
	}
	for _, fault := range []faultfs.Fault{faultfs.Fail, faultfs.FailPersisted, faultfs.ShortWrite, faultfs.FailLost} {
		for n, fired := int64(1), true; fired; n++ {
			mem := d.write(t)
			fired = false
			nth := faultfs.Nth(n, fault, nil)
			var what string
			l := &tracked{created: true, states: slices.Clone(old.states)}
			err := life(l, testOptions(faultfs.New(mem, func(op faultfs.Op, name string) faultfs.Fault {
				f := nth(op, name)
				if f == faultfs.None {
					return f
				}
				fired, what = true, fmt.Sprintf("operation %d, %v of %s, with fault %v", n, op, name, fault)
				if fault == faultfs.FailLost && op != faultfs.OpSync {
					return faultfs.None
				}
				return f
			})))
			if err != nil && !errors.Is(err, faultfs.ErrInjected) {
				t.Fatalf("%s: %v", what, err)
			}
			afterwards(t, what, mem, l)
		}
	}
}

// A bad header of the first segment after those of version 1 is recognized by its groups, wherever the damage is.
func TestBadHeaderAfterVersion1(t *testing.T) {
	mem := goldenFiles(t, oldestVersion).write(t)
	w := reopen(t, testOptions(mem))
	last := w.wr.active.id
	for i := uint64(56); w.wr.active.id == last || w.wr.off == headerSize; i++ {
		must(t, w.Append(Batch{Entries: entries(i, 6, 1, 300), Sync: true}))
	}
	id := w.wr.active.id
	must(t, w.Close())
	good := readBlock(t, mem, id, 0, headerSize)
	if h, err := decodeHeader(good); err != nil || h.version == oldestVersion {
		t.Fatalf("segment %d begins with %+v, %v", id, h, err)
	}
	f, err := mem.OpenWrite(segmentPath(testDir, id))
	must(t, err)
	for bit := range 8 * headerSize {
		if bit/8 >= 96 && bit%101 != 0 {
			continue
		}
		b := slices.Clone(good)
		b[bit/8] ^= 1 << (bit % 8)
		_, err := f.WriteAt(b, 0)
		must(t, err)
		if w, err := Open(testOptions(mem)); !errors.Is(err, kv.ErrCorrupt) {
			if err == nil {
				must(t, w.Close())
			}
			t.Fatalf("bit %d of the header is flipped: %v", bit, err)
		}
		var ce *CorruptError
		if _, files := inspect(t, mem, InspectOptions{}); !errors.As(files[id].Err, &ce) || ce.Offset != int64(bit/8) {
			t.Fatalf("bit %d of the header is flipped, and the inspection says %v", bit, files[id].Err)
		}
	}
	_, err = f.WriteAt(make([]byte, headerSize), 0)
	must(t, err)
	if _, err := Open(testOptions(mem)); !errors.Is(err, kv.ErrCorrupt) {
		t.Fatalf("the header is lost: %v", err)
	}
}

func TestMagicSeed(t *testing.T) {
	for _, seed := range []uint32{0, 1, 0x80000000, 0xdeadbeef, 1<<32 - 1} {
		if got := magicSeed(groupMagic(seed)); got != seed {
			t.Errorf("%x, not %x", got, seed)
		}
	}
}
