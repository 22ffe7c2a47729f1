package cluster

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"vigil/test/proc"
)

// TestDoctorDeadMembers kills the members of a cluster one after the other, and starts them again:
// that is the advice, and it loses nothing. Then all but one are restored from a backup.
func TestDoctorDeadMembers(t *testing.T) {
	onlyVigil(t)
	t.Parallel()
	g := start(t, 3)
	first := g.list[0]
	g.agree()
	asked := "--endpoints=" + first.Addr()
	// Without a quorum the alarms cannot be listed, and without members nothing can: each takes
	// that long.
	const hasty, hastier = "--command-timeout=2s", "--command-timeout=1s"
	ctl := func(args ...string) proc.Result {
		t.Helper()
		return proc.Run(t, patience, proc.Spec{Name: proc.Path(t, proc.Vigilctl), Args: args})
	}

	g.list[2].Kill()
	g.doctor("one-of-three-dead", patient, unhurried, asked)

	g.put(first, "k", "v")
	g.list[1].Kill()
	g.doctor("two-of-three-dead", hasty, unhurried, asked)
	// A request says why it fails, too. For an election timeout a member believes that its leader
	// lives.
	for _, request := range [][]string{{"put", "a", "b"}, {"get", "a"}, {"member", "list"}} {
		failed := ctl(append(request, "--command-timeout=1s",
			"--endpoints="+first.Addr()+","+g.list[1].Addr())...)
		if want := regexp.MustCompile(`(?s)^Error: .*\n  ` + first.Addr() +
			`: answers, and (has had no leader for \w+: .*|knows the leader [0-9a-f]+ \(m\d\))\n  ` + g.list[1].Addr() + `: .*refused\n  next: vigilctl doctor\n$`); failed.Code != 1 || !want.MatchString(failed.Stderr) {
			t.Errorf("%q without a quorum: %d %s", request, failed.Code, failed.Stderr)
		}
	}

	// Without a quorum, too, the member serves the pages of the findings.
	pages := regexp.MustCompile(`page: (http://`+regexp.QuoteMeta(first.Addr())+
		`/console/docs/\S+\.md)`).FindAllStringSubmatch(ctl("doctor", hasty, unhurried,
		asked).Stdout, -1)
	if len(pages) == 0 {
		t.Error("doctor names no pages of the member that answers")
	}
	for _, page := range pages {
		r, err := http.Get(page[1])
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", page[1], r.Status)
		}
	}

	first.Kill()
	g.doctor("all-dead", hastier, unhurried, asked+","+g.list[1].Addr()+","+g.list[2].Addr())
	g.doctor("the-only-endpoint-dead", hastier, unhurried, asked)

	for _, m := range g.list {
		m.Launch()
	}
	for _, m := range g.list {
		m.Ready()
	}
	g.doctor("healthy", patient, unhurried, asked)
	if r, err := first.client.Get(proc.Context(t), "k"); err != nil || len(r.Kvs) != 1 {
		t.Fatalf("after the start of all: %v, %v", r, err)
	}

	backup := filepath.Join(dir(t), "backup.db")
	if r := ctl("snapshot", "save", backup, asked); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	for _, m := range g.list {
		m.Kill()
	}
	for _, m := range g.list[:2] {
		if err := os.RemoveAll(m.DataDir()); err != nil {
			t.Fatal(err)
		}
		if r := ctl("snapshot", "restore", backup, "--data-dir="+m.DataDir(), "--name="+m.name,
			"--initial-cluster="+g.initialCluster(),
			"--initial-advertise-peer-urls="+m.peerURL,
			"--initial-cluster-token=restored"); r.Code != 0 {
			t.Fatal(r.Stderr)
		}
	}
	for _, m := range g.list {
		m.Launch()
	}
	for _, m := range g.list[:2] {
		m.Ready()
	}
	g.doctor("half-restored", patient, unhurried, asked)
}

// TestDoctorDeadOfFive kills members of a larger cluster, of which more may fail.
func TestDoctorDeadOfFive(t *testing.T) {
	onlyVigil(t)
	t.Parallel()
	g := start(t, 5)
	g.agree()
	asked := "--endpoints=" + g.list[0].Addr()
	for i, name := range []string{"one", "two", "three", "four"} {
		g.list[4-i].Kill()
		timeout := patient
		if i >= 2 {
			timeout = "--command-timeout=2s" // the list of alarms takes a quorum
		}
		g.doctor(name+"-of-five-dead", timeout, unhurried, asked)
	}
}
