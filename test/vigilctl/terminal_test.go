package vigilctl

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/proc"
)

// await waits until the program on the terminal has ended.
func (x *terminal) await(t *testing.T) {
	t.Helper()
	select {
	case <-x.ended:
	case <-time.After(untilTimeout):
		t.Fatalf("%q still runs:\n%q", x.cmd.Args, x.output())
	}
}

// TestControlCharacters: characters of keys, values and names that steer a terminal are replaced on
// a terminal. Other outputs get the same bytes.
func TestControlCharacters(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true, Name: "member\x1b]0;title\a",
		Args: []string{"--bcrypt-cost=4"}})
	env := []string{"VIGILCTL_ENDPOINTS=" + s.Addr()}
	ctx, c := proc.Context(t), s.Client()
	const key, value, name = "evil\x1b]0;title\a",
		"\x1b[2J\u009b1m\x9b1m\r\b\u202ewhite", "role\x1b[31m"
	lease, err := c.Grant(ctx, 3600)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		second(c.Put(ctx, key, "before")),
		second(c.Put(ctx, key, value, clientv3.WithLease(lease.ID))),
		second(c.UserAddWithOptions(ctx, name, "", &clientv3.UserAddOptions{NoPassword: true})),
		second(c.RoleAdd(ctx, name)), second(c.UserGrantRole(ctx, name, name)),
		second(c.RoleGrantPermission(ctx, name, key, "",
			clientv3.PermissionType(clientv3.PermReadWrite))),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	c.Watch(ctx, key)
	for _, line := range []string{
		"get --prefix evil", "get --prefix evil -w fields", "get --prefix evil -w json",
		"get --prefix evil -w yaml",
		"history --prefix evil --full", "history --prefix evil -w json",
		"diff evil --from 2 --values", "tree", "tree -w yaml", "dump evil -",
		"role list", "role get " + name, "user list", "user get " + name,
		"user get " + name + " --detail", "user get nobody\x1b[2J",
		fmt.Sprintf("lease timetolive %x --keys", lease.ID),
		fmt.Sprintf("lease timetolive %x --keys -w json", lease.ID),
		"watchers --no-color", "watchers -w yaml", "member list", "member list -w table",
		"member list -w fields", "endpoint status -w table", "doctor --no-color",
		"alarm list -w table -w json",
		"put evil\x1b[2J\u009b --lease=1 x", "nonsense\x1b[2J", "check nodir\x1b[2J",
	} {
		on := onTerminal(t, 80, 24, append(env, "TERM=xterm"), strings.Fields(line)...)
		on.await(t)
		out := on.output()
		if out == "" || strings.ContainsAny(out, "\x1b\a\b\u009b\u202e") ||
			strings.Contains(out, "\x9b1m") && !strings.Contains(out, "\u009b") {
			t.Errorf("%q: %q", line, out)
		}
	}
	// Pictures steer the terminal, but not with what others have stored.
	top := onTerminal(t, 80, 24, env, "top")
	if out := top.picture(t, "leader member"); strings.ContainsAny(out, "\a\b\u009b\u202e") ||
		strings.Contains(top.output(), "\x1b]") {
		t.Errorf("top: %q", top.output())
	}
	watch := onTerminal(t, 80, 24, env, "watch", "--prefix", "evil", "--rev", "2")
	for end := time.Now().Add(untilTimeout); !strings.Contains(watch.output(),
		"white"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the watch has printed %q", watch.output())
		}
	}
	if out := watch.output(); strings.ContainsAny(out, "\x1b\a\b\u009b\u202e") {
		t.Errorf("watch: %q", out)
	}
	// No terminal: the same bytes.
	r := proc.Run(t, untilTimeout,
		proc.Spec{Name: proc.Path(t, proc.Vigilctl),
			Args: []string{"get", "--prefix", "evil"}, Env: env})
	if want := key + "\n" + value + "\n"; r.Stdout != want {
		t.Errorf("%q, want %q", r.Stdout, want)
	}
}

// TestProtobufOnTerminal: a message of protobuf is the same bytes on a terminal, as those of
// etcdctl: replacing some would make another message of it.
func TestProtobufOnTerminal(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Program: proc.Etcd, Memory: true})
	if _, err := s.Client().Put(proc.Context(t), "k", "\x1b[1m\xff\x80value"); err != nil {
		t.Fatal(err)
	}
	out := map[proc.Program]string{}
	for _, program := range []proc.Program{proc.Etcdctl, proc.Vigilctl} {
		on := start(t, program, 80, 24, []string{"ETCDCTL_ENDPOINTS=" + s.Addr()}, "get", "k",
			"-w", "protobuf")
		on.await(t)
		out[program] = on.output()
	}
	if out[proc.Vigilctl] == "" || out[proc.Vigilctl] != out[proc.Etcdctl] {
		t.Errorf("%q, etcdctl prints %q", out[proc.Vigilctl], out[proc.Etcdctl])
	}
}

func second[T any](_ T, err error) error { return err }

// TestColors: --no-color and NO_COLOR leave colors out.
func TestColors(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	env := []string{"VIGILCTL_ENDPOINTS=" + s.Addr()}
	for _, x := range []struct {
		env    string
		args   []string
		colors bool
	}{
		{"", []string{"doctor"}, true},
		{"NO_COLOR=1", []string{"doctor"}, false},
		{"VIGILCTL_NO_COLOR=true", []string{"doctor"}, false},
		{"", []string{"doctor", "--no-color"}, false},
	} {
		on := onTerminal(t, 100, 24, append(env, x.env), x.args...)
		on.await(t)
		if out := on.output(); strings.Contains(out, "\x1b[") != x.colors ||
			!strings.Contains(out, "1 member, leader m1: ") {
			t.Errorf("%q %q: %q", x.env, x.args, out)
		}
	}
}

// TestCompletion: a shell completes arguments with what the cluster has, and nothing without an
// answer.
func TestCompletion(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true,
		Args: []string{"--bcrypt-cost=4"}})
	ctx, c := proc.Context(t), s.Client()
	for _, k := range []string{"config/app", "config/db", "services/web/1", "services/web/2",
		"services/x", "spaced key", "steering\x1b[2J"} {
		if _, err := c.Put(ctx, k, "v"); err != nil {
			t.Fatal(err)
		}
	}
	lease, err := c.Grant(ctx, 3600)
	if err != nil {
		t.Fatal(err)
	}
	members, err := c.MemberList(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{second(c.UserAdd(ctx, "alice", "x")),
		second(c.UserAdd(ctx, "bob", "x")), second(c.RoleAdd(ctx, "web"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	id := fmt.Sprintf("%x", members.Members[0].ID)
	complete := func(env []string, line string) string {
		t.Helper()
		args := append([]string{"__complete"}, strings.Split(line, " ")...)
		r := proc.Run(t, untilTimeout,
			proc.Spec{Name: proc.Path(t, proc.Vigilctl), Args: args, Env: env})
		list := strings.Split(strings.TrimSpace(r.Stdout), "\n")
		return strings.Join(list[:len(list)-1], " ") // the last line is a number for the shell
	}
	env := []string{"VIGILCTL_ENDPOINTS=" + s.Addr()}
	for line, want := range map[string]string{
		"get ": "config/ services/", "get config/": "config/app config/db",
		"get services/w": "services/web/", "get s": "services/",
		"history services/web/": "services/web/1 services/web/2",
		"del config/app con":    "config/", "put config/app ": "", "member remove ": "m1\t" + id,
		"move-leader ": "m1\t" + id, "member remove " + id[:3]: id + "\tm1",
		"ls ": "config/ services/", "help member p": "promote\tMake a learner a voter",
		"user get ": "alice bob", "user get a": "alice",
		"user grant-role alice ": "web", "user grant-role alice web ": "", "role get ": "web",
		"role grant-permission web r": "read readwrite",
		"lease revoke ":               fmt.Sprintf("%016x", lease.ID),
		"put k v --lease ":            fmt.Sprintf("%016x", lease.ID),
		"end":                         "endpoint\tStatus, health and hash of members",
	} {
		got := complete(env, line)
		if strings.HasPrefix(line, "end") {
			got, want = got[:min(len(got), 8)], want[:8]
		}
		if got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
	for _, dead := range []string{"VIGILCTL_ENDPOINTS=127.0.0.1:1", "VIGILCTL_ENDPOINTS=:::",
		"VIGILCTL_USER=alice"} {
		if got := complete([]string{dead}, "get "); got != "" {
			t.Errorf("%s: %q", dead, got)
		}
	}
}

// TestYAML: -w yaml has the fields of -w json.
func TestYAML(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	ctl := func(args ...string) string {
		t.Helper()
		r := proc.Run(t, untilTimeout,
			proc.Spec{Name: proc.Path(t, proc.Vigilctl), Args: args,
				Env: []string{"VIGILCTL_ENDPOINTS=" + s.Addr()}})
		if r.Code != 0 {
			t.Fatalf("%q: %d %s", args, r.Code, r.Stderr)
		}
		return r.Stdout
	}
	ctl("put", "greeting", "hello")
	out := ctl("get", "greeting", "-w", "yaml")
	want := "kvs:\n    - key: Z3JlZXRpbmc=\n      create_revision: 2\n      mod_revision: 2\n      version: 1\n      value: aGVsbG8=\ncount: 1\n"
	if !strings.HasPrefix(out, "---\nheader:\n    cluster_id: ") || !strings.HasSuffix(out, want) {
		t.Error(out)
	}
	for _, args := range [][]string{{"member", "list"}, {"endpoint", "status"},
		{"top", "--once", "--interval", "100ms"}, {"watchers"}, {"doctor"}, {"tree"},
		{"lease", "list"}} {
		if out := ctl(append(args, "-w", "yaml")...); !strings.HasPrefix(out, "---\n") ||
			strings.Contains(out, "{\"") {
			t.Errorf("%q: %s", args, out)
		}
	}
}

// TestFirstScreen: on a terminal a member prints a few lines for people, and lines for programs if
// they are asked for.
func TestFirstScreen(t *testing.T) {
	t.Parallel()
	begin := func(env string, args ...string) (on *terminal, url string) {
		url = fmt.Sprintf("http://127.0.0.1:%d", proc.FreePort(t))
		peer := fmt.Sprintf("http://127.0.0.1:%d", proc.FreePort(t))
		args = append(args, "--data-dir="+t.TempDir()+"/data", "--listen-client-urls="+url,
			"--advertise-client-urls="+url, "--listen-peer-urls="+peer,
			"--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer,
			"--unsafe-no-fsync")
		return start(t, proc.Vigil, 120, 24, []string{env}, args...), url
	}
	until := func(on *terminal, want string) string {
		t.Helper()
		for end := time.Now().Add(untilTimeout); !strings.Contains(on.output(),
			want); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("no %q in %q", want, on.output())
			}
		}
		return on.output()
	}
	for _, colors := range []bool{true, false} {
		on, url := begin("NO_COLOR=" + map[bool]string{false: "1"}[colors])
		out := until(on, "try      vigilctl --endpoints "+url+" put greeting hello\r\n")
		for _, want := range []string{"Vigil ", "  name     default\r\n", "  data     /",
			"  clients  " + url + "\r\n", "  peers    http://127.0.0.1:", "ready"} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in %q", want, out)
			}
		}
		if strings.Contains(out, "\x1b[") != colors || strings.Contains(out, "{") ||
			strings.Count(out, "\n") > 12 {
			t.Errorf("colors %v: %q", colors, out)
		}
		if r := proc.Run(t, untilTimeout,
			proc.Spec{Name: proc.Path(t, proc.Vigilctl),
				Args: []string{"--endpoints", url, "put", "greeting", "hello"}}); r.Code != 0 {
			t.Errorf("%d %s", r.Code, r.Stderr)
		}
		if err := on.cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		on.await(t)
		if out := on.output(); !strings.HasSuffix(out,
			"stopping (signal interrupt)\r\nstopped\r\n") || on.cmd.ProcessState.ExitCode() != 0 {
			t.Errorf("%d %q", on.cmd.ProcessState.ExitCode(), out)
		}
	}
	on, _ := begin("NO_COLOR=", "--log-format=json")
	if out := until(on, "ready to serve client requests"); !strings.HasPrefix(out, `{"level":"`) ||
		strings.Contains(out, "\x1b") {
		t.Errorf("%q", out)
	}
	// No terminal: lines for programs.
	r := proc.Run(t, untilTimeout,
		proc.Spec{Name: proc.Path(t, proc.Vigil),
			Args: []string{"--data-dir=/proc/x", "--log-level=debug"}})
	if !strings.HasPrefix(r.Stderr, `{"level":"debug"`) {
		t.Errorf("%q", r.Stderr)
	}
}

// TestConsoleAddress: on a terminal a member prints the address of the console, and a browser on
// this machine gets its page there.
func TestConsoleAddress(t *testing.T) {
	t.Parallel()
	browser := http.Client{Timeout: untilTimeout,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for _, c := range []struct {
		listen, want string // PORT is the port; an empty want is no address
		args         []string
	}{
		{"http://127.0.0.1:PORT", "http://127.0.0.1:PORT/console/", nil},
		{"http://localhost:PORT", "http://localhost:PORT/console/", nil},
		{"http://0.0.0.0:PORT", "http://127.0.0.1:PORT/console/", nil},
		{"http://[::]:PORT", "http://127.0.0.1:PORT/console/", nil},
		{"https://127.0.0.1:PORT", "https://127.0.0.1:PORT/console/", []string{"--auto-tls"}},
		{"https://0.0.0.0:PORT", "https://127.0.0.1:PORT/console/", []string{"--auto-tls"}},
		{"http://0.0.0.0:PORT", "http://localhost:PORT/console/",
			[]string{"--console=on", "--advertise-client-urls=http://localhost:PORT"}},
		{"http://0.0.0.0:PORT", "http://127.0.0.1:PORT/console/",
			[]string{"--console=on", "--advertise-client-urls=http://0.0.0.0:PORT"}},
		// it is refused under this name
		{"http://127.0.0.1:PORT", "", []string{"--host-whitelist=vigil.example"}},
		{"http://0.0.0.0:PORT", "http://localhost:PORT/console/",
			[]string{"--host-whitelist=localhost"}},
		{"https://127.0.0.1:PORT", "https://127.0.0.1:PORT/console/",
			[]string{"--auto-tls", "--host-whitelist=vigil.example"}},
		{"http://127.0.0.1:PORT", "", []string{"--console=off"}},
		{"unix://DIR/socket", "", []string{"--advertise-client-urls=http://127.0.0.1:PORT"}},
	} {
		t.Run(strings.Join(append(c.args, c.listen), " "), func(t *testing.T) {
			t.Parallel()
			fill := strings.NewReplacer("PORT", strconv.Itoa(proc.FreePort(t)), "DIR", t.TempDir())
			peer := fmt.Sprintf("http://127.0.0.1:%d", proc.FreePort(t))
			dir := t.TempDir()
			args := []string{"--data-dir=my data", "--listen-client-urls=" + fill.Replace(c.listen),
				"--listen-peer-urls=" + peer,
				"--initial-advertise-peer-urls=" + peer, "--unsafe-no-fsync"}
			for _, a := range c.args {
				args = append(args, fill.Replace(a))
			}
			cmd := exec.Command(proc.Path(t, proc.Vigil), args...)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "TERM=xterm", "NO_COLOR=1")
			on := startOnTerminal(t, cmd, 120, 24)
			for end := time.Now().Add(untilTimeout); !strings.Contains(on.output(),
				"put greeting hello"); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("it is not ready: %q", on.output())
				}
			}
			if c.want == "" {
				if strings.Contains(on.output(), "  console ") {
					t.Errorf("an address: %q", on.output())
				}
				return
			}
			// A shell in another directory takes the first command as it is printed.
			_, command, _ := strings.Cut(on.output(), "  try      vigilctl ")
			command, _, _ = strings.Cut(command, "\r\n")
			if r := proc.Run(t, untilTimeout,
				proc.Spec{Name: "/bin/sh",
					Args: []string{"-c", `"$0" ` + command,
						proc.Path(t, proc.Vigilctl)}}); r.Code != 0 {
				t.Errorf("vigilctl %s: %d %s", command, r.Code, r.Stderr)
			}
			want := fill.Replace(c.want)
			if !strings.Contains(on.output(), "  console  "+want+"\r\n") {
				t.Fatalf("no %q in %q", want, on.output())
			}
			r, err := browser.Get(want)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Body.Close()
			if page, err := io.ReadAll(r.Body); err != nil || r.StatusCode != http.StatusOK ||
				!strings.Contains(string(page), "<title>Vigil</title>") {
				t.Errorf("%s: %s %v %.200s", want, r.Status, err, page)
			}
		})
	}
}

// typed types keys on the terminal.
func (x *terminal) typed(t *testing.T, keys string) {
	t.Helper()
	if _, err := x.keys.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

// TestTopConsole steers top with keys, on a cluster whose members die.
func TestTopConsole(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t, proc.Vigil, 3)
	c := cluster[0].Client()
	c.Watch(proc.Context(t), "watched/by/someone", clientv3.WithPrefix())
	on := onTerminal(t, 120, 30, []string{"VIGILCTL_ENDPOINTS=" + cluster[0].Addr(), "NO_COLOR=1"},
		"top", "--cluster", "--interval", "100ms")
	on.picture(t, `(?s)3 members .*sort name  \? help.*\n> m1 .*\n  m2 .*\n  m3 `)
	on.typed(t, "?")
	on.picture(t, `(?s)q, Ctrl-C +quit.*Enter +the watchers`)
	on.typed(t, "?j")
	on.picture(t, `(?s)\n  m1 .*\n> m2 .*\n  m3 `)
	on.typed(t, "\x1b[B")
	on.picture(t, `(?s)\n  m2 .*\n> m3 `)
	on.typed(t, "kk\r")
	on.picture(t, `(?s)^\n*m1  .*writes were applied slowly.*1 watcher .*watched/by/someone\* `)
	on.typed(t, "\x1b")
	on.picture(t, `\n> m1 `)
	on.typed(t, "s")
	on.picture(t, `sort lag `)
	on.typed(t, "S")
	on.picture(t, `sort name `)
	cluster[2].Kill()
	on.picture(t, `(?s)\n  m3 +down .*\nm3 \(.*\): `)
	on.typed(t, "q")
	on.await(t)
	if out := on.output(); on.cmd.ProcessState.ExitCode() != 0 ||
		!strings.HasSuffix(out, "\x1b[?25h\x1b[?1049l") {
		t.Errorf("%d: the terminal is not left as it was: %q", on.cmd.ProcessState.ExitCode(),
			out[max(0, len(out)-80):])
	}
	// Ctrl-C is a key there, too.
	again := onTerminal(t, 120, 30, []string{"VIGILCTL_ENDPOINTS=" + cluster[0].Addr()}, "top",
		"--interval", "100ms")
	again.picture(t, `1 member `)
	again.typed(t, "\x03")
	again.await(t)
	if code := again.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d after Ctrl-C", code)
	}
}

// TestRepeated: --watch draws the output of a command again and again on a terminal, errors among
// it, and prints it elsewhere.
func TestRepeated(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	env := []string{"VIGILCTL_ENDPOINTS=" + s.Addr(), "NO_COLOR=1"}
	health := onTerminal(t, 80, 24, env, "endpoint", "health", "--watch=100ms",
		"--command-timeout=1s")
	health.picture(t, `(?s)^every 100ms: vigilctl endpoint health, \d\d:\d\d:\d\d\n\n`+
		s.Addr()+` is healthy`)
	alarms := onTerminal(t, 80, 24, env, "doctor", "--watch=100ms", "--command-timeout=1s",
		"--skip=disk,network")
	alarms.picture(t, `1 member, leader m1: nothing is wrong, 1 note`)

	p, err := proc.Launch([]string{proc.Path(t, proc.Vigilctl), "member", "list",
		"--watch=100ms"}, env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	for end := time.Now().Add(untilTimeout); strings.Count(p.Log().String(),
		", started, m1, ") < 3; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it has printed %q", p.Log())
		}
	}
	if err := p.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	<-p.Exited()
	if code := p.Code(); code != 5 {
		t.Errorf("exit code %d after an interrupt\n%s", code, p.Log())
	}

	s.Kill()
	health.picture(t, `(?s)\n\n.*`+s.Addr()+` is unhealthy.*Error: unhealthy cluster`)
	alarms.picture(t, `does not answer: connection refused`)
	s.Restart()
	health.picture(t, s.Addr()+` is healthy`)
	alarms.picture(t, `nothing is wrong, 1 note`)
	health.typed(t, "q")
	alarms.typed(t, "\x03")
	for _, on := range []*terminal{health, alarms} {
		on.await(t)
		if out := on.output(); on.cmd.ProcessState.ExitCode() != 0 ||
			!strings.HasSuffix(out, "\x1b[?25h\x1b[?1049l") {
			t.Errorf("%d: the terminal is not left as it was: %q", on.cmd.ProcessState.ExitCode(),
				out[max(0, len(out)-80):])
		}
	}
}
