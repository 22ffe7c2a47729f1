package archtest

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// described are rows of ARCHITECTURE.md that say in words what a package may import, because a list would be longer than it is worth.
var described = map[string]string{
	"client":                  "all packages of `client/internal` but `servertest`",
	"server":                  "everything below",
	"cmd/vigilctl":            "the packages of commands below, `cli` `command` `complete` `exit` `screen` `show` `kv` `release`",
	"internal/member/replica": "everything in this table but `archiver`, `discovery`, `compactor` and `peer`; `store`, `state` and `offline`, `kv` `vfs`",
}

// undocumented are packages that have no row: an example, and what only tests use.
var undocumented = []string{
	"examples/follow", "scripts/measure", "internal/archtest", "internal/bucket/buckettest", "internal/vfs/faultfs", "internal/vfs/memfs", "internal/vfs/vfstest",
}

var (
	wingHeading = regexp.MustCompile("^### ((?:cmd|internal)/[a-z]+)")
	tableRow    = regexp.MustCompile("^\\| `([^`]+)` \\|.*\\| ([^|]*) \\|$")
	codeName    = regexp.MustCompile("`([^`]+)`")
)

// TestDocumentedImports compares the tables of ARCHITECTURE.md with the table of this package: a reader of one must not be told what the
// other does not say.
func TestDocumentedImports(t *testing.T) {
	doc, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(doc), "## What each package is for, and what it may import")
	if !found {
		t.Fatal("ARCHITECTURE.md has no tables of imports")
	}
	if i := strings.Index(text, "\n## "); i >= 0 {
		text = text[:i]
	}
	rows := map[string]bool{}
	wing := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "### ") {
			wing = ""
			if m := wingHeading.FindStringSubmatch(line); m != nil {
				wing = m[1]
			}
		}
		m := tableRow.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		pkg, imports := path.Join(wing, m[1]), m[2]
		r, ok := table[pkg]
		if !ok {
			t.Errorf("ARCHITECTURE.md has a row for %s, and the table of this test has none", pkg)
			continue
		}
		rows[pkg] = true
		if described[pkg] != "" {
			if imports != described[pkg] {
				t.Errorf("ARCHITECTURE.md says of %s: %q, want %q", pkg, imports, described[pkg])
			}
			continue
		}
		if imports == "nothing" {
			if len(r.inside) > 0 {
				t.Errorf("ARCHITECTURE.md says that %s imports nothing, and it may import %q", pkg, r.inside)
			}
			continue
		}
		left := slices.Clone(r.inside)
		for _, name := range codeName.FindAllStringSubmatch(imports, -1) {
			i := slices.IndexFunc(left, func(p string) bool { return p == name[1] || strings.HasSuffix(p, "/"+name[1]) })
			if i < 0 {
				t.Errorf("ARCHITECTURE.md lets %s import %s, which it may not", pkg, name[1])
				continue
			}
			left = slices.Delete(left, i, i+1)
		}
		if len(left) > 0 {
			t.Errorf("%s may import %q, which ARCHITECTURE.md does not say", pkg, left)
		}
	}
	for pkg := range table {
		if !rows[pkg] && !slices.Contains(undocumented, pkg) {
			t.Errorf("ARCHITECTURE.md has no row for %s", pkg)
		}
	}
}
