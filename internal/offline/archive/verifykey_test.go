package archive

import (
	"slices"
	"strings"
	"testing"

	"vigil/internal/store/archive"
	"vigil/internal/vfs/memfs"
)

// Without a key too, verify says which entries are missing, and that nothing can be restored yet.
func TestVerifyWithoutKey(t *testing.T) {
	key := newKey(t)
	n, fsys := newNode(t, 42, key.Recipient().String())
	n.work(5)
	n.send()
	out := memfs.New()
	n.must(out.MkdirAll("v"))
	if _, err := n.open().Verify(t.Context(), VerifyOptions{FS: out, Dir: "v"}); err == nil || !strings.Contains(err.Error(), "no base state") {
		t.Errorf("no base: %v", err)
	}
	n.base(false)
	n.work(5)
	missing := n.send()
	n.work(5)
	n.send()
	index := n.index
	if v := verify(t, n.open(), false); !v.Encrypted || len(v.Gaps) > 0 || v.Index != index || v.Newest != index {
		t.Errorf("%+v, want index %d", v, index)
	}
	n.must(fsys.Remove("/bucket/" + missing))
	for _, sample := range []bool{false, true} {
		first, _, _ := archive.ParseLogName(missing)
		v := verify(t, n.open(), sample)
		if !v.Encrypted || !slices.Equal(v.Gaps, []Gap{{first, index}}) || v.Index != first-1 || v.Newest != index {
			t.Errorf("%+v, want a gap from %d to %d", v, first, index)
		}
	}
}
