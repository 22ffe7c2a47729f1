package keytext

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"vigil/cmd/vigilctl/screen"
)

func TestQuote(t *testing.T) {
	for key, want := range map[string]string{"a/b": "a/b", "": `""`, "a\nb": `"a\nb"`,
		"\xff": `"\xff"`, "é": "é",
		"\u009b31m": `"\u009b31m"`, "a\u202eb": `"a\u202eb"`, "\u2028": `"\u2028"`,
		"\U000e0041": `"\U000e0041"`, "👩\u200d💻": "👩\u200d💻"} {
		if got := Quote(key); got != want {
			t.Errorf("%q is quoted as %s", key, got)
		}
	}
	if got := Printable(bytes.Repeat([]byte{0}, 40)); got != "40 bytes: "+
		strings.Repeat("00", 32)+"..." {
		t.Error(got)
	}
}

// TestTextIsSafe: no form of a key or value has a character that a terminal may act on, and JSON
// preserves the bytes.
func TestTextIsSafe(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !screen.Steers(r) || !utf8.ValidRune(r) {
			continue
		}
		value := "<" + string(r) + ">"
		line, err := json.Marshal(JSON(value))
		if err != nil {
			t.Fatal(err)
		}
		var back JSON
		if err := json.Unmarshal(line, &back); err != nil || string(back) != value {
			t.Errorf("%q is read back as %q, %v", value, back, err)
		}
		texts := map[string]string{"JSON": string(line), "key": Quote(value),
			"table": screen.Safe(value)}
		if r != '\n' && r != '\t' {
			texts["value"] = Printable([]byte(value))
		}
		for form, text := range texts {
			if strings.IndexFunc(text, screen.Steers) >= 0 {
				t.Errorf("%U is printed in a %s", r, form)
			}
		}
	}
}
