package history

import (
	"bytes"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/store/history/segfile"
	"vigil/internal/vfs"
)

// A record is peeked wherever it is kept, if it is small enough and intact.
func TestPeek(t *testing.T) {
	o := testOptions(vfs.OS())
	o.Dir = t.TempDir() + "/history"
	l, err := Create(o, Applied{Term: 1, Index: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	value := func(i int64) []byte { return fmt.Appendf(nil, "%d %0500d", i, i) }
	const n = 200
	for i := int64(2); i < n; i++ {
		if _, err := l.AppendKV(kv.Rev{Main: i}, false, value(i)); err != nil {
			t.Fatal(err)
		}
		if err := l.Commit(Applied{Term: 1, Index: uint64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	v := l.View()
	files := map[*segfile.File]kv.Rev{}
	for i := int64(2); i < n; i++ {
		rev := kv.Rev{Main: i}
		if b := v.Peek(rev, 600); !bytes.Equal(b, value(i)) {
			t.Errorf("revision %d: %q", i, b)
		}
		if b := v.Peek(rev, 500); v.segmentOf(rev) != nil &&
			v.segmentOf(rev).source().file != nil && b != nil {
			t.Errorf("revision %d: %d bytes, of at most 500", i, len(b))
		}
		if s := v.segmentOf(rev); s != nil && s.source().file != nil {
			files[s.source().file] = rev
		}
	}
	if len(files) == 0 {
		t.Fatal("no segment was sealed")
	}
	for f, rev := range files { // one record of each
		b, err := os.ReadFile(f.Path())
		if err != nil {
			t.Fatal(err)
		}
		b[bytes.Index(b, value(rev.Main))+10] ^= 1
		if err := os.WriteFile(f.Path(), b, 0o600); err != nil {
			t.Fatal(err)
		}
		if b := v.Peek(rev, 600); b != nil {
			t.Errorf("revision %d, which is damaged: %q", rev.Main, b)
		}
	}
}

// evictingFS is a file system whose mapped files may be out of memory from an offset on.
type evictingFS struct {
	vfs.FS
	from *atomic.Int64
}

type evictingFile struct {
	vfs.Mapper
	fs evictingFS
}

type evictedMapping struct {
	vfs.Mapping
	fs evictingFS
}

func (e evictingFS) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return evictingFile{f.(vfs.Mapper), e}, nil
}

func (e evictingFS) Create(name string) (vfs.File, error)    { return e.wrap(e.FS.Create(name)) }
func (e evictingFS) Open(name string) (vfs.File, error)      { return e.wrap(e.FS.Open(name)) }
func (e evictingFS) OpenWrite(name string) (vfs.File, error) { return e.wrap(e.FS.OpenWrite(name)) }

func (f evictingFile) Map(size int64) (vfs.Mapping, error) {
	m, err := f.Mapper.Map(size)
	if err != nil {
		return nil, err
	}
	return evictedMapping{m, f.fs}, nil
}

func (m evictedMapping) Resident(off, n int64) bool { return off+n <= m.fs.from.Load() }

// TestPeekWaitsForNoTable: a record is not peeked while the offset table that leads to it is not in
// memory.
func TestPeekWaitsForNoTable(t *testing.T) {
	fs := evictingFS{vfs.OS(), new(atomic.Int64)}
	o := testOptions(fs)
	o.Dir = t.TempDir() + "/history"
	l, err := Create(o, Applied{Term: 1, Index: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i := int64(2); i < 200; i++ {
		if _, err := l.AppendKV(kv.Rev{Main: i}, false, make([]byte, 500)); err != nil {
			t.Fatal(err)
		}
		if err := l.Commit(Applied{Term: 1, Index: uint64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	v, sealed := l.View(), 0
	for i := int64(2); i < 200; i++ {
		rev := kv.Rev{Main: i}
		s := v.segmentOf(rev)
		if s == nil || s.source().file == nil {
			continue
		}
		sealed++
		fs.from.Store(int64(s.source().file.Footer().BodyEnd))
		if b := v.Peek(rev, 600); b != nil {
			t.Fatalf("revision %d was peeked through a table that is not in memory", i)
		}
	}
	if sealed == 0 {
		t.Fatal("no segment was sealed")
	}
	fs.from.Store(1 << 40)
	if b := v.Peek(kv.Rev{Main: 2}, 600); len(b) != 500 {
		t.Errorf("%d bytes of what is in memory", len(b))
	}
}
