package history

import (
	"bytes"
	"fmt"
	"os"
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
		if b := v.Peek(rev, 500); v.segmentOf(rev) != nil && v.segmentOf(rev).source().file != nil && b != nil {
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
