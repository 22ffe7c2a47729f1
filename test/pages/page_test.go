package pages

import (
	"slices"
	"strings"
	"testing"
)

func TestBlocks(t *testing.T) {
	all, err := blocks(strings.Join([]string{
		"text", "```console until fails", "$ one \\", "  more", "out", "$ two <<'EOF'", "in", "EOF",
		"```", "<!-- run: kill m1 -->", "```go", "x", "```",
	}, "\n"))
	if err != nil || len(all) != 3 {
		t.Fatal(all, err)
	}
	if b := all[0]; b.language != "console" || !b.has("until") || !b.has("fails") ||
		b.has("live") || b.line != 2 {
		t.Errorf("%+v", b)
	}
	steps, err := all[0].steps()
	if err != nil || len(steps) != 2 || steps[0].command != "one \\\n  more" ||
		!slices.Equal(steps[0].want, []string{"out"}) ||
		steps[1].command != "two <<'EOF'\nin\nEOF" || len(steps[1].want) != 0 ||
		steps[1].line != 6 {
		t.Errorf("%+v, %v", steps, err)
	}
	if b := all[1]; b.language != "run" || !slices.Equal(b.words, []string{"kill", "m1"}) {
		t.Errorf("%+v", b)
	}
	if all[2].language != "go" {
		t.Errorf("%+v", all[2])
	}
	for _, bad := range []string{"```console\n$ x", "<!-- console\n$ x",
		"<!-- not run: why -->\ntext\n```sh\nx\n```", "<!-- not run: why -->"} {
		if _, err := blocks(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	all, err = blocks(strings.Join([]string{
		"<!-- console start", "$ hidden", "-->", "1. list", "", "   <!-- not run: needs root -->",
		"", "   ```sh", "   rm x", "   ```", "```sh", "y", "```",
	}, "\n"))
	if err != nil || len(all) != 3 || !all[0].has("start") ||
		!slices.Equal(all[0].lines, []string{"$ hidden"}) ||
		all[1].notRun != "needs root" || !slices.Equal(all[1].lines, []string{"rm x"}) ||
		all[2].notRun != "" {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		want, got    string
		longer, fits bool
	}{
		{"OK", "OK\n", false, true},
		{"OK", "OK\nmore\n", false, false},
		{"OK", "OK\nmore\n", true, true},
		{"OK", "", false, false},
		{"", "", false, true},
		{"", "something\n", false, false},
		{"a  b ---- c", "a b ------- c\n", false, true},
		{"took ...", "took 3ms\n", false, true},
		{"...\nlast", "1\n2\nlast\n", false, true},
		{"...\nlast", "last\n", false, true},
		{"...\nlast", "1\nlast\nafter\n", false, false},
		{"a.c", "abc\n", false, false},
		{"member 4a599d56b211c6c8 added", "member 123456789abcdef added\n", false, true},
		{"member 4a599d56b211c6c8 added", "member none added\n", false, false},
	} {
		var want []string
		if c.want != "" {
			want = strings.Split(c.want, "\n")
		}
		if got := (ids{}).matches(want, c.got, c.longer); got != c.fits {
			t.Errorf("%q and %q, longer %v: %v", c.want, c.got, c.longer, got)
		}
	}
}

func TestIDs(t *testing.T) {
	known := ids{}
	if !known.matches([]string{"lease 4a599d56b211c6c8 granted"},
		"lease 1111111111111111 granted\n", false) {
		t.Fatal("no match")
	}
	if got := known.inRun("revoke 4a599d56b211c6c8 2bd1db02b2233d63"); got != "revoke 1111111111111111 2bd1db02b2233d63" {
		t.Error(got)
	}
	if known.matches([]string{"lease 4a599d56b211c6c8 revoked"},
		"lease 2222222222222222 revoked\n", false) {
		t.Error("another id is taken for the known one")
	}
	if !known.contains([]string{"revoked", "done"}, "x\nlease revoked at\ny\ndone\n") ||
		known.contains([]string{"done", "revoked"}, "revoked\ndone\n") {
		t.Error("lines of a log are compared in a wrong order")
	}
}
