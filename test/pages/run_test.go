package pages

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// notRun are the blocks of pages that run which cannot run in a test, by their first line, with the reason.
var notRun = map[string]map[string]string{
	"docs/operations/disaster.md": {
		"systemctl stop vigil": "it needs systemd and a service of that name",
	},
	"docs/operations/security.md": {
		"useradd --system --home-dir /var/lib/vigil vigil": "it needs root and changes the machine",
	},
	"docs/quickstart.md": {
		"make build":                      "the test builds the programs itself",
		"openssl genrsa -out sa.key 2048": "it needs a kube-apiserver; the tests of make kubernetes start one so",
	},
}

func TestCommands(t *testing.T) {
	for _, page := range slices.Sorted(maps.Keys(notRun)) {
		t.Run(filepath.Base(page), func(t *testing.T) {
			t.Parallel()
			all := parse(t, page)
			if slices.Contains(programs(all), "openssl") {
				if _, err := exec.LookPath("openssl"); err != nil {
					t.Skip("openssl is not installed; ./check installs it")
				}
			}
			var run []block
			for _, b := range all {
				if b.language == "console" || b.language == "run" {
					run = append(run, b)
				}
			}
			if len(run) < 3 {
				t.Fatalf("only %d blocks run", len(run))
			}
			newWorld(t, page).run(run)
		})
	}
}

// programs returns the first word of each command.
func programs(all []block) (out []string) {
	for _, b := range all {
		if b.language != "console" {
			continue
		}
		for _, line := range b.lines {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				out = append(out, strings.Fields(command)[0])
			}
		}
	}
	return out
}

func parse(t *testing.T, page string) []block {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	all, err := blocks(string(text))
	if err != nil {
		t.Fatalf("%s: %v", page, err)
	}
	return all
}

// TestNotRun: pages that run have their other commands in the list, and no command outside of a fence.
func TestNotRun(t *testing.T) {
	other := []string{"console", "run", "go", "json", "yaml", "text", "diff"}
	for page, reasons := range notRun {
		seen := map[string]bool{}
		for _, b := range parse(t, page) {
			switch {
			case slices.Contains(other, b.language):
			case b.language != "sh":
				t.Errorf("%s:%d: a block of the language %q", page, b.line, b.language)
			case reasons[b.lines[0]] == "":
				t.Errorf("%s:%d: the block does not run, and the test has no reason for it", page, b.line)
			default:
				seen[b.lines[0]] = true
			}
		}
		for line := range reasons {
			if !seen[line] {
				t.Errorf("%s has no block that begins with %q", page, line)
			}
		}
		for _, line := range prose(t, page) {
			if strings.HasPrefix(line, "    ") {
				t.Errorf("%s: %q: an indented block is not run: use a fence", page, line)
			}
		}
	}
}
