package history

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/store/history/garbage"
	"vigil/internal/store/history/segfile"
	"vigil/internal/vfs"
	"vigil/internal/vfs/memfs"
)

// readAll reads a log by every way. What is read must be right, or be refused with an error that
// names the file; refused says whether something was.
func readAll(l *Log, m *model, file string) (refused bool, err error) {
	bad := func(what string, err error) error {
		if c := (*CorruptError)(nil); err != nil &&
			(!errors.As(err, &c) || c.File != file || c.Offset <= 0) {
			return fmt.Errorf("%s: %w", what, err)
		}
		refused = refused || err != nil
		return nil
	}
	v := l.View()
	recs := m.recs()
	for _, r := range recs {
		got, err := v.Get(r.rev, nil)
		if err := bad("get", err); err != nil {
			return refused, err
		}
		if err == nil && !bytes.Equal(got, r.data) {
			return refused, fmt.Errorf("get %v: other data", r.rev)
		}
	}
	scan := func(what string, want []rec, scanners ...*Scanner) error {
		n := 0
		for _, sc := range scanners {
			defer sc.Close()
			for sc.Next() {
				if n == len(want) || want[n].rev != sc.Rev() ||
					want[n].tombstone != sc.Tombstone() || !bytes.Equal(want[n].data, sc.Data()) {
					return fmt.Errorf("%s: record %d is %v", what, n, sc.Rev())
				}
				n++
			}
			if err := sc.Err(); err != nil {
				return bad(what, err)
			}
		}
		if n != len(want) {
			return fmt.Errorf("%s: %d records of %d and no error", what, n, len(want))
		}
		return nil
	}
	for _, from := range []int{0, len(recs) / 5, len(recs) / 2} {
		if err := scan("scan", recs[from:], v.Scan(recs[from].rev)); err != nil {
			return refused, err
		}
		sc, err := v.Hold(recs[from].rev)
		if err := bad("hold", err); err != nil {
			return refused, err
		}
		if err == nil {
			if err := scan("hold", recs[from:], sc); err != nil {
				return refused, err
			}
		}
	}
	return refused, scan("split", recs, v.Split(3)...)
}

// bothTables makes a closed log of which the first sealed segment has a sparse table and others
// have dense ones.
func bothTables(t *testing.T) (dir, *model) {
	t.Helper()
	o := testOptions(memfs.New())
	o.SegmentBytes = minSegmentBytes
	l, m := create(t, o)
	for i := range 70 {
		rev := kv.Rev{Main: m.last().Main + 1}
		if i == 10 {
			rev.Main += 1000
		}
		b := batch{applied: Applied{Term: 2, Index: uint64(i) + 2}}
		for sub := range 1 + i%2 {
			rev.Sub = int64(sub)
			b.recs = append(b.recs,
				rec{rev, i%5 == 0, fmt.Appendf(nil, "record %d %s", i, strings.Repeat("x", i))})
		}
		if err := errors.Join(appendBatch(l, b), l.Commit(b.applied)); err != nil {
			t.Fatal(err)
		}
		m.batches = append(m.batches, b)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return readDir(t, o.FS, o.Dir), m
}

// TestDamagedTables damages the offset tables of open segments, byte by byte: nothing panics,
// nothing is left out, and what is read is right or an error that names the place. Nor is a record
// rewritten that cannot be found.
//
//vigil:norace
func TestDamagedTables(t *testing.T) {
	d, m := bothTables(t)
	disk := mapped(memfs.New())
	o := testOptions(disk)
	o.SegmentBytes = minSegmentBytes
	d.write(t, o.FS, o.Dir)
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	l.work.stop() // what is marked here is not to go
	dead := []DeadRecord{}
	for i, r := range m.recs() {
		if i%2 == 0 {
			dead = append(dead, DeadRecord{Rev: r.rev})
		}
	}
	bytes, refused, kinds := 0, 0, map[bool]int{}
	for _, s := range l.cat.segments() {
		f := s.file()
		if f == nil {
			continue
		}
		foot := f.Footer()
		kinds[foot.Sparse]++
		tables := disk.of(t, f.Path())[foot.BodyEnd:][:foot.TableSize()]
		for i := range tables {
			flip := []byte{0x01, 0x40, 0xff}[i%3]
			bytes++
			tables[i] ^= flip
			bad, err := readAll(l, m, f.Path())
			if err != nil {
				t.Fatalf("byte %d of the tables of %s: %v", i, f.Path(), err)
			}
			if bad {
				refused++
			}
			if err := l.Dead(dead); err != nil && !errors.Is(err, kv.ErrCorrupt) {
				t.Fatal(err)
			}
			l.cat.dead.Lock()
			s.dead = garbage.Set{}
			l.cat.dead.Unlock()
			w := rewriting{mergePlan: mergePlan{dead: []garbage.Set{{}}}, cat: l.cat}
			if err := segfile.Guard(func(a *segfile.Access) error {
				return w.copyRecords(a, 0,
					s.file())
			}); !errors.Is(err, kv.ErrCorrupt) {
				t.Fatalf("byte %d of the tables of %s: rewritten, %v", i, f.Path(), err)
			}
			tables[i] ^= flip
		}
	}
	t.Logf("%d changes, %d of them met, %v", bytes, refused, kinds)
	if kinds[true] == 0 || kinds[false] == 0 || refused < bytes/4 {
		t.Error("not both kinds of tables, or hardly anything was met")
	}
	if bad, err := readAll(l, m, ""); bad || err != nil {
		t.Fatal(bad, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedMapping is the same on a real file that is mapped.
func TestDamagedMapping(t *testing.T) {
	d, m := bothTables(t)
	o := testOptions(vfs.OS())
	o.Dir = filepath.Join(t.TempDir(), "history")
	d.write(t, o.FS, o.Dir)
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name := range d {
		if !strings.HasSuffix(name, format.SealedSuffix) {
			continue
		}
		path := filepath.Join(o.Dir, name)
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		for _, s := range l.cat.segments() {
			f := s.source().file
			if f == nil || f.Path() != path {
				continue
			}
			from, was := int64(f.Footer().BodyEnd), make([]byte, f.Footer().TableSize())
			if _, err := file.ReadAt(was, from); err != nil {
				t.Fatal(err)
			}
			for i := 0; i < len(was); i += 4 {
				if _, err := file.WriteAt([]byte{^was[i], ^was[i+1]}, from+int64(i)); err != nil {
					t.Fatal(err)
				}
				if _, err := readAll(l, m, path); err != nil {
					t.Fatalf("byte %d of the tables of %s: %v", i, path, err)
				}
				if _, err := file.WriteAt(was, from); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// A record whose header is damaged is rejected before a rewrite allocates memory for the size in
// it.
func TestDamagedSizeInRewrite(t *testing.T) {
	disk := mapped(memfs.New())
	o := testOptions(disk)
	o.SegmentBytes = minSegmentBytes
	l, m := create(t, o)
	churn(t, l, m)
	s := l.cat.segments()[0]
	f := s.source().file
	data := disk.of(t, f.Path())
	for n, off := range f.Offsets() {
		if n == 0 {
			data[off+7] ^= 0x08 // the highest bit of the size: 128 MiB
		}
	}
	w := rewriting{mergePlan: mergePlan{dead: []garbage.Set{{}}}, cat: l.cat}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := segfile.Guard(func(a *segfile.Access) error { return w.copyRecords(a, 0, s.file()) })
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, kv.ErrCorrupt) || n > 16<<20 {
		t.Errorf("%d bytes allocated, %v", n, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
