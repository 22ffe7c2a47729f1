package archtest

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestChangelog compares the newest version in CHANGELOG.md with the version of the programs, and
// keeps each line one effect.
func TestChangelog(t *testing.T) {
	first := func(file, pattern string) string {
		text, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(pattern).FindSubmatch(text)
		if m == nil {
			t.Fatalf("%s does not match %s", file, pattern)
		}
		return string(m[1])
	}
	program := first("internal/release/release.go", `(?m)^var Version = "([^"]+)"$`)
	if log := first("CHANGELOG.md", `(?m)^## (\d[^ ]*) - \d{4}-\d\d-\d\d$`); log != program {
		t.Errorf("the newest version in CHANGELOG.md is %s, the programs report %s", log, program)
	}
	first("CHANGELOG.md", `(?m)^## (Unreleased)$`)
	text, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); utf8.RuneCountInString(line) > 100 {
			t.Errorf("CHANGELOG.md: a line with more than 100 characters: %s", line)
		}
	}
}
