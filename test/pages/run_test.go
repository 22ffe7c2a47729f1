package pages

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// userPages returns the pages for users: README.md, and all below docs.
func userPages(t *testing.T) (out []string) {
	t.Helper()
	for _, page := range markdown(t) {
		if page == "README.md" || strings.HasPrefix(page, "docs/") {
			out = append(out, page)
		}
	}
	return out
}

// TestCommands runs the commands of every page that has some.
func TestCommands(t *testing.T) {
	pages := 0
	for _, page := range userPages(t) {
		var run []block
		for _, b := range parse(t, page) {
			if b.language == "console" && b.notRun == "" || b.language == "run" {
				run = append(run, b)
			}
		}
		if len(run) == 0 {
			continue
		}
		pages++
		t.Run(strings.TrimSuffix(filepath.ToSlash(page), ".md"), func(t *testing.T) {
			t.Parallel()
			for _, needed := range []string{"openssl", "curl"} {
				if _, err := exec.LookPath(needed); err != nil && mentions(run, needed) {
					t.Skip(needed + " is not installed; ./check installs it")
				}
			}
			newWorld(t, page, run).run(run)
		})
	}
	if pages < 20 {
		t.Errorf("only %d pages run", pages)
	}
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

// TestEveryBlock: each block of commands of a page runs, or the page has the reason why not.
func TestEveryBlock(t *testing.T) {
	texts := []string{"go", "json", "yaml", "text", "diff"}
	for _, page := range userPages(t) {
		for _, b := range parse(t, page) {
			text := slices.Contains(texts, b.language)
			switch {
			case b.language == "run":
			case b.language == "console" && b.notRun != "":
				t.Errorf("%s:%d: a block that does not run has the language sh", page, b.line)
			case b.language == "console":
				if steps, err := b.steps(); err != nil || len(steps) == 0 {
					t.Errorf("%s:%d: %d commands, %v", page, b.line, len(steps), err)
				}
			case b.language == "sh" && b.notRun == "":
				t.Errorf("%s:%d: the block does not run (console), and has no comment with the reason (not run: ...)", page, b.line)
			case b.language != "sh" && !text:
				t.Errorf("%s:%d: a block of the language %q", page, b.line, b.language)
			case text && slices.ContainsFunc(b.lines, isCommand):
				t.Errorf("%s:%d: a block of the language %s has a command", page,
					b.line, b.language)
			}
		}
		for _, line := range prose(t, page) {
			if strings.HasPrefix(line, "    ") {
				t.Errorf("%s: %q: an indented block is not run: use a fence", page, line)
			}
		}
	}
}

// isCommand reports whether a line is one for a shell.
func isCommand(line string) bool {
	words := append(strings.Fields(line), "", "")
	return strings.HasPrefix(line, "$ ") || strings.HasPrefix(line, "./") ||
		slices.Contains([]string{"vigil", "vigilctl", "etcd", "etcdctl", "etcdutl", "curl",
			"openssl", "make", "go", "kubectl", "helm", "systemctl"}, words[0]) &&
			strings.HasPrefix(words[1], "-")
}
