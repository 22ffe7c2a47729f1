package vigilctl

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/proc"
)

// screens has pictures of what commands draw.
const screens = "testdata/screens.md"

// escapes are what steers a terminal.
var escapes = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)

// ends are the ends of lines: the terminal adds a carriage return to each line feed.
var ends = regexp.MustCompile(`\r+\n`)

// terminal is a pseudo-terminal with a program on it.
type terminal struct {
	cmd  *exec.Cmd
	keys *os.File // what somebody types
	mu   struct {
		sync.Mutex
		out bytes.Buffer
	}
	ended chan struct{}
}

func onTerminal(t *testing.T, columns, lines uint16, env []string, args ...string) *terminal {
	t.Helper()
	return start(t, proc.Vigilctl, columns, lines, env, args...)
}

// start runs a program on a terminal.
func start(t *testing.T, program proc.Program, columns, lines uint16, env []string,
	args ...string) *terminal {
	t.Helper()
	cmd := exec.Command(proc.Path(t, program), args...)
	cmd.Env = append(append(os.Environ(), "TERM=xterm", "NO_COLOR="), env...)
	return startOnTerminal(t, cmd, columns, lines)
}

// startOnTerminal runs a command on a terminal.
func startOnTerminal(t *testing.T, cmd *exec.Cmd, columns, lines uint16) *terminal {
	t.Helper()
	x := &terminal{cmd: cmd, ended: make(chan struct{})}
	f, err := pty.StartWithSize(x.cmd, &pty.Winsize{Rows: lines, Cols: columns})
	if err != nil {
		t.Fatal(err)
	}
	x.keys = f
	read := make(chan struct{})
	go func() {
		defer close(read)
		b := make([]byte, 64<<10)
		for {
			n, err := f.Read(b)
			x.mu.Lock()
			x.mu.out.Write(b[:n])
			x.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	go func() {
		defer close(x.ended)
		_ = x.cmd.Wait() // the exit code is checked
		<-read
	}()
	t.Cleanup(func() {
		_ = x.cmd.Process.Kill()
		<-x.ended
		_ = f.Close()
	})
	return x
}

func (x *terminal) output() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.out.String()
}

// picture waits until what is on the terminal matches, and returns it as text.
func (x *terminal) picture(t *testing.T, want string) string {
	t.Helper()
	re := regexp.MustCompile(want)
	for end := time.Now().Add(untilTimeout); ; time.Sleep(10 * time.Millisecond) {
		out := x.output()
		// A picture begins at the top left corner and is whole when the rest has been cleared.
		if whole := strings.LastIndex(out, "\x1b[J"); whole >= 0 {
			out = out[:whole]
			out = out[strings.LastIndex(out, "\x1b[H"):]
		}
		text := ends.ReplaceAllString(escapes.ReplaceAllString(out, ""), "\n")
		if re.MatchString(text) {
			return strings.TrimRight(text, "\n")
		}
		if time.Now().After(end) {
			t.Fatalf("%q does not show %s in %s:\n%s", x.cmd.Args, want, untilTimeout, text)
		}
	}
}

// interrupt ends the program as Ctrl-C does.
func (x *terminal) interrupt(t *testing.T) {
	t.Helper()
	if err := x.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-x.ended:
	case <-time.After(untilTimeout):
		t.Fatal("it still runs after Ctrl-C")
	}
	if code := x.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d after Ctrl-C", code)
	}
	if out := x.output(); !strings.HasSuffix(out, "\x1b[?25h\x1b[?1049l") ||
		!strings.HasPrefix(out, "\x1b[?1049h") {
		t.Errorf("the terminal is not left as it was: %q", out[max(0, len(out)-80):])
	}
}

func TestScreens(t *testing.T) {
	s := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	env := []string{"VIGILCTL_ENDPOINTS=" + s.Addr()}
	c := s.Client()
	ctx, cancel := context.WithCancel(proc.Context(t))
	defer cancel()
	w := s.Client()
	for _, prefix := range []string{"/registry/pods/", "/registry/services/", "config/app"} {
		w.Watch(ctx, prefix, clientv3.WithPrefix())
	}
	var writer sync.WaitGroup
	defer writer.Wait()
	defer cancel()
	writer.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			_, _ = c.Put(ctx, fmt.Sprintf("/registry/pods/%d", i%50), "x") // until the test ends
			time.Sleep(2 * time.Millisecond)
		}
	})
	var page strings.Builder
	page.WriteString("# What commands draw\n\nCaptured from a terminal by a test: `go test ./vigilctl -run Screens -rewrite` in `test/`.\n")
	add := func(command string, columns int, picture string) {
		for line := range strings.Lines(picture) {
			// An address is not broken: a terminal would not take it as a whole.
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > columns &&
				!strings.HasPrefix(line, "    page: http") {
				t.Errorf("%s: a line of %d on %d columns: %q", command, n, columns, line)
			}
		}
		fmt.Fprintf(&page, "\n## `%s`, %d columns\n\n```text\n%s\n```\n", command, columns, picture)
	}
	for _, x := range []struct {
		columns uint16
		want    string
		args    []string
	}{
		{120, `(?s)a second:.*m1 +leader +0 +[1-9]`, []string{"top", "--interval", "500ms"}},
		{40, `(?s)a second:.*m1 +leader +0 +[1-9]`, []string{"top", "--interval", "500ms"}},
		{120, `(?s)3 watchers.*config/app\* +live`,
			[]string{"watchers", "--live", "--interval", "200ms", "--sort", "key"}},
		{40, `(?s)3 watchers.*config/app\* +live`,
			[]string{"watchers", "--live", "--interval", "200ms", "--sort", "key"}},
	} {
		on := onTerminal(t, x.columns, 24, env, x.args...)
		picture := on.picture(t, x.want)
		if !strings.Contains(on.output(), "\x1b[1m") {
			t.Errorf("%q has no colours on a terminal", x.args)
		}
		on.interrupt(t)
		add("vigilctl "+strings.Join(x.args, " "), int(x.columns), picture)
	}
	for _, columns := range []uint16{100, 40} {
		on := onTerminal(t, columns, 24, append(env, "NO_COLOR=1"), "doctor")
		<-on.ended
		if code := on.cmd.ProcessState.ExitCode(); code > 1 {
			t.Errorf("doctor: exit code %d", code)
		}
		if strings.Contains(on.output(), "\x1b") {
			t.Errorf("colours in spite of NO_COLOR: %q", on.output())
		}
		add("vigilctl doctor", int(columns), on.picture(t, `1 member, leader m1: `))
	}
	if rewrite() {
		if err := os.WriteFile(screens, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
