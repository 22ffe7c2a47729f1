package pages

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"vigil/test/proc"
)

const (
	// root is the directory of the repository.
	root = "../.."
	// patience ends a failed test: for a command, the start of members, and a command that is
	// repeated.
	patience = 2 * time.Minute
	// pause is the time between two attempts of a command that is repeated.
	pause = 200 * time.Millisecond
	ready = "ready to serve client requests"
)

var (
	address = regexp.MustCompile(`\b(127\.0\.0\.1|localhost|10\.0\.\d+\.\d+):(\d+)\b`)
	// system are paths that belong to the machine on the page, and to the directory of the run in
	// the test.
	system = regexp.MustCompile(`(^|[\s=:'"])(/(?:var/lib|etc)/)`)
)

// world is where the commands of one page run. It belongs to the goroutine of the test.
type world struct {
	t    *testing.T
	page string
	dir  string // has work, the directory of the commands, bin, and machine with the system's paths
	// ports are the ports of the run by the addresses of the page.
	ports map[string]string
	ids   ids
	// members are the programs of the "start" blocks by the name of the member, commands their last
	// commands.
	members  map[string]*proc.Process
	commands map[string]string
}

// newWorld makes the directory of a page, with the programs that the page uses in the path.
func newWorld(t *testing.T, page string, all []block) *world {
	t.Helper()
	w := &world{t: t, page: page, dir: proc.Dir(t), ports: map[string]string{}, ids: ids{},
		members: map[string]*proc.Process{}, commands: map[string]string{}}
	for _, d := range []string{"work", "bin", "machine/var/lib", "machine/etc"} {
		if err := os.MkdirAll(filepath.Join(w.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []proc.Program{proc.Vigil, proc.Vigilctl, proc.Etcd, proc.Etcdctl,
		proc.Etcdutl} {
		if !mentions(all, string(p)) {
			continue
		}
		path := filepath.Join(w.dir, "bin", string(p))
		if p == proc.Vigil || p == proc.Etcdutl {
			if err := os.Symlink(proc.Path(t, p), path); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if p == proc.Etcd {
			// It rejects a flag together with its variable.
			w.write("bin/etcd", "#!/bin/sh\nunset $(env | sed -n 's/^\\(ETCD_[A-Z_]*\\)=.*/\\1/p')\nexec "+proc.Path(t, p)+" \"$@\"\n")
			if err := os.Chmod(path, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		// Without endpoints the command lines use port 2379, which is another one in the run.
		script := fmt.Sprintf(`#!/bin/sh
case "${VIGILCTL_ENDPOINTS-}${ETCDCTL_ENDPOINTS-} $*" in
"" | " "*--endpoints* | [!\ ]*) ;;
*) export %s_ENDPOINTS=%s ;;
esac
exec %s "$@"
`, strings.ToUpper(string(p)), w.inRun("127.0.0.1:2379"), proc.Path(t, p))
		if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w.write("variables", "")
	w.write("directory", filepath.Join(w.dir, "work"))
	t.Cleanup(func() {
		for name, m := range w.members {
			m.Kill()
			if t.Failed() {
				t.Logf("log of %s:\n%s", name, m.Log().Tail(20))
			}
		}
	})
	return w
}

// mentions reports whether a command has the word.
func mentions(all []block, word string) bool {
	whole := regexp.MustCompile(`(^|[\s|(])` + regexp.QuoteMeta(word) + `\s`)
	return slices.ContainsFunc(all,
		func(b block) bool { return whole.MatchString(strings.Join(b.lines, "\n") + "\n") })
}

func (w *world) write(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// inRun replaces the addresses, ids and paths of the page by those of the run.
func (w *world) inRun(command string) string {
	command = system.ReplaceAllString(command, "${1}"+w.dir+"/machine$2")
	return w.ids.inRun(address.ReplaceAllStringFunc(command, func(s string) string {
		m := address.FindStringSubmatch(s)
		host := m[1]
		if host != "localhost" {
			host = "127.0.0.1"
		}
		at := strings.Replace(s, "localhost", "127.0.0.1", 1)
		if w.ports[at] == "" {
			w.ports[at] = strconv.Itoa(proc.FreePort(w.t))
		}
		return host + ":" + w.ports[at]
	}))
}

// onPage replaces the addresses and paths of the run by those of the page.
func (w *world) onPage(output string) string {
	output = strings.ReplaceAll(output, w.dir+"/machine", "")
	return address.ReplaceAllStringFunc(output, func(s string) string {
		m := address.FindStringSubmatch(s)
		for page, run := range w.ports {
			if run != m[2] {
				continue
			}
			if own := strings.TrimPrefix(page, "127.0.0.1"); own != page {
				return m[1] + own
			}
			return page
		}
		return s
	})
}

// shell returns the command line that runs a command with the directory and the variables of the
// page. A program that keeps running replaces the shell and changes neither.
func (w *world) shell(command string, keeps bool) []string {
	before := fmt.Sprintf("set -a\n. %[1]s/variables\ncd \"$(cat %[1]s/directory)\"\n", w.dir)
	command = w.inRun(command)
	if keeps {
		return []string{"bash", "-c", before + "exec " + command}
	}
	after := fmt.Sprintf("code=$?\nexport -p >%[1]s/variables\npwd >%[1]s/directory\nexit $code\n",
		w.dir)
	return []string{"bash", "-c", before + "{ " + command + "\n} </dev/null\n" + after}
}

// environment are the settings that move the default ports.
func (w *world) environment() []string {
	client, peer := "http://"+w.inRun("127.0.0.1:2379"), "http://"+w.inRun("127.0.0.1:2380")
	return []string{
		"PATH=" + filepath.Join(w.dir, "bin") + ":" + os.Getenv("PATH"),
		"HOME=" + w.dir,
		"REPOSITORY=" + w.repository(),
		// A busy machine may need longer than people want to wait.
		"VIGILCTL_COMMAND_TIMEOUT=30s", "ETCDCTL_COMMAND_TIMEOUT=30s",
		// within which etcdctl also authenticates
		"VIGILCTL_DIAL_TIMEOUT=5s", "ETCDCTL_DIAL_TIMEOUT=30s",
		"ETCD_LISTEN_CLIENT_URLS=" + client,
		"ETCD_LISTEN_PEER_URLS=" + peer,
		"ETCD_INITIAL_ADVERTISE_PEER_URLS=" + peer,
	}
}

func (w *world) repository() string {
	w.t.Helper()
	dir, err := filepath.Abs(root)
	if err != nil {
		w.t.Fatal(err)
	}
	return dir
}

// run runs all blocks of the page.
func (w *world) run(all []block) {
	w.t.Helper()
	for _, b := range all {
		if b.language == "run" {
			w.direct(b)
			continue
		}
		steps, err := b.steps()
		if err != nil {
			w.t.Fatalf("%s: %v", w.page, err)
		}
		if !b.has("start") {
			w.awaitMembers()
		}
		for _, s := range steps {
			began := time.Now()
			switch {
			case b.has("start"):
				w.start(s)
			case b.has("live"):
				w.live(s)
			default:
				w.once(s, b.has("until"), b.has("fails"))
			}
			w.t.Logf("line %d: %.1f s", s.line, time.Since(began).Seconds())
		}
	}
}

// direct follows a comment.
func (w *world) direct(b block) {
	w.t.Helper()
	if len(b.words) < 2 {
		w.t.Fatalf("%s:%d: %q names no member", w.page, b.line, b.words)
	}
	name := b.words[1]
	switch b.words[0] {
	case "cluster":
		w.startCluster(b)
		return
	case "start":
		w.startAgain(b)
		return
	}
	if len(b.words) != 2 || w.members[name] == nil {
		w.t.Fatalf("%s:%d: %q: no such member", w.page, b.line, b.words)
	}
	if b.words[0] != "exit" {
		w.awaitMembers() // A program that just starts does not yet end itself at a signal.
	}
	m := w.members[name]
	switch b.words[0] {
	case "kill":
		m.Kill()
	case "stop":
		if err := m.Signal(syscall.SIGINT); err != nil {
			w.t.Fatal(err)
		}
		fallthrough
	case "exit":
		select {
		case <-m.Exited():
		case <-time.After(patience):
			w.t.Fatalf("%s:%d: %s still runs:\n%s", w.page, b.line, name, m.Log().Tail(20))
		}
		if m.Code() != 0 {
			w.t.Fatalf("%s:%d: %s exited with %d:\n%s", w.page, b.line, name, m.Code(),
				m.Log().Tail(20))
		}
	default:
		w.t.Fatalf("%s:%d: %q", w.page, b.line, b.words)
	}
	delete(w.members, name)
}

// startCluster starts those of the members NAME=HOST that do not run, with their data in
// /var/lib/vigil/NAME.
func (w *world) startCluster(b block) {
	w.t.Helper()
	list := make([]string, 0, len(b.words))
	for _, word := range b.words[1:] {
		name, host, _ := strings.Cut(word, "=")
		_, peer := clusterURLs(host)
		list = append(list, name+"="+peer)
	}
	for _, word := range b.words[1:] {
		name, host, _ := strings.Cut(word, "=")
		if w.members[name] != nil {
			continue
		}
		client, peer := clusterURLs(host)
		w.start(step{line: b.line,
			command: fmt.Sprintf("vigil --name %[1]s --data-dir /var/lib/vigil/%[1]s"+
				" --listen-client-urls %[2]s --advertise-client-urls %[2]s"+
				" --listen-peer-urls %[3]s --initial-advertise-peer-urls %[3]s --initial-cluster %[4]s",
				name, client, peer, strings.Join(list, ","))})
	}
}

// clusterURLs returns the URLs of a member of a cluster at HOST, with the usual ports, or at
// HOST:CLIENT,PEER.
func clusterURLs(host string) (client, peer string) {
	host, ports, _ := strings.Cut(host, ":")
	c, p, ok := strings.Cut(ports, ",")
	if !ok {
		c, p = "2379", "2380"
	}
	return "http://" + host + ":" + c, "http://" + host + ":" + p
}

// startAgain starts a member with its last command. Flags of the comment replace flags of the
// command or are added to it.
func (w *world) startAgain(b block) {
	w.t.Helper()
	name := b.words[1]
	usual := w.commands[name]
	if usual == "" {
		w.t.Fatalf("%s:%d: %s never ran", w.page, b.line, name)
	}
	command := usual
	for _, word := range b.words[2:] {
		if strings.HasPrefix(word, "--") {
			command = regexp.MustCompile(` `+regexp.QuoteMeta(word)+
				`( +[^-\s]\S*)?`).ReplaceAllString(command+" ", " ")
		}
	}
	w.start(step{line: b.line, command: strings.TrimSpace(command) + " " +
		strings.Join(b.words[2:], " ")})
	w.commands[name] = usual
}

// start runs a member.
func (w *world) start(s step) {
	w.t.Helper()
	name := "default"
	if m := regexp.MustCompile(`--name[ =](\S+)`).FindStringSubmatch(s.command); m != nil {
		name = m[1]
	}
	if w.members[name] != nil {
		w.t.Fatalf("%s:%d: %s runs already", w.page, s.line, name)
	}
	m, err := proc.Launch(w.shell(s.command, true), w.environment())
	if err != nil {
		w.t.Fatal(err)
	}
	w.members[name], w.commands[name] = m, s.command
	w.await(s, m, func(log string) bool { return w.ids.contains(s.want, log) })
}

// awaitMembers waits until all members that run are ready.
func (w *world) awaitMembers() {
	w.t.Helper()
	for name, m := range w.members {
		select {
		case <-m.Log().Wait(ready):
		case <-m.Exited():
			w.t.Fatalf("%s: %s exited with %d before it was ready:\n%s", w.page, name, m.Code(),
				m.Log().Tail(20))
		case <-time.After(patience):
			w.t.Fatalf("%s: %s is not ready:\n%s", w.page, name, m.Log().Tail(20))
		}
	}
}

// live runs a command until it has written the output of the page, and interrupts it.
func (w *world) live(s step) {
	w.t.Helper()
	p, err := proc.Launch(w.shell(s.command, true), w.environment())
	if err != nil {
		w.t.Fatal(err)
	}
	defer p.Kill()
	w.await(s, p, func(output string) bool { return w.ids.matches(s.want, output, true) })
	interrupt := syscall.SIGINT
	if signal.Ignored(interrupt) {
		// a shell that runs the test in the background makes its programs ignore the other
		interrupt = syscall.SIGTERM
	}
	if err := p.Signal(interrupt); err != nil {
		w.t.Fatal(err)
	}
	select {
	case <-p.Exited():
	case <-time.After(patience):
		w.t.Fatalf("%s:%d: still runs after SIGINT", w.page, s.line)
	}
}

// await waits until a program has written what is expected.
func (w *world) await(s step, p *proc.Process, enough func(string) bool) {
	w.t.Helper()
	for end := time.Now().Add(patience); !enough(w.onPage(p.Log().String())); time.Sleep(pause / 4) {
		over := time.Now().After(end)
		select {
		case <-p.Exited():
			// The last lines may have been written after the comparison.
			if enough(w.onPage(p.Log().String())) {
				return
			}
			over = true
		default:
		}
		if over {
			w.fail(s, p.Log().String(), errors.New("the output is not that of the page"))
		}
	}
}

// once runs a command to its end.
func (w *world) once(s step, until, fails bool) {
	w.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(pause) {
		output, code := w.output(s)
		err := error(nil)
		switch {
		case (code != 0) != fails:
			err = fmt.Errorf("exit code %d", code)
		case !w.ids.matches(s.want, w.onPage(output), false):
			err = errors.New("the output is not that of the page")
		default:
			return
		}
		if !until || time.Now().After(end) {
			w.fail(s, output, err)
		}
	}
}

func (w *world) output(s step) (string, int) {
	w.t.Helper()
	args := w.shell(s.command, false)
	cmd := exec.Command(args[0], args[1:]...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Env = append(os.Environ(), w.environment()...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	stuck := time.AfterFunc(patience,
		func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	err := cmd.Wait()
	if !stuck.Stop() {
		w.fail(s, out.String(), fmt.Errorf("still runs after %s", patience))
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

func (w *world) fail(s step, output string, err error) {
	w.t.Helper()
	w.t.Fatalf("%s:%d: %v\n$ %s\n--- on the page\n%s\n--- in the run\n%s", w.page, s.line, err,
		s.command, strings.Join(s.want, "\n"), w.onPage(output))
}
