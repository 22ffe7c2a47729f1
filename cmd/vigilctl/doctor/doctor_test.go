package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"vigil/client"
	"vigil/cmd/vigilctl/screen"
	"vigil/internal/health"
)

// TestDrawing compares the whole text for a cluster of which one member does not answer, and one
// has few writes.
func TestDrawing(t *testing.T) {
	d := &diagnosis{Diagnosis: &health.Diagnosis{Members: 3, Leader: "a", Seen: []string{"a", "b"},
		Findings: []health.Finding{
			{Severity: health.Critical, Member: "c", What: "does not answer at 10.0.0.3:2379: gone",
				Page: "docs/operations/observe.md#vigilmemberdown",
				Next: "check its process and its log, and start it again with its data directory, which loses nothing; if it runs, check that this machine can reach the address"},
			{Severity: health.Critical,
				What: "2 of 3 voting members answer, the smallest quorum: if the others have failed, one more failure stops all writes", Next: "bring the other members back first: the findings about each say how",
				Page: "docs/operations/observe.md#vigilquorumatrisk"},
		},
		Unchecked: []health.Unchecked{{Member: "c", Why: "it does not answer"}},
	}}
	for _, name := range checkNames() {
		if !slices.Contains([]string{"reachable", "quorum", "disk"}, name) {
			d.Passed = append(d.Passed, name)
		}
	}
	for _, few := range []string{"writes of the raft log", "commits", "applied writes"} {
		d.Unchecked = append(d.Unchecked,
			health.Unchecked{Check: "disk", Member: "b",
				Why: "12 " + few + " in the last 60m are too few to judge by"})
	}
	const want = `CRITICAL  c: does not answer at 10.0.0.3:2379: gone
    next: check its process and its log, and start it again with its data directory, which loses nothing; if it runs, check that this machine can reach the address
    page: docs/operations/observe.md#vigilmemberdown

CRITICAL  2 of 3 voting members answer, the smallest quorum: if the others have failed, one more failure stops all writes
    next: bring the other members back first: the findings about each say how
    page: docs/operations/observe.md#vigilquorumatrisk

ok  all agree on a leader (a, b)
ok  no alarm is raised (a, b)
ok  no disk is full (a, b)
ok  no damaged data were found (a, b)
ok  the members hold the same data (a, b)
ok  all members have one version (a, b)
ok  no quota is nearly used (a, b)
ok  no member lags far (a, b)
ok  the network is fast, and the leader stable (a, b)
ok  clocks agree (a, b)
ok  no certificate expires soon (a, b)
ok  watchers keep up (a, b)
ok  old revisions are compacted (a, b)
ok  the archive, if there is one, is complete (a, b)
ok  no setting is known to be harmful (a, b)
not checked: c, everything: it does not answer
not checked: b, disk: 12 writes of the raft log in the last 60m are too few to judge by
not checked: b, disk: 12 commits in the last 60m are too few to judge by
not checked: b, disk: 12 applied writes in the last 60m are too few to judge by

3 members, leader a: 2 critical, 0 warnings, not everything was checked`
	if got := strings.Join(d.draw(200, screen.Paint{}), "\n"); got != want {
		t.Errorf("got:\n%s\n\nwant:\n%s", got, want)
	}
}

// TestFindPages: the pages of a package and of an archive are found from the program's place.
func TestFindPages(t *testing.T) {
	for pages, program := range map[string]string{"usr/share/doc/vigil": "usr/bin/vigilctl",
		"vigil-1.0": "vigil-1.0/bin/vigilctl"} {
		root := t.TempDir()
		at := filepath.Join(root, pages, "docs", "operations")
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		if got := findPages(filepath.Join(root, program)); got != "" {
			t.Errorf("of %s without pages: %s", program, got)
		}
		if err := os.WriteFile(filepath.Join(at, "doctor.md"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if got, want := findPages(filepath.Join(root, program)),
			filepath.Join(root, pages)+"/"; got != want {
			t.Errorf("of %s: %s, want %s", program, got, want)
		}
	}
	d := &diagnosis{pages: "/usr/share/doc/vigil/",
		Diagnosis: &health.Diagnosis{Findings: []health.Finding{{Severity: health.Note, What: "w",
			Next: "n", Page: "docs/p.md#h"}}}}
	if text := strings.Join(d.draw(100, screen.Paint{}), "\n"); !strings.Contains(text,
		"\n    page: /usr/share/doc/vigil/docs/p.md#h\n") {
		t.Error(text)
	}
}

func TestDoctorNarrow(t *testing.T) {
	d := &diagnosis{Diagnosis: &health.Diagnosis{Findings: []health.Finding{{Severity: health.Critical, Member: "h:1", What: "does not answer: " + strings.Repeat("x", 70), Next: "check its process", Page: "docs/p.md"}}}}
	for _, line := range d.draw(40, screen.Paint{}) {
		if len([]rune(line)) > 40 {
			t.Errorf("%q", line)
		}
	}
}

// TestLimits: flags change limits, and wrong ones are rejected.
func TestLimits(t *testing.T) {
	if l, err := parseLimits([]string{"clock=5s", "lag=7"}); err != nil ||
		l.Clock != 5*time.Second || l.Lag != 7 || l.Quota != 80 {
		t.Errorf("%+v, %v", l, err)
	}
	for text, want := range map[string]string{
		"clock":           "want NAME=VALUE, where NAME is one of: raft-log, raft-log-critical, store",
		"none=1":          "want NAME=VALUE",
		"lag=many":        "--limit lag=many: the value must be like 5000, and not negative",
		"lag=NaN":         "must be like 5000",
		"clock=-1s":       "--limit clock=-1s: the value must be like 1s, and not negative",
		"certificate=30d": "must be like 720h0m0s",
	} {
		if _, err := parseLimits([]string{text}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := validateChecks([]string{"disk", "disc"}); err == nil ||
		!strings.Contains(err.Error(),
			"--skip disc: no check has this name; the checks are: reachable, leader") {
		t.Error(err)
	}
}

// TestDoctorPage: the page describes every check and every limit with its default.
func TestDoctorPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/operations/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]+) \\| ([^|]+) \\|").FindAllStringSubmatch(string(page), -1) {
		values := strings.Split(row[2], ", ")
		for i, name := range strings.Split(row[1], ", ") {
			rows[strings.Trim(name, "`")] = values[min(i, len(values)-1)]
		}
	}
	for _, name := range checkNames() {
		if rows[name] == "" {
			t.Errorf("no row of the check %s", name)
		}
	}
	l := health.Limits{}
	limitFlags(&l).VisitAll(func(f *pflag.Flag) {
		if got := strings.TrimSuffix(f.DefValue, "0m0s"); rows[f.Name] != got {
			t.Errorf("the limit %s is %s by default, the page says %q", f.Name, got, rows[f.Name])
		}
	})
}

// TestReduced: an error of an unreachable member is shown with its first cause, and is still the
// whole error.
func TestReduced(t *testing.T) {
	cause := errors.New("connection\nrefused")
	err := reduce(&client.UnreachableError{Errors: []error{cause}})
	if err.Error() != "connection refused" || reduce(nil) != nil {
		t.Errorf("%v", err)
	}
	if _, ok := errors.AsType[*client.UnreachableError](err); !ok {
		t.Errorf("%T is not the whole error", err)
	}
}
