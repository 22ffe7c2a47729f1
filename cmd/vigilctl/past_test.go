package main

import (
	"bytes"
	"strings"
	"testing"

	"vigil/cmd/vigilctl/show"
)

func TestDifference(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"a", "a", "  (the same value)"},
		{"a", "b", "- a\n+ b"},
		{"one\ntwo\n", "one\n2\n", "@@ -1,2 +1,2 @@\n one\n-two\n+2"},
		{"\x00\x01\x02", "\x00\x01\xff\x03", "  4 bytes, were 3; from byte 2 on:\n- 02\n+ ff03"},
		{"text", "\x1b[2J", "  4 bytes, were 4; from byte 0 on:\n- 74657874\n+ 1b5b324a"},
	} {
		if got := difference([]byte(c.old), []byte(c.new)); got != c.want {
			t.Errorf("%q to %q:\n%s\nwant\n%s", c.old, c.new, got, c.want)
		}
	}
}

func TestTree(t *testing.T) {
	tr := tree{separator: "/", depth: 2, sizes: true}
	root := &branch{Name: "/r/"}
	for _, rest := range []string{"pods/a", "pods/b/c/d", "pods/b/e", "x", "", "bad\x1b"} {
		tr.add(root, rest, 10)
	}
	var b bytes.Buffer
	p := &show.Printer{Out: &b, Format: show.Simple}
	if err := tr.draw(root, "", p); err != nil {
		t.Fatal(err)
	}
	want := "├── \"bad\\x1b\"  10 B\n├── pods/  3  30 B\n│   ├── a  10 B\n│   └── b/  2  20 B\n└── x  10 B\n"
	if b.String() != want || root.Keys != 6 || !root.Key || tr.line(root) != "/r/  6  60 B" {
		t.Errorf("%s\n%s\n%+v", tr.line(root), b.String(), root)
	}
}

func TestSafeText(t *testing.T) {
	for key, want := range map[string]string{"a/b": "a/b", "": `""`, "a\nb": `"a\nb"`, "\xff": `"\xff"`, "é": "é"} {
		if got := quoted(key); got != want {
			t.Errorf("%q shows as %s", key, got)
		}
	}
	if got := printable(bytes.Repeat([]byte{0}, 40)); got != "40 bytes: "+strings.Repeat("00", 32)+"..." {
		t.Error(got)
	}
}
