package keyview

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"vigil/cmd/vigilctl/keytext"
	"vigil/cmd/vigilctl/screen"
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
		tr.addKey(root, rest, 10)
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
	for key, want := range map[string]string{"a/b": "a/b", "": `""`, "a\nb": `"a\nb"`, "\xff": `"\xff"`, "é": "é",
		"\u009b31m": `"\u009b31m"`, "a\u202eb": `"a\u202eb"`, "\u2028": `"\u2028"`, "\U000e0041": `"\U000e0041"`, "👩\u200d💻": "👩\u200d💻"} {
		if got := keytext.Quote(key); got != want {
			t.Errorf("%q shows as %s", key, got)
		}
	}
	if got := keytext.Printable(bytes.Repeat([]byte{0}, 40)); got != "40 bytes: "+strings.Repeat("00", 32)+"..." {
		t.Error(got)
	}
	// No answer of tree, history and diff has a character that steers a terminal, in any format.
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !screen.Steers(r) || !utf8.ValidRune(r) {
			continue
		}
		value := "<" + string(r) + ">"
		line, err := json.Marshal(keytext.JSON(value))
		if err != nil {
			t.Fatal(err)
		}
		var back keytext.JSON
		if err := json.Unmarshal(line, &back); err != nil || string(back) != value {
			t.Errorf("%q is read back as %q, %v", value, back, err)
		}
		for what, text := range map[string]string{"JSON": string(line), "key": keytext.Quote(value), "table": screen.Safe(value)} {
			if strings.IndexFunc(text, screen.Steers) >= 0 {
				t.Errorf("%s lets %U through", what, r)
			}
		}
		if r != '\n' && r != '\t' && strings.IndexFunc(keytext.Printable([]byte(value))+difference([]byte("old"), []byte(value)), func(r rune) bool { return r != '\n' && screen.Steers(r) }) >= 0 {
			t.Errorf("a value lets %U through", r)
		}
	}
}
