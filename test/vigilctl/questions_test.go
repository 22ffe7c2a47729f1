package vigilctl

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/proc"
)

// answered runs a command on a terminal, and types an answer when it asks.
func answered(t *testing.T, env []string, answer string, args ...string) (code int, out string) {
	t.Helper()
	return onTerminal(t, 200, 50, env, args...).answered(t, answer)
}

// answered types an answer when the program asks, and waits for its end.
func (x *terminal) answered(t *testing.T, answer string) (code int, out string) {
	t.Helper()
	for end := time.Now().Add(untilTimeout); answer != ""; time.Sleep(5 * time.Millisecond) {
		if strings.Contains(x.output(), " [y/N] ") {
			x.typed(t, answer)
			break
		}
		select {
		case <-x.ended:
			t.Fatalf("%q asks nothing: %q", x.cmd.Args, x.output())
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("%q asks nothing: %q", x.cmd.Args, x.output())
		}
	}
	x.await(t)
	return x.cmd.ProcessState.ExitCode(), strings.ReplaceAll(x.output(), "\r\n", "\n")
}

// TestQuestions: a command that destroys much asks on a terminal, with what would go. Any answer
// but yes, the end of the input and Ctrl-C leave everything. It does not ask with --yes, and never
// where standard input or output is not a terminal.
func TestQuestions(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true,
		Args: []string{"--bcrypt-cost=4"}})
	env := []string{"VIGILCTL_ENDPOINTS=" + s.Addr()}
	ctx, c := proc.Context(t), s.Client()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	fill := func() {
		t.Helper()
		for i := range 3 {
			must(second(c.Put(ctx, fmt.Sprint("key", i), "v")))
		}
	}
	count := func() int64 {
		t.Helper()
		r, err := c.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithCountOnly())
		must(err)
		return r.Count
	}
	fill()
	const deletes = "This deletes all 3 keys of the cluster. Delete them? [y/N] "
	for answer, want := range map[string]string{
		"n\r": "not confirmed; nothing was deleted", "\r": "not confirmed; nothing was deleted",
		"yep\r": "not confirmed; nothing was deleted", "\x04": "not confirmed; nothing was deleted",
		"\x03": "interrupted; nothing was deleted",
	} {
		for _, args := range [][]string{{"del", "--prefix", ""}, {"del", "--from-key", ""}} {
			if code, out := answered(t, env, answer, args...); code != 5 ||
				!strings.HasPrefix(out, deletes) ||
				!strings.HasSuffix(out, "Error: "+want+"\n") || count() != 3 {
				t.Errorf("%q, %q: %d %q", args, answer, code, out)
			}
		}
	}
	for _, answer := range []string{"y\r", "YES\r"} {
		if code, out := answered(t, env, answer, "del", "--prefix", ""); code != 0 ||
			!strings.HasSuffix(out, "\n3\n") || count() != 0 {
			t.Errorf("%q: %d %q", answer, code, out)
		}
		fill()
	}
	// Nothing is asked.
	for _, args := range [][]string{{"del", "--prefix", "", "--yes"},
		{"del", "-y", "--from-key", ""}, {"del", "--prefix", "key", "-y"},
		{"del", "-y", "--from-key", "k"}} {
		if code, out := answered(t, env, "", args...); code != 0 || out != "3\n" || count() != 0 {
			t.Errorf("%q: %d %q", args, code, out)
		}
		fill()
	}
	// Another range that has all keys is everything, too.
	for _, args := range [][]string{{"del", "--prefix", "key"}, {"del", "--from-key", "k"},
		{"del", "--range", "a", "z"}} {
		if code, out := answered(t, env, "n\r", args...); code != 5 ||
			!strings.HasPrefix(out, deletes) || count() != 3 {
			t.Errorf("%q: %d %q", args, code, out)
		}
	}
	must(second(c.Put(ctx, "other", "v")))
	if code, out := answered(t, env, "", "del", "--prefix", "key"); code != 0 || out != "3\n" {
		t.Errorf("%d %q", code, out)
	}
	if code, out := answered(t, env, "", "del", "other"); code != 0 ||
		out != "1\n" || count() != 0 {
		t.Errorf("the last key by its name: %d %q", code, out)
	}
	fill()
	if r := proc.Run(t, untilTimeout,
		proc.Spec{Name: proc.Path(t, proc.Vigilctl), Args: []string{"del", "--prefix", ""},
			Env: env}); r.Stdout != "3\n" || r.Stderr != "" {
		t.Errorf("without a terminal: %+v", r)
	}
	fill()
	piped := startOnTerminal(t,
		shellCommand(env, "true | "+proc.Path(t, proc.Vigilctl)+" del --prefix ''; "+
			proc.Path(t, proc.Vigilctl)+" del --prefix '' | cat"), 80, 24)
	piped.await(t)
	if out := piped.output(); out != "3\r\nnote: there are no keys\r\n0\r\n" {
		t.Errorf("with one of two terminals: %q", out)
	}
	// Nobody waits for a question that nobody sees.
	fill()
	unseen := startOnTerminal(t,
		shellCommand(env, proc.Path(t, proc.Vigilctl)+" del --prefix '' 2>/dev/null"), 200, 50)
	if code, out := unseen.answered(t, "y\r"); code != 0 ||
		out != deletes+"y\n3\n" || count() != 0 {
		t.Errorf("standard error elsewhere: %d %q", code, out)
	}
	// An empty store has nothing to lose.
	if code, out := answered(t, env, "", "del", "--prefix", ""); code != 0 ||
		out != "note: there are no keys\n0\n" {
		t.Errorf("nothing to delete: %d %q", code, out)
	}

	// The end of the history.
	fill()
	now := func() int64 {
		t.Helper()
		r, err := c.Get(ctx, "key0")
		must(err)
		return r.Header.Revision
	}()
	newest := fmt.Sprint(now)
	if code, out := answered(t, env, "", "compaction", fmt.Sprint(now-1)); code != 0 ||
		out != fmt.Sprintf("compacted revision %d\n", now-1) {
		t.Errorf("%d %q", code, out)
	}
	want := "Revision " + newest +
		" is the newest: this discards every older value of every key. Discard them? [y/N] n\nError: not confirmed; nothing was discarded\n"
	if code, out := answered(t, env, "n\r", "compaction", newest); code != 5 || out != want {
		t.Errorf("%d %q", code, out)
	}
	if code, out := answered(t, env, "", "compaction", newest, "-y"); code != 0 ||
		out != "compacted revision "+newest+"\n" {
		t.Errorf("%d %q", code, out)
	}

	// A lease with many keys.
	lease, err := c.Grant(ctx, 3600)
	must(err)
	id := fmt.Sprintf("%016x", lease.ID)
	for i := range 101 {
		must(second(c.Put(ctx, fmt.Sprint("leased", i), "v", clientv3.WithLease(lease.ID))))
	}
	want = "This deletes the 101 keys of lease " + id +
		". Delete them? [y/N] n\nError: not confirmed; nothing was revoked\n"
	if code, out := answered(t, env, "n\r", "lease", "revoke", id); code != 5 || out != want {
		t.Errorf("%d %q", code, out)
	}
	must(second(c.Delete(ctx, "leased0")))
	if code, out := answered(t, env, "", "lease", "revoke", id); code != 0 ||
		out != "lease "+id+" revoked\n" {
		t.Errorf("%d %q", code, out)
	}

	// A backup, or a dump, in the place of another one.
	file := filepath.Join(t.TempDir(), "backup")
	must(os.WriteFile(file, []byte("precious"), 0o600))
	for _, args := range [][]string{{"snapshot", "save", file}, {"dump", file}} {
		if code, out := answered(t, env, "n\r", args...); code != 5 ||
			!regexp.MustCompile(`^\S+/backup exists, of \S+ \S+, with 8 B\. Replace it\? \[y/N\] n\nError: not confirmed; nothing was (saved|written)\n$`).MatchString(out) {
			t.Errorf("%q: %d %q", args, code, out)
		}
		if b, err := os.ReadFile(file); err != nil || string(b) != "precious" {
			t.Errorf("%q: %q, %v", args, b, err)
		}
		if code, out := answered(t, env, "", append(args, "--yes")...); code != 0 ||
			strings.Contains(out, "[y/N]") {
			t.Errorf("%q: %d %q", args, code, out)
		}
		must(os.WriteFile(file, []byte("precious"), 0o600))
	}

	// Objects of an archive.
	archive := filepath.Join(t.TempDir(), "archive")
	must(os.CopyFS(archive, os.DirFS("../../internal/offline/archived/testdata/v1")))
	prune := []string{"archive", "prune", "file://" + archive, "--keep-daily", "1d"}
	want = "This removes 4 objects of the archive. The states that are only in them cannot be restored any more. Remove them? [y/N] n\nError: not confirmed; nothing was removed\n"
	if code, out := answered(t, env, "n\r", prune...); code != 5 || out != want {
		t.Errorf("%d %q", code, out)
	}
	if code, out := answered(t, env, "", append(prune, "--dry-run")...); code != 0 ||
		!strings.Contains(out, "would remove 4 objects of 13") {
		t.Errorf("%d %q", code, out)
	}
	if code, out := answered(t, env, "", append(prune, "--yes")...); code != 0 ||
		!strings.Contains(out, "removed 4 objects of 13") {
		t.Errorf("%d %q", code, out)
	}

	// The only member.
	want = "m1 (" + memberID(t, c, "m1") +
		") is the only voting member: without it the cluster ends. Remove it? [y/N] n\nError: not confirmed; nothing was removed\n"
	if code, out := answered(t, env, "n\r", "member", "remove", "m1"); code != 5 || out != want {
		t.Errorf("%d %q", code, out)
	}

	// Whoever may not read what goes is asked without a number.
	for _, err := range []error{second(c.UserAdd(ctx, "root", "x")),
		second(c.UserGrantRole(ctx, "root", "root")), second(c.RoleAdd(ctx, "w")),
		second(c.UserAdd(ctx, "w", "x")),
		second(c.UserGrantRole(ctx, "w", "w")),
		second(c.RoleGrantPermission(ctx, "w", "\x00", "\x00",
			clientv3.PermissionType(clientv3.PermWrite))), second(c.AuthEnable(ctx))} {
		must(err)
	}
	if code, out := answered(t, env, "n\r", "del", "--prefix", "", "--user=w:x"); code != 5 ||
		!strings.HasPrefix(out, "This deletes all keys of the cluster. Delete them? [y/N] n") {
		t.Errorf("%d %q", code, out)
	}
}

// TestAlarmNames: alarms are listed with the names of members on a terminal and in a table.
func TestAlarmNames(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	env := []string{"VIGILCTL_ENDPOINTS=" + s.Addr()}
	id := memberID(t, s.Client(), "m1")
	n, err := strconv.ParseUint(id, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	raise := &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: n,
		Alarm: etcdserverpb.AlarmType_CORRUPT}
	if _, err := etcdserverpb.NewMaintenanceClient(s.Dial()).Alarm(proc.Context(t),
		raise); err != nil {
		t.Fatal(err)
	}
	plain := fmt.Sprintf("memberID:%d alarm:CORRUPT", n)
	if r := proc.Run(t, untilTimeout,
		proc.Spec{Name: proc.Path(t, proc.Vigilctl), Args: []string{"alarm", "list"},
			Env: env}); r.Stdout != plain+"\n" {
		t.Errorf("%+v", r)
	}
	if r := proc.Run(t, untilTimeout,
		proc.Spec{Name: proc.Path(t, proc.Vigilctl), Args: []string{"alarm", "list", "-w", "table"},
			Env: env}); !strings.Contains(r.Stdout, id+" │   m1 │ CORRUPT │") {
		t.Errorf("%+v", r)
	}
	for _, sub := range []string{"list", "disarm"} {
		if _, out := answered(t, env, "", "alarm", sub); out != plain+" (m1, "+id+")\n" {
			t.Errorf("%s: %q", sub, out)
		}
	}
}

// TestNotes: a person is told what has no effect; a script gets what etcdctl prints.
func TestNotes(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true,
		Args: []string{"--bcrypt-cost=4"}})
	env := []string{"VIGILCTL_ENDPOINTS=" + s.Addr()}
	if _, err := s.Client().Put(proc.Context(t), "services/a", "v"); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"put", "k\n", "v"}, {"get", "line\n"}, {"get", ""}} {
		want := map[string]string{"put": `note: the key begins or ends with white space: "k\n"`,
			"get": `note: there is no key "line\n"; it begins or ends with white space`}[args[0]]
		if args[1] == "" {
			want = `next: with --prefix "" get, del and watch are about all keys`
		}
		if _, out := answered(t, env, "", args...); !strings.Contains(out, want+"\n") {
			t.Errorf("%q: %q, want %q", args, out, want)
		}
	}
	for line, want := range map[string]string{
		"get services/":                  `note: there is no key "services/"; --prefix selects the keys that begin with it (1)`,
		"del services/":                  `note: there is no key "services/"; --prefix selects the keys that begin with it (1)`,
		"get nothing":                    `note: there is no key "nothing"`,
		"get --prefix none/":             `note: no key begins with "none/"`,
		"get z a":                        `note: no key can be in the range from "z" to "a": its end is not after its first key`,
		"del z a --range":                `note: no key can be in the range from "z" to "a": its end is not after its first key`,
		"lease revoke 123":               "  next: it may have expired; vigilctl lease list prints the leases that there are",
		"user get nobody":                "  next: vigilctl user list prints the users that there are",
		"auth enable":                    "  next: vigilctl user add root",
		"role grant-permission r read k": "  next: vigilctl role list prints the roles that there are; vigilctl role add adds one",
		"downgrade enable x":             "  next: want MAJOR.MINOR, such as 3.6",
		"member promote m1":              "  next: vigilctl member list prints which members are learners",
		"put k two words":                `note: vigilctl put ignores ["words"]: quote a value with blanks`,
		"get k l m":                      `note: vigilctl get ignores ["m"]`,
		"get k --limit -1":               "note: --limit -1 is below 0: all keys are printed",
		"get k --rev -1":                 "note: --rev -1 is below 0: the newest revision is read",
		"member list m1":                 `note: vigilctl member list ignores ["m1"]`,
		"endpoint status m1":             `note: vigilctl endpoint status ignores ["m1"]: choose members with --endpoints or --cluster`,
		"defrag m1":                      `note: vigilctl defrag ignores ["m1"]: choose members with --endpoints or --cluster`,
		"version x":                      `note: vigilctl version ignores ["x"]`,
		"get k --password x":             "note: --password is given without --user, and not used",
		"ls none/":                       "note: no key begins with none/",
		"compaction":                     "usage: vigilctl compaction [options] <revision> [flags]",
		"user add u --no-password --new-user-password x": "note: --no-password is given too: --new-user-password is not used",
	} {
		if _, out := answered(t, env, "",
			strings.Fields(line)...); !strings.Contains(out, want+"\n") {
			t.Errorf("%s: %q, want %q", line, out, want)
		}
		if r := proc.Run(t, untilTimeout,
			proc.Spec{Name: proc.Path(t, proc.Vigilctl), Args: strings.Fields(line),
				Env: env}); strings.Contains(r.Stdout+r.Stderr, want) {
			t.Errorf("%s: a script gets %+v", line, r)
		}
	}
}

// TestHostileQuestion: a member whose name has lines asks one question with it, and adds no line of
// its own.
func TestHostileQuestion(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true,
		Name: "m\nnote: all members are well\x1b[8m"})
	r, err := s.Client().MemberList(proc.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"VIGILCTL_ENDPOINTS=" + s.Addr()}
	code, out := answered(t, env, "n\r", "member", "remove", fmt.Sprintf("%x", r.Members[0].ID))
	if strings.Count(out, "\n") != 2 || code != 5 ||
		!strings.Contains(out, ") is the only voting member") {
		t.Errorf("%d %q", code, out)
	}
	if r := proc.Run(t, untilTimeout,
		proc.Spec{Name: proc.Path(t, proc.Vigilctl), Args: []string{"member", "remove", "m9"},
			Env: env}); r.Code != 128 || strings.Count(r.Stderr, "\n") != 1 {
		t.Errorf("%+v", r)
	}
}

// TestSwappedDump: a person who gives the file before the prefix is told so, and nothing is
// written.
func TestSwappedDump(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	if _, err := s.Client().Put(proc.Context(t), "swapped/a", "v"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	run := func(args string) (code int, out string) {
		t.Helper()
		cmd := shellCommand([]string{"VIGILCTL_ENDPOINTS=" + s.Addr()},
			proc.Path(t, proc.Vigilctl)+" dump "+args)
		cmd.Dir = dir
		return startOnTerminal(t, cmd, 200, 50).answered(t, "")
	}
	const says = `no key begins with "-out", but 1 key with "swapped": the file comes last: vigilctl dump -- swapped -out`
	if code, out := run("-- -out swapped"); code != 128 ||
		!strings.HasPrefix(out, "Error: "+says+"\n") {
		t.Errorf("%d %q", code, out)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	if code, out := run("--yes -- -out swapped"); code != 0 ||
		!strings.HasPrefix(out, "warning: "+says+"\n") {
		t.Errorf("%d %q", code, out)
	}
}

// TestSilentAddress: a member that answers at one of its addresses is not taken for dead because
// another one is silent.
func TestSilentAddress(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	cluster := startCluster(t, proc.Vigil, 3)
	cluster[2].Stop()
	cluster[2].SetArgs("--advertise-client-urls=http://" + silent.Addr().String() + ",http://" +
		cluster[2].Addr())
	cluster[2].Restart()
	env := []string{"VIGILCTL_ENDPOINTS=" + cluster[0].Addr()}
	for end := time.Now().Add(untilTimeout); ; time.Sleep(50 * time.Millisecond) {
		// The member rejects changes until its connections are old enough.
		on := onTerminal(t, 200, 50, env, "member", "remove", "m2")
		code, out := on.answered(t, "")
		if code == 0 && strings.Contains(out, "removed from cluster") {
			return
		}
		if strings.Contains(out, "[y/N]") || time.Now().After(end) {
			t.Fatalf("%d %q", code, out)
		}
	}
}
