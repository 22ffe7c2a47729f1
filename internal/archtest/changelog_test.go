package archtest

import (
	"os"
	"regexp"
	"testing"
)

// TestChangelog compares the newest version in CHANGELOG.md with the version of the programs.
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
}
