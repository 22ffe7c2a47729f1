package archived

import (
	"errors"
	"io"
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
	if _, err := n.open().Verify(t.Context(), VerifyOptions{FS: out, Dir: "v"}); err == nil ||
		!strings.Contains(err.Error(), "no base state") {
		t.Errorf("no base: %v", err)
	}
	n.base(false)
	n.work(5)
	missing := n.send()
	n.work(5)
	n.send()
	index := n.index
	if v := verify(t, n.open(), false); !v.Encrypted || len(v.Gaps) > 0 || v.Index != index ||
		v.Newest != index {
		t.Errorf("%+v, want index %d", v, index)
	}
	n.must(fsys.Remove("/bucket/" + missing))
	for _, sample := range []bool{false, true} {
		first, _, _ := archive.ParseLogName(missing)
		v := verify(t, n.open(), sample)
		if !v.Encrypted || !slices.Equal(v.Gaps, []Gap{{first, index}}) || v.Index != first-1 ||
			v.Newest != index {
			t.Errorf("%+v, want a gap from %d to %d", v, first, index)
		}
	}
}

// With keys that do not fit all objects a verification is not complete, and says so: after a change
// of the recipients both keys are needed.
func TestVerifyWithWrongKeys(t *testing.T) {
	first, second, other := newKey(t), newKey(t), newKey(t)
	n, _ := newNode(t, 49, first.Recipient().String())
	n.work(5)
	n.base(false)
	var err error
	n.seal, err = archive.NewSealer(n.id, []string{second.Recipient().String()})
	n.must(err)
	n.work(5)
	n.send()
	n.base(true)
	for what, c := range map[string]struct {
		keys []string
		ok   bool
	}{
		"another":    {[]string{other.String()}, false},
		"the first":  {[]string{first.String()}, false},
		"the second": {[]string{second.String()}, false},
		"both":       {[]string{first.String(), second.String()}, true},
		"none":       {nil, true}, // only checksums, as was asked for
	} {
		var files []io.Reader
		for _, k := range c.keys {
			files = append(files, strings.NewReader(k))
		}
		a, err := Open(t.Context(), n.b, "memory", files...)
		n.must(err)
		out := memfs.New()
		n.must(out.MkdirAll("v"))
		v, err := a.Verify(t.Context(), VerifyOptions{FS: out, Dir: "v"})
		if (err == nil) != c.ok || err != nil && !errors.Is(err, archive.ErrKey) ||
			len(v.Damages) > 0 {
			t.Errorf("%s: %v, %+v", what, err, v)
		}
		if err != nil && !strings.Contains(err.Error(), "private keys of all recipients") {
			t.Error(err)
		}
	}
}
