package history

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/store/history/inspect"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

// inspected inspects a directory, which must not change, and returns what is found in its files.
func inspected(t testing.TB, d dir, o inspect.Options) (*inspect.Inspection,
	map[string]inspect.File) {
	t.Helper()
	mem := memfs.New()
	o.Dir = "/data/history"
	d.write(t, mem, o.Dir)
	o.FS = faultfs.New(mem, func(op faultfs.Op, name string) faultfs.Fault {
		if op.Changes() || op == faultfs.OpOpenWrite || op == faultfs.OpLock {
			t.Errorf("%v of %s", op, name)
		}
		return faultfs.None
	})
	in, err := inspect.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]inspect.File{}
	for f := range in.Files(tContext) {
		all[f.Name] = f
	}
	return in, all
}

func (d dir) clone() dir {
	c := dir{}
	for n, b := range d {
		c[n] = slices.Clone(b)
	}
	return c
}

func TestInspect(t *testing.T) {
	d, m := small(t, 9)
	in, files := inspected(t, d, inspect.Options{})
	if in.ClusterID != 7 || in.MemberID != 9 || in.Revision != m.last().Main ||
		in.Applied != m.batches[len(m.batches)-1].applied {
		t.Errorf("%+v", in)
	}
	var bytes int64
	records, metas, next := 0, 0, uint64(1)
	for _, n := range d.names() {
		f := files[n]
		if f.Err != nil || f.Version != format.Version || f.Torn != 0 || f.FirstID != next ||
			f.Bytes != int64(len(d[n])) || f.Batches == 0 {
			t.Errorf("%+v", f)
		}
		bytes += f.Bytes
		records, metas, next = records+f.Records, metas+f.Metas, f.LastID+1
	}
	wantMetas := 0
	for _, b := range m.batches {
		wantMetas += len(b.metas)
	}
	if bytes != in.Bytes || records != len(m.recs()) || metas != wantMetas {
		t.Errorf("%d bytes, %d records, %d metas", bytes, records, metas)
	}
	sealed, open := format.SealedName(1, 1, 0), format.SegmentName(3)
	if files[sealed].Kind != inspect.KindSealed || files[open].Kind != inspect.KindOpen {
		t.Errorf("%+v", files)
	}

	// What else may lie there.
	c := d.clone()
	delete(c, open)
	c[format.SegmentName(4)+format.TempSuffix] = []byte("left over")
	_, files = inspected(t, c, inspect.Options{})
	if f := files[format.SegmentName(4)+format.TempSuffix]; f.Kind != inspect.KindTemporary ||
		f.Err != nil || len(files) != 3 {
		t.Errorf("%+v", files)
	}

	// A torn tail.
	c = d.clone()
	b := c[open]
	end := len(b)
	for end > 0 && b[end-1] == 0 {
		end--
	}
	copy(b[end+16:], "half a batch")
	if _, files = inspected(t, c, inspect.Options{}); files[open].Err != nil ||
		files[open].Torn < 12 || files[open].Torn > 40 {
		t.Errorf("a torn tail: %+v", files[open])
	}

	// Damage in one file leaves the rest readable.
	c = d.clone()
	c[sealed][len(c[sealed])/2] ^= 1
	c[open][format.HeaderSize+20] ^= 1
	_, files = inspected(t, c, inspect.Options{})
	for _, n := range d.names() {
		ce := (*CorruptError)(nil)
		if bad := n == sealed || n == open; bad != errors.As(files[n].Err, &ce) ||
			bad && !strings.HasSuffix(ce.File, n) {
			t.Errorf("%+v", files[n])
		}
	}

	// Only what never changes.
	if _, files = inspected(t, c, inspect.Options{SealedOnly: true}); len(files) != 2 ||
		files[sealed].Err == nil {
		t.Errorf("%+v", files)
	}

	if _, err := inspect.Start(inspect.Options{FS: memfs.New(), Dir: "/none"}); !errors.Is(err,
		fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestInspectWrongFiles is TestWrongFiles for Inspect: each mistake is found, and found at the file
// that is wrong.
func TestInspectWrongFiles(t *testing.T) {
	d, _ := small(t, 9)
	foreign, _ := small(t, 10)
	twin, _ := small(t, 9)
	s1, s2, open := format.SealedName(1, 1, 0), format.SealedName(2, 2, 0), format.SegmentName(3)
	for _, w := range []struct {
		what   string
		change func(c dir)
		file   string
		want   error
		text   string
	}{
		{"the first removed", func(c dir) { delete(c, s1) }, format.SegmentName(1),
			kv.ErrCorrupt, "missing"},
		{"one removed", func(c dir) { delete(c, s2) }, format.SegmentName(2),
			kv.ErrCorrupt, "missing"},
		{"both removed", func(c dir) { delete(c, s1); delete(c, s2) }, format.SealedName(1, 2, 0),
			kv.ErrCorrupt, "missing"},
		{"swapped", func(c dir) { c[s1], c[s2] = c[s2], c[s1] }, s1, kv.ErrCorrupt,
			s2 + " by its content"},
		{"swapped", func(c dir) { c[s1], c[s2] = c[s2], c[s1] }, s2, kv.ErrCorrupt,
			s1 + " by its content"},
		{"doubled", func(c dir) { c[format.SealedName(3, 3, 0)] = c[s1] },
			format.SealedName(3, 3, 0), kv.ErrCorrupt, "by its content"},
		{"the open one doubled", func(c dir) { c[format.SegmentName(4)] = c[open] },
			format.SegmentName(4), kv.ErrCorrupt, "by its content"},
		{"of another member", func(c dir) { c[s2] = foreign[s2] }, s2, ErrIdentity, "member a"},
		{"the open one of another member", func(c dir) { c[open] = foreign[open] }, open,
			ErrIdentity, "member a"},
		{"of a twin", func(c dir) { c[s2] = twin[s2] }, s2, kv.ErrCorrupt, "does not continue"},
		{"of a newer version", func(c dir) {
			h, _ := format.DecodeHeader(c[s2])
			h.Version++
			copy(c[s2], h.Encode())
		}, s2, ErrVersion, fmt.Sprint("version ", format.Version+1)},
	} {
		c := d.clone()
		w.change(c)
		_, files := inspected(t, c, inspect.Options{})
		f, ok := files[w.file]
		if !ok || !errors.Is(f.Err, w.want) || !strings.Contains(f.Err.Error(), w.text) {
			t.Errorf("%s: %+v", w.what, f)
		}
	}
	for _, n := range d.names() {
		for size := range len(d[n]) {
			if size%61 != 0 && size != len(d[n])-1 {
				continue
			}
			c := d.clone()
			c[n] = c[n][:size]
			_, files := inspected(t, c, inspect.Options{})
			if strings.HasSuffix(n, format.SealedSuffix) &&
				!errors.Is(files[n].Err, kv.ErrCorrupt) {
				t.Errorf("%s cut to %d: %v", n, size, files[n].Err)
			}
		}
	}
}

// FuzzInspect looks at any bytes under any kind of name.
func FuzzInspect(f *testing.F) {
	d, _ := small(f, 9)
	for n, b := range d {
		f.Add(b, strings.HasSuffix(n, format.SealedSuffix))
	}
	f.Fuzz(func(t *testing.T, b []byte, sealed bool) {
		if len(b) > 1<<16 {
			return
		}
		name := format.SegmentName(1)
		if sealed {
			name = format.SealedName(1, 1, 0)
		}
		_, files := inspected(t, dir{name: b}, inspect.Options{})
		if len(files) == 0 {
			t.Fatal("no file")
		}
	})
}

// What Inspect says of a directory that is not readable is the error of the operation.
func TestInspectFaults(t *testing.T) {
	d, _ := small(t, 9)
	mem := memfs.New()
	d.write(t, mem, "/h")
	for n := int64(1); ; n++ {
		disk := faultfs.New(mem,
			faultfs.Nth(n, faultfs.Fail,
				func(op faultfs.Op, _ string) bool { return op != faultfs.OpMap }))
		in, err := inspect.Start(inspect.Options{FS: disk, Dir: "/h"})
		bad := fmt.Sprint(err)
		if err == nil {
			bad = ""
			for f := range in.Files(tContext) {
				if f.Err != nil && !errors.Is(f.Err, kv.ErrCorrupt) {
					bad += f.Err.Error()
				}
			}
		}
		if disk.Count() < n {
			if n < 20 || bad != "" {
				t.Fatal(n, bad)
			}
			return
		}
		if bad != "" && !strings.Contains(bad, faultfs.ErrInjected.Error()) {
			t.Fatalf("fault %d: %s", n, bad)
		}
	}
}

// TestInspectPinpoints flips bits and looks whether the error names the very byte.
func TestInspectPinpoints(t *testing.T) {
	d, _ := small(t, 9)
	exact, near := 0, 0
	for _, n := range d.names() {
		for bit := 5; bit < 8*len(d[n]); bit += 173 {
			d[n][bit/8] ^= 1 << (bit % 8)
			_, files := inspected(t, d, inspect.Options{})
			d[n][bit/8] ^= 1 << (bit % 8)
			var c *CorruptError
			switch {
			case files[n].Err == nil:
			case !errors.As(files[n].Err, &c) || c.Offset > int64(bit/8):
				t.Fatalf("%s byte %d: %v", n, bit/8, files[n].Err)
			case c.Offset == int64(bit/8) &&
				strings.Contains(c.Reason, fmt.Sprintf("bit %d is flipped", bit%8)):
				exact++
			default:
				near++
			}
		}
	}
	if t.Logf("%d exact, %d not", exact, near); exact < 15*near {
		t.Errorf("%d exact, %d not", exact, near)
	}
	// Several bits of one record: it is the record that is named.
	c := d.clone()
	n := format.SealedName(1, 1, 0)
	_, files := inspected(t, c, inspect.Options{})
	if files[n].Err != nil {
		t.Fatal(files[n].Err)
	}
	at := strings.Index(string(c[n]), "record 20 ")
	copy(c[n][at+10:], "yyyy")
	_, files = inspected(t, c, inspect.Options{})
	var ce *CorruptError
	if !errors.As(files[n].Err, &ce) || ce.Offset != int64(at-format.RecordHeaderSize) ||
		!strings.Contains(ce.Reason, "first bad one") {
		t.Errorf("damage at %d: %v", at+10, files[n].Err)
	}
}
