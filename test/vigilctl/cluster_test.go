package vigilctl

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/proc"
)

// startCluster starts a cluster of the members m1, m2 and so on.
func startCluster(t *testing.T, program proc.Program, n int, args ...string) []*proc.Server {
	t.Helper()
	var names []string
	ports := make([]int, n)
	for i := range ports {
		ports[i] = proc.FreePort(t)
		names = append(names, fmt.Sprintf("m%d=http://127.0.0.1:%d", i+1, ports[i]))
	}
	cluster := make([]*proc.Server, n)
	for i := range cluster {
		cluster[i] = proc.New(t,
			proc.Config{Program: program, Name: fmt.Sprint("m", i+1), Memory: true,
				PeerPort: ports[i], InitialCluster: strings.Join(names, ","), Args: args})
		cluster[i].Launch()
	}
	for _, s := range cluster {
		s.Ready()
	}
	return cluster
}

// endpoints returns the value of --endpoints for members.
func endpoints(cluster []*proc.Server) string {
	var list []string
	for _, s := range cluster {
		list = append(list, s.Addr())
	}
	return strings.Join(list, ",")
}

// shellCommand returns a command line for a shell.
func shellCommand(env []string, line string) *exec.Cmd {
	cmd := exec.Command("sh", "-c", line)
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// memberID returns the ID of a member in hexadecimal.
func memberID(t *testing.T, c *clientv3.Client, name string) string {
	t.Helper()
	r, err := c.MemberList(proc.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range r.Members {
		if m.Name == name {
			return fmt.Sprintf("%x", m.ID)
		}
	}
	t.Fatalf("no member has the name %s", name)
	return ""
}

// TestNames: a member is named by its name or its ID. An answer has the name if that was given.
func TestNames(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t, proc.Vigil, 3)
	c := cluster[0].Client()
	run := func(at string, args ...string) proc.Result {
		t.Helper()
		return proc.Run(t, untilTimeout,
			proc.Spec{Name: proc.Path(t, proc.Vigilctl), Args: args,
				Env: []string{"VIGILCTL_ENDPOINTS=" + at}})
	}
	ctl := func(args ...string) proc.Result {
		t.Helper()
		for end := time.Now().Add(untilTimeout); ; time.Sleep(50 * time.Millisecond) {
			// Members reject changes until their connections are old enough, and until a learner
			// has the data.
			r := run(endpoints(cluster), args...)
			if !strings.Contains(r.Stderr, "unhealthy cluster") &&
				!strings.Contains(r.Stderr, "in sync with leader") || time.Now().After(end) {
				return r
			}
		}
	}
	id := map[string]string{}
	for i := range cluster {
		name := fmt.Sprint("m", i+1)
		id[name] = memberID(t, c, name)
	}
	check := func(r proc.Result, code int, want string) {
		t.Helper()
		for name, is := range id {
			want = strings.ReplaceAll(want, "ID-"+name, is)
		}
		if ok, err := regexp.MatchString("^"+want+"$", r.Stdout+r.Stderr); r.Code != code ||
			err != nil || !ok {
			t.Errorf("%d %s%s, want %d %s", r.Code, r.Stdout, r.Stderr, code, want)
		}
	}
	const some = `the members are .*m1 \(ID-m1\).*\n`
	const unknown = `Error: bad member ID arg \(want a hexadecimal number or the name of a member, not "m9"\), expecting ID in Hex; ` + some

	ctl("move-leader", "m1") // which may be the leader already
	check(ctl("move-leader", "m2"), 0, `Leadership transferred from ID-m1 \(m1\) to ID-m2 \(m2\)\n`)
	check(ctl("move-leader", id["m3"]), 0, `Leadership transferred from ID-m2 to ID-m3\n`)
	check(ctl("move-leader", "m9"), 128, unknown)
	check(ctl("move-leader", "77"), 1,
		`Error: etcdserver: bad leader transferee\n  no member has the ID 77: `+some)
	check(run(cluster[0].Addr(), "move-leader", "m2"), 128,
		`Error: no leader endpoint given at \[\S+\]\n  the leader is ID-m3 at http://`+
			cluster[2].Addr()+
			`\n  next: VIGILCTL_ENDPOINTS=http://`+cluster[2].Addr()+` vigilctl move-leader m2\n`)

	// A learner whose name is a hexadecimal number, and one with the name of another member.
	peer := fmt.Sprintf("http://127.0.0.1:%d", proc.FreePort(t))
	added := ctl("member", "add", "cafe", "--learner", "--peer-urls="+peer)
	id["cafe"] = regexp.MustCompile(`[0-9a-f]{15,16}`).FindString(added.Stdout)
	check(ctl("member", "promote", "cafe"), 1,
		`(?s)Error: etcdserver: member not found\n  no member has the ID cafe: .*ID-cafe \(not started, `+peer+`\).*`)
	initial := regexp.MustCompile(`ETCD_INITIAL_CLUSTER="(.*)"`).FindStringSubmatch(added.Stdout)
	if initial == nil {
		t.Fatal(added)
	}
	_, port, _ := strings.Cut(strings.TrimPrefix(peer, "http://"), ":")
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	learner := proc.New(t,
		proc.Config{Program: proc.Vigil, Name: "cafe", Memory: true, PeerPort: number,
			InitialCluster: initial[1], Args: []string{"--initial-cluster-state=existing"}})
	learner.Launch()
	for end := time.Now().Add(untilTimeout); !strings.Contains(ctl("member", "list").Stdout,
		", started, cafe, "); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the learner does not start")
		}
	}
	check(ctl("member", "update", "cafe", "--peer-urls="+peer), 0,
		`Member  ?ID-cafe \(cafe\) updated in cluster [0-9a-f]+\n`)
	check(ctl("member", "update", id["cafe"], "--peer-urls="+peer), 0,
		`Member  ?ID-cafe updated in cluster [0-9a-f]+\n`)
	check(ctl("member", "update", "m9", "--peer-urls="+peer), 128, unknown)
	check(ctl("member", "update", "77", "--peer-urls="+peer), 1,
		`Error: etcdserver: member not found\n  no member has the ID 77: `+some)
	check(ctl("member", "promote", "cafe"), 0,
		`Member  ?ID-cafe \(cafe\) promoted in cluster [0-9a-f]+\n`)
	// On a terminal tables have the names of members, too.
	if _, out := answered(t, []string{"VIGILCTL_ENDPOINTS=" + cluster[0].Addr()}, "", "endpoint",
		"status", "-w", "table"); !strings.Contains(out, id["m1"]+" (m1) ") {
		t.Error(out)
	}
	check(ctl("member", "remove", "m9"), 128, unknown)
	check(ctl("member", "remove", "cafe"), 0,
		`Member  ?ID-cafe \(cafe\) removed from cluster [0-9a-f]+\n`)

	// Of members that answer too few are left: a person is asked.
	cluster[2].Kill()
	question := "Without m2 (" + id["m2"] +
		") there are 2 voting members, of which 1 answers here. If no more of them run, there is no majority, and nothing is served until there is one. Remove it? [y/N] n\n"
	env := []string{"VIGILCTL_ENDPOINTS=" + endpoints(cluster[:2])}
	if code, out := answered(t, env, "n\r", "member", "remove", "m2"); code != 5 ||
		out != question+"Error: not confirmed; nothing was removed\n" {
		t.Errorf("%d %q", code, out)
	}
}

// TestSameName: a name that two members have is no name; an ID wins over a name that is the same
// text.
func TestSameName(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t, proc.Vigil, 3)
	ids := map[string]bool{}
	for i := range cluster {
		ids[memberID(t, cluster[0].Client(), fmt.Sprint("m", i+1))] = true
	}
	// The second member takes the name of the first, and the third the ID of the first.
	first := memberID(t, cluster[0].Client(), "m1")
	rename := func(s *proc.Server, name string) {
		t.Helper()
		s.Stop()
		s.SetArgs("--name=" + name)
		s.Restart()
	}
	rename(cluster[1], "m1")
	rename(cluster[2], first)
	ctl := func(args ...string) proc.Result {
		t.Helper()
		return proc.Run(t, untilTimeout,
			proc.Spec{Name: proc.Path(t, proc.Vigilctl), Args: args,
				Env: []string{"VIGILCTL_ENDPOINTS=" + endpoints(cluster)}})
	}
	for end := time.Now().Add(untilTimeout); ; time.Sleep(10 * time.Millisecond) {
		if list := ctl("member", "list").Stdout; strings.Count(list, ", started, m1, ") == 2 &&
			strings.Contains(list, ", started, "+first+", ") {
			break
		}
		if time.Now().After(end) {
			t.Fatal(ctl("member", "list"))
		}
	}
	if r := ctl("member", "promote", "m1"); r.Code != 128 ||
		!strings.HasPrefix(r.Stderr, `Error: 2 members have the name "m1": m1 (`) ||
		!strings.HasSuffix(r.Stderr, "; give the ID of one\n") {
		t.Errorf("%+v", r)
	}
	if r := ctl("member", "update", first,
		"--peer-urls=http://"+cluster[0].PeerAddr()); r.Code != 0 ||
		!strings.HasPrefix(strings.Join(strings.Fields(r.Stdout), " "),
			"Member "+first+" updated") {
		t.Errorf("%+v", r)
	}
}

// TestSnapshotOfSeveral: a snapshot of several members is refused as by etcdctl, with the command
// line for one of them.
func TestSnapshotOfSeveral(t *testing.T) {
	t.Parallel()
	for _, program := range []proc.Program{proc.Vigil, proc.Etcd} {
		t.Run(string(program), func(t *testing.T) {
			t.Parallel()
			cluster := startCluster(t, program, 3)
			at, dir := endpoints(cluster), t.TempDir()
			file := filepath.Join(dir, "my backup.db")
			refused := "Error: snapshot must be requested to one selected node, not multiple [" +
				strings.ReplaceAll(at, ",", " ") + "]\n"
			if r := proc.Run(t, untilTimeout,
				proc.Spec{Name: proc.Path(t, proc.Etcdctl),
					Args: []string{"snapshot", "save", file, "--endpoints=" + at}}); r.Code != 5 ||
				!strings.HasSuffix(r.Stderr, refused) {
				t.Fatalf("etcdctl: %+v", r)
			}
			bin := t.TempDir()
			if err := os.Symlink(proc.Path(t, proc.Vigilctl),
				filepath.Join(bin, "vigilctl")); err != nil {
				t.Fatal(err)
			}
			for _, variable := range []string{"VIGILCTL_ENDPOINTS", "ETCDCTL_ENDPOINTS", ""} {
				args, env := []string{"snapshot", "save", file, "--dial-timeout=3s"},
					[]string{"PATH=" + bin + ":" + os.Getenv("PATH")}
				if variable != "" {
					env = append(env, variable+"="+at)
				} else {
					args = append(args, "--endpoints="+at)
				}
				r := proc.Run(t, untilTimeout,
					proc.Spec{Name: proc.Path(t, proc.Vigilctl), Args: args, Env: env})
				advice := regexp.MustCompile(`(?s)^(  127\.0\.0\.1:\d+: m\d \([0-9a-f]+\), (the leader|a follower), at revision 1\n){3}  next: (.*)\n$`).FindStringSubmatch(strings.TrimPrefix(r.Stderr, refused))
				if r.Code != 5 || r.Stdout != "" || !strings.HasPrefix(r.Stderr, refused) ||
					advice == nil {
					t.Fatalf("%s: %d %s", variable, r.Code, r.Stderr)
				}
				// The command line does what is advised, in the same environment.
				next := shellCommand(env, advice[3])
				if out, err := next.CombinedOutput(); err != nil ||
					!strings.HasPrefix(string(out), "Snapshot saved at "+file+"\n") {
					t.Errorf("%s: %s: %v\n%s", variable, advice[3], err, out)
				}
				chosen := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(advice[3])
				if !strings.Contains(r.Stderr, "  "+chosen+": m") ||
					strings.Contains(r.Stderr, chosen+": m1 (the leader") {
					t.Errorf("%s: %s", variable, r.Stderr)
				}
				if err := os.Remove(file); err != nil {
					t.Error(err)
				}
			}
			// Members that do not answer are not chosen.
			cluster[0].Kill()
			r := proc.Run(t, untilTimeout,
				proc.Spec{Name: proc.Path(t, proc.Vigilctl),
					Args: []string{"snapshot", "save", file, "--endpoints=" + at}})
			if !strings.Contains(r.Stderr, "\n  "+cluster[0].Addr()+": no answer\n") ||
				strings.Contains(r.Stderr, "next: vigilctl snapshot save '"+file+"' --endpoints="+
					cluster[0].Addr()) {
				t.Errorf("%+v", r)
			}
		})
	}
}
