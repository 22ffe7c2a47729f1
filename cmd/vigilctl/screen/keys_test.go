package screen

import (
	"fmt"
	"strings"
	"testing"
)

func TestKeys(t *testing.T) {
	for text, want := range map[string]string{
		"q": "[q]", "jk?": "[j k ?]", "\x1b[A\x1bOB": "[up down]", "\x1b": "[back]",
		"\r\n": "[enter enter]", "\x7f": "[back]", "\x03": "[break]", "\x1b[15~": "[]",
		"a\x00ä": "[a]", "": "[]",
	} {
		if got := fmt.Sprint(parseKeys(text)); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	if _, _, ok := ReadKeys(strings.NewReader("q")); ok {
		t.Error("what is no terminal has keys")
	}
}
