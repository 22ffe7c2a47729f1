package cluster

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"vigil/test/proc"
)

// screen is what the script has printed.
type screen struct {
	sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.Lock()
	defer s.Unlock()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.Lock()
	defer s.Unlock()
	return s.text.String()
}

// scriptPort returns a port whose five companions are free, too.
func scriptPort(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := proc.FreePort(t)
		free := port+30001 < 1<<16
		for _, p := range []int{port, port + 1, port + 20000, port + 20001, port + 30000,
			port + 30001} {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
			if err != nil {
				free = false
				continue
			}
			l.Close()
		}
		if free {
			return port
		}
	}
	t.Fatal("no six ports of the script are free")
	return 0
}

// TestMakeCluster runs the script of `make cluster`: it says how to use the members below the lines
// of all that they serve, the address of the console among them, and Ctrl-C ends them.
func TestMakeCluster(t *testing.T) {
	t.Parallel()
	port := scriptPort(t)
	script, err := filepath.Abs("../../scripts/cluster.sh")
	if err != nil {
		t.Fatal(err)
	}
	out := &screen{}
	cmd := exec.Command(script, filepath.Join(t.TempDir(), "data"))
	cmd.Env = append(os.Environ(), "VIGIL="+proc.Path(t, proc.Vigil), fmt.Sprint("PORT=", port))
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }()
	for end := time.Now().Add(time.Minute); !strings.Contains(out.String(),
		"Ctrl-C here ends all three"); time.Sleep(10 * time.Millisecond) {
		select {
		case err := <-ended:
			t.Fatalf("it has ended: %v\n%s", err, out)
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("it is not ready:\n%s", out)
		}
	}
	text := out.String()
	above, below, _ := strings.Cut(text, "\nendpoints  ")
	if n := strings.Count(above, "ready to serve client requests"); n != 3 {
		t.Errorf("%d members serve above what to do, want 3:\n%s", n, text)
	}
	console := regexp.MustCompile(`(?m)^console    (http://\S+)$`).FindStringSubmatch(below)
	if want := fmt.Sprintf("http://127.0.0.1:%d/console/", port); console == nil ||
		console[1] != want {
		t.Errorf("no console at %s:\n%s", want, below)
	}
	endpoints := regexp.MustCompile(`VIGILCTL_ENDPOINTS=(\S+)`).FindStringSubmatch(below)
	if endpoints == nil {
		t.Fatalf("no endpoints:\n%s", below)
	}
	r := proc.Run(t, time.Minute,
		proc.Spec{Name: proc.Path(t, proc.Vigilctl), Args: []string{"put", "greeting", "hello"},
			Env: []string{"VIGILCTL_ENDPOINTS=" + endpoints[1]}})
	if r.Code != 0 {
		t.Errorf("vigilctl put: %d %s", r.Code, r.Stderr)
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil || strings.Count(out.String(), "\tstopped") != 3 {
			t.Errorf("after Ctrl-C: %v\n%s", err, out)
		}
	case <-time.After(time.Minute):
		t.Errorf("it still runs after Ctrl-C:\n%s", out)
	}
}

// TestMakeClusterWithoutAll: what the script says leads to members that run. Another program may
// have the port of one, such as the member that somebody has tried before. It is not parallel: the
// ports of two scripts could be the same.
func TestMakeClusterWithoutAll(t *testing.T) {
	script, err := filepath.Abs("../../scripts/cluster.sh")
	if err != nil {
		t.Fatal(err)
	}
	port := scriptPort(t)
	taken, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	out := &screen{}
	cmd := exec.Command(script, filepath.Join(t.TempDir(), "my data"))
	cmd.Env = append(os.Environ(), "VIGIL="+proc.Path(t, proc.Vigil), fmt.Sprint("PORT=", port))
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }()
	for end := time.Now().Add(time.Minute); !strings.Contains(out.String(),
		"Ctrl-C here ends all three"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it is not ready:\n%s", out)
		}
	}
	_, below, _ := strings.Cut(out.String(), "\nendpoints  ")
	for _, want := range []string{
		fmt.Sprintf("VIGILCTL_ENDPOINTS=127.0.0.1:%d,127.0.0.1:%d\n", port+20000, port+30000),
		fmt.Sprintf("console    http://127.0.0.1:%d/console/\n", port+20000),
		"m1         it did not start: its lines above say why; start it: /", `/my\ data/start-m1`,
	} {
		if !strings.Contains(below, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Errorf("it still runs after Ctrl-C:\n%s", out)
	}
	r := proc.Run(t, time.Minute,
		proc.Spec{Name: script, Args: []string{t.TempDir(), "--nonsense"},
			Env: []string{"VIGIL=" + proc.Path(t, proc.Vigil)}})
	if r.Code != 1 || !strings.Contains(r.Stderr, "no member has started") ||
		strings.Contains(r.Stdout, "endpoints") {
		t.Errorf("no member starts: %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
}
