package vigilctl

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/test/proc"
)

// hostileNames are names of which each asks an interpreter to create the file canary, or to do
// something else than what it shows.
var hostileNames = []string{
	"$(>canary)", "$(echo>canary)", "(echo>canary)", "`>canary`", "a;>canary;", "a\n>canary\n",
	"a|>canary", "a&>canary", ">canary", "<(>canary)", "$((a[$(>canary)]))", "${x:=$(>canary)}",
	`'$(>canary)'`, `"$(>canary)"`, `"`, `'`, `\$(>canary)`, "a\t$(>canary)", "a\x1b[2J$(>canary)",
	"\x1b]0;$(>canary)\a", "a\r$(>canary)", "a\x15>canary\r", "*(e:'>canary':)",
	"(>canary)", "{a,$(>canary)}", "a b$(>canary)", "~", "~root", "-h",
	"--endpoints=http://127.0.0.1:1", "--lease=$(>canary)", "=ls", "!!", "#", "%1", "a=$(>canary)",
	"a:$(>canary)",
	"a:`>canary`", "a@$(>canary)", "_activeHelp_ $(>canary)", ":4$(>canary)", "a\u00a0$(>canary)",
	"a\u202e$(>canary)", "a\xff$(>canary)", "a,$(>canary)", "@$(>canary)", "^a^$(>canary)",
}

// shells are the shells that `vigilctl completion` has scripts for and that are installed, with the
// lines that load the script.
func shells(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string]struct{ args, load []string }{
		"bash": {[]string{"bash", "--noprofile", "--norc", "-i"},
			[]string{`source <(vigilctl completion bash)`}},
		"bash with bash-completion": {[]string{"bash", "--noprofile", "--norc", "-i"},
			[]string{`source /usr/share/bash-completion/bash_completion`,
				`source <(vigilctl completion bash)`}},
		"zsh": {[]string{"zsh", "-f", "-i"},
			[]string{`autoload -U compinit; compinit -u -d zcompdump`,
				`source <(vigilctl completion zsh)`}},
		"zsh in fpath": {[]string{"zsh", "-f", "-i"},
			[]string{`mkdir functions; vigilctl completion zsh >functions/_vigilctl; fpath=($PWD/functions $fpath)`,
				`autoload -U compinit; compinit -u -d zcompdump`}},
		"fish": {[]string{"fish", "--private", "--no-config", "-i"},
			[]string{`vigilctl completion fish | source`}},
	}
	out := map[string][]string{}
	for name, shell := range all {
		if _, err := exec.LookPath(shell.args[0]); err != nil {
			t.Logf("%s is not installed", shell.args[0])
			continue
		}
		if _, err := os.Stat("/usr/share/bash-completion/bash_completion"); err != nil &&
			strings.Contains(name, "bash-completion") {
			t.Logf("bash-completion is not installed")
			continue
		}
		out[name] = append([]string{strings.Join(shell.args, " ")}, shell.load...)
	}
	return out
}

// shell is a shell on a terminal.
type shell struct {
	*terminal
	lines int
}

// startShell starts a shell in a directory, and loads the completion of vigilctl.
func startShell(t *testing.T, dir, addr string, script []string) *shell {
	t.Helper()
	bin := t.TempDir()
	if err := os.Symlink(proc.Path(t, proc.Vigilctl), filepath.Join(bin, "vigilctl")); err != nil {
		t.Fatal(err)
	}
	args := strings.Fields(script[0])
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TERM=xterm", "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+dir,
		"XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir,
		"HISTFILE="+filepath.Join(dir, "history"), "LC_ALL=C.UTF-8",
		"ETCDCTL_ENDPOINTS="+addr, "WAIT=30s")
	x := &shell{terminal: startOnTerminal(t, cmd, 200, 50)}
	for _, line := range script[1:] {
		x.run(t, line)
	}
	return x
}

// run types a text and Enter, clears what is left of the line, and waits until the shell has done
// that. It returns the output.
func (x *shell) run(t *testing.T, typed string) string {
	t.Helper()
	x.lines++
	before := len(x.output())
	if _, err := fmt.Fprintf(x.keys, "%s\r\x15echo fini''shed-%d.\r", typed, x.lines); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("finished-%d.", x.lines)
	for end := time.Now().Add(untilTimeout); ; time.Sleep(5 * time.Millisecond) {
		if out := x.output()[before:]; strings.Contains(out, want) {
			return out
		}
		if time.Now().After(end) {
			t.Fatalf("the shell does not get past %q:\n%q", typed, x.output()[before:])
		}
	}
}

// TestCompletionRunsNothing: no name that the store has and no name of a file becomes a command or
// an option by completing it with Tab and running the line, in the shells themselves. What is typed
// is not run before Enter.
func TestCompletionRunsNothing(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true, Name: "m$(>canary)",
		Args: []string{"--bcrypt-cost=4"}})
	ctx, c := proc.Context(t), s.Client()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	files := t.TempDir()
	for i, name := range hostileNames {
		// two, since shells insert the beginning that several have without quotes
		for _, last := range []string{"/1", "/2"} {
			must(second(c.Put(ctx, fmt.Sprintf("h/%02d/%s%s", i, name, last), "v")))
			// Names of users and roles end like keys.
			if name := fmt.Sprintf("h%02d%s%s", i, name, last); true {
				must(second(c.UserAdd(ctx, strings.ToValidUTF8(name, "?"), "x")))
				must(second(c.RoleAdd(ctx, strings.ToValidUTF8(name, "?"))))
			}
		}
		dir := filepath.Join(files, fmt.Sprintf("%02d", i))
		must(os.Mkdir(dir, 0o755))
		must(os.WriteFile(filepath.Join(dir, strings.ReplaceAll(name, "/", "")+"1"), nil, 0o644))
	}
	for _, k := range []string{"safe/only-1/a:b=c@d", "safe/two/1", "safe/two/2"} {
		must(second(c.Put(ctx, k, "value of "+k)))
	}
	must(second(c.UserAdd(ctx, "safe@user", "x")))
	must(second(c.Grant(ctx, 3600)))
	others := hostileMembers(t)
	for name, script := range shells(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			must(os.Symlink(files, filepath.Join(dir, "f")))
			x := startShell(t, dir, s.Addr(), script)
			canary := func(typed string) {
				t.Helper()
				out := x.run(t, typed)
				if _, err := os.Lstat(filepath.Join(dir, "canary")); err == nil {
					t.Errorf("%q ran a command:\n%q", typed, out)
					must(os.Remove(filepath.Join(dir, "canary")))
				}
			}
			// What is safe is completed.
			for typed, want := range map[string]string{
				"vigilctl get sa\ton\t\t":   "value of safe/only-1/a:b=c@d",
				"vigilctl get safe/on\t\t":  "value of safe/only-1/a:b=c@d",
				"vigilctl get safe/two/\t1": "value of safe/two/1",
				"vigilctl user get sa\t":    "User: safe@user", "vigilctl put --lease=\t k v": "OK",
				"vigilctl put --lease \t k v":                             "OK",
				`vigilctl get "safe/two/` + "\t" + `1"`:                   "value of safe/two/1",
				"vigilctl --command-timeout=$WAIT get safe/on\t\t":        "value of safe/only-1",
				`vigilctl --command-timeout "$WAIT" get safe/on` + "\t\t": "value of safe/only-1",
				"vigilctl move-lea\t --help":                              "vigilctl move-leader <",
				"vigilctl get safe/only-1/a:b\t":                          "value of safe/only-1",
				"vigilctl get safe/only-1/a:b=\t":                         "value of safe/only-1",
			} {
				if out := x.run(t, typed); !strings.Contains(out, want) {
					t.Errorf("%q does not print %q:\n%q", typed, want, out)
				}
			}
			for i := range hostileNames {
				canary(fmt.Sprintf("vigilctl get h/%02d/\t\t \t", i))
				canary(fmt.Sprintf("vigilctl user grant-role h%02d\t\t h%02d\t\t \t", i, i))
				canary(fmt.Sprintf("vigilctl snapshot status f/%02d/\t \t", i))
			}
			canary("vigilctl member promote \t\t \t")
			canary("vigilctl move-leader \t\t \t")
			for _, typed := range []string{"$(>canary)", "`>canary`", `"$(>canary)"`,
				"${x:=$(>canary)}"} {
				canary("vigilctl get " + typed + " safe/\t\x15")
			}
			canary("vigilctl --endpoints=$(>canary) get safe/\t\x15")
			x.run(t, "export ETCDCTL_ENDPOINTS="+others)
			if out := x.run(t, "vigilctl member promote plai\t"); !strings.Contains(out,
				"member plain is to be promoted") {
				t.Errorf("the name of a member is not completed:\n%q", out)
			}
			// IDs, whose descriptions are the names
			for _, first := range []string{"a0", "a2", "a4", "fff00", "fff01"} {
				canary("vigilctl member promote " + first + "\t\t \t")
			}
		})
	}
}

// hostileMembers starts a server that says that the cluster has members with the hostile names, and
// one with the name plain.
func hostileMembers(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	all := &memberLister{r: &etcdserverpb.MemberListResponse{Header: &etcdserverpb.ResponseHeader{},
		Members: []*etcdserverpb.Member{{ID: 1, Name: "plain"}}}}
	for i, name := range hostileNames {
		for j := range uint64(2) { // twice, so that the ID has to be chosen, and once
			all.r.Members = append(all.r.Members,
				&etcdserverpb.Member{ID: 0xa00 + 2*uint64(i) + j,
					Name: strings.ToValidUTF8(name, "?")})
		}
		all.r.Members = append(all.r.Members,
			&etcdserverpb.Member{ID: 0xfff000 + uint64(i),
				Name: strings.ToValidUTF8(name, "?") + "/1"})
	}
	srv := grpc.NewServer()
	etcdserverpb.RegisterClusterServer(srv, all)
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	t.Cleanup(func() {
		srv.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

type memberLister struct {
	etcdserverpb.UnimplementedClusterServer
	r *etcdserverpb.MemberListResponse
}

// MemberList implements etcdserverpb.ClusterServer.
func (m *memberLister) MemberList(context.Context,
	*etcdserverpb.MemberListRequest) (*etcdserverpb.MemberListResponse, error) {
	return m.r, nil
}

// MemberPromote implements etcdserverpb.ClusterServer.
func (m *memberLister) MemberPromote(_ context.Context,
	r *etcdserverpb.MemberPromoteRequest) (*etcdserverpb.MemberPromoteResponse, error) {
	if r.ID == 1 {
		return nil, grpcstatus.Error(codes.FailedPrecondition, "member plain is to be promoted")
	}
	return nil, grpcstatus.Error(codes.FailedPrecondition, "another member is to be promoted")
}
