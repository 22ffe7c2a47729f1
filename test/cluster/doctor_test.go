package cluster

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"vigil/test/proc"
)

// TestDoctor asks one member about a cluster of three while its members are killed: the others are found by the list of
// members, which no quorum is needed for, and nothing is called ok that was not looked at.
func TestDoctor(t *testing.T) {
	g := start(t, 3, steady)
	lead := g.leader()
	g.agree()
	rest := g.others(lead)
	doctor := func(asked *member, code int, lines ...string) string {
		t.Helper()
		r := proc.Run(t, patience, proc.Spec{Name: proc.Path(t, proc.Vigilctl), Args: []string{"doctor", "--command-timeout=2s", "--endpoints=" + asked.Addr()}})
		if r.Code != code {
			t.Errorf("exit code %d, want %d: %s", r.Code, code, r.Stderr)
		}
		for _, line := range lines {
			if !regexp.MustCompile(`(?m)` + line + `$`).MatchString(r.Stdout) {
				t.Errorf("no line %q in\n%s", line, r.Stdout)
			}
		}
		return r.Stdout
	}
	// A busy machine may have slow syncs, so the exit code of a healthy cluster is not compared.
	r := proc.Run(t, patience, proc.Spec{Name: proc.Path(t, proc.Vigilctl), Args: []string{"doctor", "--endpoints=" + rest[0].Addr()}})
	for _, line := range []string{"ok  every member answers", "ok  the cluster survives the loss of a member", "ok  the members hold the same data", "ok  no disk is full"} {
		if !strings.Contains(r.Stdout, line+"\n") {
			t.Errorf("of a healthy cluster: no line %q in\n%s", line, r.Stdout)
		}
	}
	if strings.Contains(r.Stdout, "everything:") {
		t.Errorf("of a healthy cluster, a member was not asked:\n%s", r.Stdout)
	}

	rest[1].Kill()
	gone := func(m *member) string { return fmt.Sprintf("CRITICAL  %s: does not answer at .*", m.name) }
	doctor(rest[0], 1, gone(rest[1]),
		"CRITICAL  2 of 3 voting members answer, the smallest quorum: one more failure stops all writes",
		`ok  no disk is full \(m\d, m\d\)`, "not checked: "+rest[1].name+", everything: it does not answer")

	lead.Kill()
	out := doctor(rest[0], 1, gone(rest[1]), gone(lead),
		"CRITICAL  1 of 3 voting members answer and 2 are needed: no write is possible",
		"not checked: one member answers: its data are compared with none|not checked: data: one member answers: its data are compared with none")
	start, force, restore := strings.Index(out, "nothing is lost then"), strings.Index(out, "--force-new-cluster"), strings.Index(out, "snapshot restore")
	if start < 0 || force < start || restore < force {
		t.Errorf("the advice does not begin with what loses least:\n%s", out)
	}
	for _, line := range []string{"ok  every member answers", "ok  the cluster survives", "ok  the members hold"} {
		if strings.Contains(out, line) {
			t.Errorf("%q without a quorum:\n%s", line, out)
		}
	}

	// A request without a quorum says why. For an election timeout a member believes that its leader lives.
	failed := proc.Run(t, patience, proc.Spec{Name: proc.Path(t, proc.Vigilctl), Args: []string{"put", "a", "b", "--command-timeout=1s", "--endpoints=" + rest[0].Addr() + "," + lead.Addr()}})
	if want := regexp.MustCompile(`(?s)^Error: .*\n  ` + rest[0].Addr() + `: answers, and knows (no leader: .*|the leader [0-9a-f]+)\n  ` + lead.Addr() + `: .*refused\n  next: vigilctl doctor\n$`); failed.Code != 1 || !want.MatchString(failed.Stderr) {
		t.Errorf("put without a quorum: %d %s", failed.Code, failed.Stderr)
	}

	rest[0].Kill()
	out = doctor(rest[0], 1, `CRITICAL  127\.0\.0\.1:\d+: does not answer: .*`, `not checked: 127\.0\.0\.1:\d+, everything: its status is not known`)
	if strings.Contains(out, "ok  ") {
		t.Errorf("ok without an answer:\n%s", out)
	}
}
