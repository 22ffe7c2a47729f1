package wal

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vigil/internal/vfs/memfs"
)

var writeGolden = flag.Bool("write-golden", false, "write the golden log of the current version")

// goldenLog makes the log that testdata has: truncated, overwritten,
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
	must(t, l.append(Batch{HardState: hard(4, 3, 42), Entries: e},
		Batch{Entries: entries(44, 5, 2, 30), Sync: true}))
	must(t, l.append(Batch{HardState: hard(5, 3, 44),
		Entries: entries(46, 5, 10, 300), Sync: true}))
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

// The log in testdata opens, holds what was written and takes more: the format has not changed
// under its version.
func TestGoldenLog(t *testing.T) {
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
			must(t, os.WriteFile(filepath.Join(dir, segmentName(id)),
				readBlock(t, mem, id, 0, minSegmentBytes), 0o644))
		}
	}
	o := testOptions(goldenFiles(t, Version).write(t))
	w := reopen(t, o)
	must(t, want.matches(w))
	must(t, w.Append(Batch{Entries: entries(56, 6, 40, 300), Sync: true}))
	must(t, w.Close())
	must(t, want.with([]Batch{{Entries: entries(56, 6, 40, 300)}}).matches(reopen(t, o)))
}

// A segment in the next version of the format, whose fields after the id this program does not
// know, is refused by name, wherever in the log it is. Nothing is changed, not even a torn tail.
func TestNextVersion(t *testing.T) {
	d := goldenFiles(t, Version)
	ids := slices.Sorted(maps.Keys(d.files))
	segments := slices.DeleteFunc(slices.Clone(ids), func(id uint64) bool {
		h, err := decodeHeader(d.files[id])
		return err != nil || h.id != id // a spare
	})
	open := segments[len(segments)-1]
	for _, id := range segments {
		next := &damage{files: maps.Clone(d.files)}
		b := slices.Clone(d.files[id])
		for i := 24; i < headerSize; i++ {
			b[i] = byte(i)
		}
		le.PutUint32(b[8:], Version+1)
		le.PutUint32(b[12:], headerCRC(b))
		next.files[id] = b
		if id != open {
			last := slices.Clone(d.files[open])
			copy(last[len(last)-100:], "torn")
			next.files[open] = last
		}
		mem := next.write(t)
		text := fmt.Sprintf("%s: wal: unknown format version: it is in version %d, this program reads version %d", segmentName(id), Version+1, Version)
		if _, err := Open(testOptions(mem)); !errors.Is(err, ErrVersion) ||
			!strings.Contains(err.Error(), text) {
			t.Errorf("segment %d: %v", id, err)
		}
		for id, b := range next.files {
			if !bytes.Equal(b, readBlock(t, mem, id, 0, minSegmentBytes)) {
				t.Errorf("file %d was changed", id)
			}
		}
		if left, err := segmentIDs(mem, testDir); err != nil || !slices.Equal(left, ids) {
			t.Errorf("the files are %v, %v, were %v", left, err, ids)
		}
	}
}
