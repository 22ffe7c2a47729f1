package complete

import (
	"bytes"
	"testing"
)

// TestPlain: only names that are one plain word in every shell are offered; another one is left
// out.
func TestPlain(t *testing.T) {
	for _, name := range []string{"a", "ü/", "/", ".hidden", "a-b", "a:b=c@d%20+e", "日本",
		"e\u0301", "00ff"} {
		if !plain(name) {
			t.Errorf("%q is not offered", name)
		}
	}
	for _, name := range []string{"", "a b", "a\tb\x1b[2J", "a\xff", "a\x1b[2J", "a\u202e",
		"a\u009b", "\ufffd", "a\u00a0b", "a\u3000b", "-h", "--endpoints=x", "=ls", "%1", "+x", "@x",
		":x", "\u0301"} {
		if plain(name) {
			t.Errorf("%q is offered", name)
		}
	}
	for _, special := range "$`;|&<>()[]{}*?!#~^'\"\\, \t\n\r\x00\x7f" {
		if name := "a" + string(special) + "b"; plain(name) {
			t.Errorf("%q is offered", name)
		}
	}
}

// TestScripts: there is a script for each shell, and none of them evaluates text.
func TestScripts(t *testing.T) {
	for _, shell := range Shells {
		script, err := Script(shell)
		if err != nil {
			t.Error(err)
		}
		for _, word := range []string{"eval ", "Invoke-Expression", "compgen", "source ",
			"${(e)", "_describe"} {
			if bytes.Contains(script, []byte(word)) {
				t.Errorf("the script for %s has %q", shell, word)
			}
		}
	}
}
