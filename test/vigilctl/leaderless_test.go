package vigilctl

import (
	"strings"
	"testing"
	"time"

	"vigil/test/proc"
)

// TestNobodyCanLogIn: without a leader nobody can log in. The commands that look at members go on
// with what needs no user, say why there is no more, and end like those for a cluster that is not
// healthy.
func TestNobodyCanLogIn(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t, proc.Vigil, 3, "--bcrypt-cost=4")
	ctl, at := proc.Path(t, proc.Vigilctl), "--endpoints="+cluster[0].Addr()
	for _, args := range [][]string{{"user", "add", "root:pw"},
		{"user", "grant-role", "root", "root"}, {"auth", "enable"}} {
		if r := proc.Run(t, untilTimeout,
			proc.Spec{Name: ctl, Args: append(args, at)}); r.Code != 0 {
			t.Fatalf("%q: %d %s", args, r.Code, r.Stderr)
		}
	}
	cluster[1].Kill()
	cluster[2].Kill()
	for end := time.Now().Add(untilTimeout); ; {
		r := proc.Run(t, untilTimeout,
			proc.Spec{Name: ctl, Args: []string{"put", "a", "b", "--user=root:pw", at}})
		if r.Code != 0 && strings.Contains(r.Stderr, "no leader") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d %s", r.Code, r.Stderr)
		}
	}
	const why = "there was no leader, so that nobody could log in"
	for _, c := range []struct {
		args string
		says []string
	}{
		{"doctor", []string{"CRITICAL", "is alive, and knows no leader", "everything: " + why}},
		{"top", []string{why}},
		{"watchers", []string{why}},
		{"endpoint status", []string{"Failed to get the status", why}},
		{"endpoint status --cluster", []string{"Failed to get the status", why}},
	} {
		r := proc.Run(t, untilTimeout,
			proc.Spec{Name: ctl, Args: append(strings.Fields(c.args), "--user=root:pw", at)})
		said := strings.Join(strings.Fields(r.Stdout+r.Stderr), " ")
		for _, text := range c.says {
			if !strings.Contains(said, text) {
				t.Errorf("%s does not say %q", c.args, text)
			}
		}
		if r.Code != 1 || t.Failed() {
			t.Errorf("%s: exit code %d\n%s%s", c.args, r.Code, r.Stdout, r.Stderr)
		}
	}
}
