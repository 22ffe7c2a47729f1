package command

import (
	"os/exec"
	"strings"
	"testing"
)

// TestQuoting: a command line that is printed is for each shell the words that it is made of, and
// nothing else.
func TestQuoting(t *testing.T) {
	words := []string{
		"", "a b", "$(exit 3)", "`exit 3`", "it's", `\`, `a\`, `\'; exit 3; '`, `\\'$(exit 3)`,
		"a\nexit 3", "=ls", "[::1]:2379", "http://[::1]:2379", "[a-z]*", "~", "a;exit 3", "{a,b}",
		"!!", "#x", "^a^b", "%1", "@x", "a=b", "key/α", "(exit 3)", `"`, "a\tb", "*", "?",
		"&", "-n", "+x",
	}
	for _, shell := range [][]string{{"sh"}, {"dash"}, {"bash", "--norc"}, {"zsh", "-f"},
		{"fish", "--no-config"}} {
		t.Run(shell[0], func(t *testing.T) {
			if _, err := exec.LookPath(shell[0]); err != nil {
				t.Skip(err)
			}
			line := `printf '%s\001' ` + QuoteWords(words...)
			out, err := exec.CommandContext(t.Context(), shell[0],
				append(shell[1:], "-c", line)...).CombinedOutput()
			if got, want := string(out),
				strings.Join(words, "\x01")+"\x01"; err != nil || got != want {
				t.Errorf("%v: %s\n got %q\nwant %q", err, line, got, want)
			}
		})
	}
}
