package config

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"vigil/test/proc"
)

// TestMistakes runs vigil with a mistake on its command line: the last line on standard error says
// what is wrong, the exit code is 2, so that a supervisor does not start it again, and nothing is
// written. go test ./config -run Mistakes -rewrite writes the outcomes anew.
func TestMistakes(t *testing.T) {
	program := proc.Path(t, proc.Vigil)
	datadriven.RunTest(t, "testdata/mistakes", func(t *testing.T, d *datadriven.TestData) string {
		var out strings.Builder
		for line := range strings.SplitSeq(strings.TrimSpace(d.Input), "\n") {
			dir := t.TempDir()
			t.Chdir(dir)
			r := proc.Run(t, time.Minute, proc.Spec{Name: program, Args: proc.Words(line)})
			lines := strings.Split(strings.TrimSuffix(r.Stderr, "\n"), "\n")
			said := lines[len(lines)-1]
			// What the flags alone do not show is found after the log has begun.
			for _, log := range lines[:len(lines)-1] {
				if !strings.HasPrefix(log, `{"level":"info"`) {
					t.Errorf("%s: %s: more than one line: %s", d.Pos, line, log)
				}
			}
			fmt.Fprintf(&out, "%d %s\n", r.Code, strings.ReplaceAll(said, dir, "DIRECTORY"))
			if r.Code != 2 && d.Cmd == "mistakes" {
				t.Errorf("%s: %s: exit code %d", d.Pos, line, r.Code)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("%s: %s: it left %v, %v", d.Pos, line, left, err)
			}
		}
		return out.String()
	})
}

// TestClientCommands: a command of vigilctl that is given to vigil leads to vigilctl.
func TestClientCommands(t *testing.T) {
	help := proc.Run(t, time.Minute,
		proc.Spec{Name: proc.Path(t, proc.Vigilctl), Args: []string{"--help"}})
	commands := regexp.MustCompile(`(?m)^  ([a-z-]+) +[A-Z]`).FindAllStringSubmatch(help.Stdout, -1)
	if len(commands) < 20 {
		t.Fatalf("the help of vigilctl has %d commands:\n%s", len(commands), help.Stdout)
	}
	for _, c := range commands {
		switch name := c[1]; name {
		case "help", "version": // of both programs
		default:
			r := proc.Run(t, time.Minute,
				proc.Spec{Name: proc.Path(t, proc.Vigil), Args: []string{name, "--prefix", "x"}})
			if want := "did you mean vigilctl " + name + "?"; r.Code != 2 ||
				!strings.Contains(r.Stderr, want) {
				t.Errorf("vigil %s: exit code %d, no %q in %s", name, r.Code, want, r.Stderr)
			}
		}
	}
}
