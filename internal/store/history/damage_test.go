package history

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/vfs"
	"vigil/internal/vfs/memfs"
)

// dir is the content of a directory.
type dir map[string][]byte

func readDir(t testing.TB, fsys vfs.FS, name string) dir {
	t.Helper()
	names, err := fsys.List(name)
	if err != nil {
		t.Fatal(err)
	}
	d := dir{}
	for _, n := range names {
		if n == format.ReserveName {
			continue // there is nothing in it
		}
		f, err := fsys.Open(filepath.Join(name, n))
		if err != nil {
			t.Fatal(err)
		}
		size, err := f.Size()
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(io.NewSectionReader(f, 0, size))
		if err != nil {
			t.Fatal(err)
		}
		d[n] = b
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func (d dir) write(t testing.TB, fsys vfs.FS, name string) {
	t.Helper()
	if err := fsys.MkdirAll(name); err != nil {
		t.Fatal(err)
	}
	for n, b := range d {
		f, err := fsys.Create(filepath.Join(name, n))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(b, 0); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// small makes a small closed log with sealed segments, dense and sparse, and returns its files. The
// golden directories hold the same batches: what changes here must not change them.
func small(t testing.TB, memberID uint64) (dir, *model) {
	t.Helper()
	o := testOptions(memfs.New())
	o.MemberID = memberID
	o.SegmentBytes = minSegmentBytes
	l, m := create(t, o)
	var last kv.Rev
	for i := range uint64(60) {
		b := batch{applied: Applied{Term: 2, Index: i + 2}}
		last = kv.Rev{Main: last.Main + 1}
		if i == 30 {
			last.Main += 1000
		}
		b.recs = append(b.recs,
			rec{last, i%5 == 0, fmt.Appendf(nil, "record %d %s", i, strings.Repeat("x", int(i)))})
		if i%7 == 0 {
			b.metas = []Meta{{Bucket: 2, Key: fmt.Appendf(nil, "key%d", i%3),
				Value: fmt.Appendf(nil, "value%d", i), Deleted: i%14 == 0}}
			last.Sub = 1
			b.recs = append(b.recs, rec{last, false, []byte("second")})
		}
		if err := appendBatch(l, b); err != nil {
			t.Fatal(err)
		}
		if err := l.Commit(b.applied); err != nil {
			t.Fatal(err)
		}
		m.batches = append(m.batches, b)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return readDir(t, o.FS, o.Dir), m
}

// outcome opens a directory and says whether it holds exactly m: nil if it does, else the error by
// which the damage was detected. Anything else is a failure of the test.
func outcome(t testing.TB, d dir, m *model) error {
	t.Helper()
	o := testOptions(memfs.New())
	o.SegmentBytes = minSegmentBytes
	d.write(t, o.FS, o.Dir)
	l, err := Open(o)
	if err == nil {
		err = verifyLog(l, m)
		if cerr := l.Close(); cerr != nil {
			t.Fatal(cerr)
		}
	}
	return err
}

// TestBitFlips flips one bit after another: what is read afterwards is either right or refused.
//
//vigil:norace
func TestBitFlips(t *testing.T) {
	d, m := small(t, 9)
	if err := outcome(t, d, m); err != nil {
		t.Fatal(err)
	}
	stride := rounds(t, "VIGIL_HISTORY_FLIP_STRIDE", 397)
	detected, harmless, bit := 0, 0, 0
	for name, b := range d {
		for i := range 8 * len(b) {
			if bit++; bit%stride != 0 {
				continue
			}
			b[i/8] ^= 1 << (i % 8)
			err := outcome(t, d, m)
			b[i/8] ^= 1 << (i % 8)
			switch {
			case err == nil:
				harmless++
			case errors.Is(err, kv.ErrCorrupt):
				detected++
				if c := (*CorruptError)(nil); !errors.As(err, &c) ||
					!strings.HasSuffix(c.File, name) {
					t.Fatalf("%s bit %d: the error names another file: %v", name, i, err)
				}
			default:
				t.Fatalf("%s bit %d: %v", name, i, err)
			}
		}
	}
	t.Logf("%d bits of %d: %d detected, %d harmless", detected+harmless, bit, detected, harmless)
}

// TestFlipsServed damages the records of sealed segments under an open log: a read returns the
// right bytes or an error that names the place.
func TestFlipsServed(t *testing.T) {
	step := rounds(t, "VIGIL_HISTORY_SERVED_STEP", 13)
	for _, mapped := range []bool{true, false} {
		d, m := small(t, 9)
		for name, b := range d {
			if !strings.HasSuffix(name, format.SealedSuffix) {
				continue
			}
			for i := format.HeaderSize; i < len(b)-format.FooterSize; i += 3 * step {
				b[i] ^= 0x10
				o := testOptions(memfs.New())
				if !mapped {
					o.FS = unmapped{o.FS}
				}
				d.write(t, o.FS, o.Dir)
				b[i] ^= 0x10
				l, err := Open(o)
				if err != nil {
					if !errors.Is(err, kv.ErrCorrupt) {
						t.Fatal(err)
					}
					continue
				}
				v := l.View()
				var out kv.Records
				bad := 0
				for _, r := range m.recs() {
					got, err := v.Get(r.rev, nil)
					_, many := v.GetSome([]kv.Rev{r.rev}, math.MaxInt, &out)
					if (err == nil) != (many == nil) {
						t.Fatalf("Get: %v, GetMany: %v", err, many)
					}
					if err != nil && !errors.Is(err, kv.ErrCorrupt) {
						t.Fatalf("byte %d of %s: %v", i, name, err)
					}
					if err == nil && (!bytes.Equal(got, r.data) ||
						!bytes.Equal(out.At(out.Len()-1), r.data)) {
						t.Fatalf("byte %d of %s: wrong bytes were served for %v", i, name, r.rev)
					}
					if err != nil {
						bad++
					}
				}
				if bad > 1 {
					t.Fatalf("byte %d of %s: %d records are bad", i, name, bad)
				}
				s := v.Scan(kv.Rev{})
				for s.Next() {
				}
				if (s.Err() != nil) != (bad > 0) ||
					s.Err() != nil && !errors.Is(s.Err(), kv.ErrCorrupt) {
					t.Fatalf("byte %d of %s: scan: %v with %d bad records", i, name, s.Err(), bad)
				}
				if err := l.Check(tContext); !errors.Is(err, kv.ErrCorrupt) {
					t.Fatalf("byte %d of %s: check: %v", i, name, err)
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestWrongFiles cuts, swaps, doubles, removes and exchanges files.
//
//vigil:norace
func TestWrongFiles(t *testing.T) {
	d, m := small(t, 9)
	foreign, _ := small(t, 10)
	twin, _ := small(t, 9)
	names := slices.Sorted(func(yield func(string) bool) {
		for n := range d {
			if !yield(n) {
				return
			}
		}
	})
	clone := func() dir {
		c := dir{}
		for n, b := range d {
			c[n] = slices.Clone(b)
		}
		return c
	}
	check := func(what string, c dir, want error) {
		t.Helper()
		if err := outcome(t, c, m); !errors.Is(err, want) || err == nil {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	sealed := names[:len(names)-1]
	open := names[len(names)-1]
	if len(sealed) < 2 || !strings.HasSuffix(open, format.LogSuffix) {
		t.Fatal(names)
	}
	for _, n := range sealed {
		for _, size := range []int{0, 1, format.HeaderSize, len(d[n]) / 2, len(d[n]) - 1,
			len(d[n]) - 512} {
			c := clone()
			c[n] = c[n][:size]
			check(fmt.Sprintf("%s cut to %d", n, size), c, kv.ErrCorrupt)
		}
		c := clone()
		c[n] = append(c[n], 0)
		check(n+" with a byte more", c, kv.ErrCorrupt)
		c = clone()
		delete(c, n)
		check(n+" removed", c, kv.ErrCorrupt)
		c = clone()
		c[n] = foreign[n]
		check(n+" of another member", c, ErrIdentity)
		c = clone()
		c[n] = twin[n]
		check(n+" of a twin", c, kv.ErrCorrupt)
	}
	c := clone()
	c[sealed[0]], c[sealed[1]] = c[sealed[1]], c[sealed[0]]
	check("swapped", c, kv.ErrCorrupt)
	c = clone()
	c[format.SealedName(9, 9, 0)] = c[sealed[0]]
	check("doubled under a later name", c, kv.ErrCorrupt)
	c = clone()
	c[format.SealedName(1, 1, 1)] = c[sealed[0]]
	check("doubled under a later generation", c, kv.ErrCorrupt)
	c = clone()
	c["1.seg"] = nil
	check("a wrong name", c, kv.ErrCorrupt)
	c = clone()
	c[open] = foreign[open]
	check("the open segment of another member", c, ErrIdentity)
	c = clone()
	c[open] = c[open][:format.HeaderSize-1]
	check("the open segment without a header", c, kv.ErrCorrupt)
	check("only the open segment", dir{open: d[open]}, kv.ErrCorrupt)

	for _, n := range names {
		c := clone()
		h, err := format.DecodeHeader(c[n])
		if err != nil {
			t.Fatal(err)
		}
		h.Version = format.Version + 1
		copy(c[n], h.Encode())
		check("a newer version", c, ErrVersion)
	}

	c = clone()
	c["lost+found"] = nil
	c[format.SegmentName(99)+format.TempSuffix] = []byte("left over")
	if err := outcome(t, c, m); err != nil {
		t.Errorf("files that do not matter: %v", err)
	}
}

// TestFault cuts a mapped file under a reader, which is what a disk that fails to deliver a page
// looks like.
func TestFault(t *testing.T) {
	d, m := small(t, 9)
	o := testOptions(vfs.OS())
	o.Dir = filepath.Join(t.TempDir(), "history")
	d.write(t, o.FS, o.Dir)
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := verifyLog(l, m); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(o.Dir, format.SealedName(1, 1, 0))
	if err := os.Truncate(name, 0); err != nil {
		t.Fatal(err)
	}
	want := func(err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), name) ||
			!strings.Contains(err.Error(), "offset") || errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
	}
	first := m.recs()[0].rev
	out, err := l.View().Get(first, []byte("kept"))
	want(err)
	if string(out) != "kept" {
		t.Fatalf("%q", out)
	}
	var many kv.Records
	_, err = l.View().GetSome([]kv.Rev{m.last(), first}, math.MaxInt, &many)
	want(err)
	if many.Len() != 1 || len(many.Buf) != many.Ends[0] {
		t.Fatalf("%d records", many.Len())
	}
	s := l.View().Scan(kv.Rev{})
	for s.Next() {
	}
	want(s.Err())
	want(l.Check(tContext))
	if _, err := l.View().Get(m.last(), nil); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
