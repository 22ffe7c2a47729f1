package keyview

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"vigil/client"
	"vigil/client/times"
	"vigil/cmd/vigilctl/screen"
	"vigil/cmd/vigilctl/show"
)

func TestDifference(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"a", "a", "  (the same value)"},
		{"a", "b", "- a\n+ b"},
		{"one\ntwo\n", "one\n2\n", "@@ -1,2 +1,2 @@\n one\n-two\n+2"},
		{"\x00\x01\x02", "\x00\x01\xff\x03", "  4 bytes, were 3; from byte 2 on:\n- 02\n+ ff03"},
		{`{"a":1,"b":{"c":[1,2]},"d":"x"}`, `{ "a": 2, "b": {"c": [1]}, "e": null }`,
			"~ a: 2, was 1\n- b.c[1]: 2\n- d: \"x\"\n+ e: null"},
		{`{"a":1}`, `{ "a": 1 }`, "  (the same content, written differently)"},
		{"spec:\n  replicas: 1\n  image: x\n", "spec:\n  image: x\n  replicas: 3\n",
			"~ spec.replicas: 3, was 1"},
		{`[1]`, `{"a":1}`, "- [1]\n+ {\"a\":1}"},
		{`{"a":"x"}`, `{"a":"\u009b1m\u001b"}`, "~ a: \"\ufffd1m\\u001b\", was \"x\""},
		{"a: 1\n---\nb: 1\n", "a: 1\n---\nb: 2\n", "@@ -1,3 +1,3 @@\n a: 1\n ---\n-b: 1\n+b: 2"},
		{`[100000000000000000001]`, `[100000000000000000002]`,
			"- [100000000000000000001]\n+ [100000000000000000002]"},
		{`[0.5]`, `[0.25]`, "~ [0]: 0.25, was 0.5"},
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
		tr.addKey(root, rest, 10)
	}
	var b bytes.Buffer
	p := &show.Printer{Out: &b, Format: show.Simple}
	if err := tr.drawBranches(root, "", p); err != nil {
		t.Fatal(err)
	}
	want := "├── \"bad\\x1b\"  10 B\n├── pods/  3  30 B\n│   ├── a  10 B\n│   └── b/  2  20 B\n└── x  10 B\n"
	if b.String() != want || root.Keys != 6 || !root.Key || tr.line(root) != "/r/  6  60 B" {
		t.Errorf("%s\n%s\n%+v", tr.line(root), b.String(), root)
	}
}

// TestDifferenceIsSafe: a difference of values has no character that a terminal may act on.
func TestDifferenceIsSafe(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !screen.Steers(r) || !utf8.ValidRune(r) || r == '\n' || r == '\t' {
			continue
		}
		text := difference([]byte("old"), []byte("<"+string(r)+">"))
		if strings.IndexFunc(text,
			func(r rune) bool { return r != '\n' && screen.Steers(r) }) >= 0 {
			t.Errorf("%U is printed", r)
		}
	}
}

// TestBoundedHistory: a history has the last changes, and says how many are left out.
func TestBoundedHistory(t *testing.T) {
	var out, notes bytes.Buffer
	h := keyHistory{last: map[string]client.KeyValue{},
		print: &show.Printer{Out: &out, Format: show.Simple}, bounded: true, notes: &notes}
	for i := range 60 {
		value := strings.Repeat("line\n", 100) + fmt.Sprint(i)
		if err := h.printChange(client.Event{KV: client.KeyValue{Key: "k", Value: []byte(value),
			ModRevision: int64(i + 2), Version: 1}}, times.Span{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range h.recent {
		if err := h.printText(x); err != nil {
			t.Fatal(err)
		}
	}
	text := out.String()
	if strings.Count(text, "revision ") != maxChanges || h.omitted != 60-maxChanges ||
		!strings.HasPrefix(text, "revision 12  version 1  k\n") {
		t.Errorf("%d left out\n%.200s", h.omitted, text)
	}
	if strings.Count(text, "\n") != maxChanges*(maxLines+2) ||
		strings.Count(text, "61 more lines: --full") != maxChanges {
		t.Errorf("%d lines\n%.3000s", strings.Count(text, "\n"), text)
	}
}
