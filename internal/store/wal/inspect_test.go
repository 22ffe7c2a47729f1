package wal

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/vfs"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

// inspect looks at a directory, which must not change.
func inspect(t testing.TB, mem vfs.FS, o InspectOptions) (*Inspection, map[uint64]File) {
	t.Helper()
	o.Dir = testDir
	o.FS = faultfs.New(mem, func(op faultfs.Op, name string) faultfs.Fault {
		if op.Changes() || op == faultfs.OpOpenWrite || op == faultfs.OpLock {
			t.Errorf("%v of %s", op, name)
		}
		return faultfs.None
	})
	in, err := Inspect(o)
	if err != nil {
		t.Fatal(err)
	}
	all := map[uint64]File{}
	for f := range in.Files(t.Context()) {
		id, _ := parseName(f.Name)
		all[id] = f
	}
	return in, all
}

func TestInspect(t *testing.T) {
	d := newDamage(t, true)
	mem := d.write(t)
	in, files := inspect(t, mem, InspectOptions{})
	w := reopen(t, testOptions(d.write(t)))
	first, _ := w.FirstIndex()
	last, _ := w.LastIndex()
	lastTerm, err := w.Term(last)
	if err != nil || lastTerm == 0 {
		t.Fatalf("term %d of the last entry, %v", lastTerm, err)
	}
	if in.ID != testID || in.First != first || in.Last != last || in.LastTerm != lastTerm ||
		in.Commit != w.HardState().GetCommit() || in.Bytes != int64(len(d.files)*minSegmentBytes) {
		t.Errorf("%+v", in)
	}
	segments := 0
	for id, f := range files {
		if f.Err != nil || f.Torn != 0 || f.Bytes != minSegmentBytes {
			t.Errorf("%d: %+v", id, f)
		}
		if f.Kind == KindSegment {
			segments++
			if f.Version != Version || f.Groups == 0 {
				t.Errorf("%d: %+v", id, f)
			}
		}
	}
	if len(files) != len(d.files) || segments < 3 {
		t.Errorf("%d files, %d segments", len(files), segments)
	}
	if err := in.Covers(Start{Index: last + 1, Term: 99}); !errors.Is(err, kv.ErrCorrupt) {
		t.Error(err)
	}
	if _, err := Inspect(InspectOptions{FS: memfs.New(), Dir: testDir}); !errors.Is(err,
		fs.ErrNotExist) {
		t.Error(err)
	}
}

// After a crash there may be a torn group, which is no damage.
func TestInspectTorn(t *testing.T) {
	d := newDamage(t, false)
	var id uint64
	_, files := inspect(t, d.write(t), InspectOptions{})
	for i, f := range files {
		if f.Kind == KindSegment {
			id = max(id, i)
		}
	}
	// The last group is a hard state: tear it.
	b := d.files[id]
	end := len(b)
	for end > 0 && b[end-1] == 0 {
		end--
	}
	b[end-1] ^= 0xff
	_, files = inspect(t, d.write(t), InspectOptions{})
	if f := files[id]; f.Err != nil || f.Torn != groupSize(hardStateSize) {
		t.Errorf("%+v", f)
	}
}

func TestInspectWrongFiles(t *testing.T) {
	for _, c := range []struct {
		what   string
		change func(f map[uint64][]byte)
		file   uint64
		want   error
		text   string
	}{
		{"one removed", func(f map[uint64][]byte) { delete(f, 2) }, 1, kv.ErrCorrupt,
			"the segment after it, 0000000000000002.wal, is missing"},
		{"swapped", func(f map[uint64][]byte) { f[1], f[2] = f[2], f[1] }, 1, kv.ErrCorrupt,
			"header is bad"},
		{"swapped", func(f map[uint64][]byte) { f[1], f[2] = f[2], f[1] }, 2, kv.ErrCorrupt,
			"header is bad"},
		{"copied", func(f map[uint64][]byte) { f[2] = f[1] }, 2, kv.ErrCorrupt, "header is bad"},
		{"cut", func(f map[uint64][]byte) { f[1] = f[1][:5000] }, 2, kv.ErrCorrupt,
			"segment before it ends"},
		{"of another member", func(f map[uint64][]byte) {
			h, _ := decodeHeader(f[2])
			h.owner.MemberID++
			copy(f[2], h.encode())
		}, 2, ErrIdentity, "member"},
		{"newer", func(f map[uint64][]byte) {
			h, _ := decodeHeader(f[2])
			h.version = Version + 1
			copy(f[2], h.encode())
		}, 2, ErrVersion, fmt.Sprint("version ", Version+1)},
	} {
		d := newDamage(t, true)
		for id, b := range d.files {
			d.files[id] = slices.Clone(b)
		}
		c.change(d.files)
		_, files := inspect(t, d.write(t), InspectOptions{})
		f := files[c.file]
		if !errors.Is(f.Err, c.want) || !strings.Contains(f.Err.Error(), c.text) {
			t.Errorf("%s: %+v", c.what, f)
		}
	}
}

// An error names the very byte, if one bit is flipped.
func TestInspectPinpoints(t *testing.T) {
	d := newDamage(t, true)
	exact, near := 0, 0
	for id, b := range d.files {
		for bit := 3; bit < 8*len(b); bit += 331 {
			b[bit/8] ^= 1 << (bit % 8)
			_, files := inspect(t, d.write(t), InspectOptions{})
			b[bit/8] ^= 1 << (bit % 8)
			var c *CorruptError
			switch err := files[id].Err; {
			case err == nil:
			case !errors.As(err, &c) || c.Offset > int64(bit/8):
				t.Fatalf("%d, byte %d: %v", id, bit/8, err)
			case c.Offset == int64(bit/8) &&
				strings.Contains(c.Reason, fmt.Sprintf("bit %d is flipped", bit%8)):
				exact++
			default:
				near++
			}
		}
	}
	if t.Logf("%d exact, %d not", exact, near); exact < 10*near {
		t.Errorf("%d exact, %d not", exact, near)
	}
}

// FuzzInspect looks at any bytes.
func FuzzInspect(f *testing.F) {
	for _, b := range newDamage(f, true).files {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<16 {
			return
		}
		d := &damage{files: map[uint64][]byte{1: b}}
		_, files := inspect(t, d.write(t), InspectOptions{})
		_, err := Open(testOptions(d.write(t)))
		if (err == nil) != (files[1].Err == nil) && !errors.Is(err, ErrIdentity) &&
			!strings.Contains(files[1].Err.Error(), "committed") {
			t.Fatalf("open: %v, inspect: %v", err, files[1].Err)
		}
	})
}
