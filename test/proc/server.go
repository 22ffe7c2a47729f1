package proc

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	// startTimeout and stopTimeout limit the waiting for a condition. Only a failing test
	// waits this long.
	startTimeout = 60 * time.Second
	stopTimeout  = 60 * time.Second
	// ready is in the line that a member logs when it serves.
	ready = "ready to serve client requests"
)

// Config describes how to run a server. The zero value runs the subject with a new data directory
// on free loopback ports.
type Config struct {
	Program Program
	// DataDir is the data directory; if empty, a new one that is removed after the test.
	DataDir string
	// Memory puts a new data directory on a memory file system where there is one: for tests
	// that do not test the disk.
	Memory bool
	// Name is the member's name, m1 if empty, and InitialCluster the members of the cluster, by
	// default this one alone; Discover leaves it out, for a member that finds them.
	Name, InitialCluster string
	Discover             bool
	// Host is the address where it listens, 127.0.0.1 if empty.
	Host string
	// ClientPort and PeerPort are chosen if 0.
	ClientPort, PeerPort int
	// Advertise is the advertised address; if empty, where the member
	// listens. Two members with the same name and address have the same ids.
	Advertise string
	// Args come last on the command line and Env last in the environment.
	Args, Env []string
	// Wrap is a command that the server is run under, for example a tracer.
	Wrap []string
}

// Server is a server process. Its methods are for the goroutine of the test.
type Server struct {
	t   testing.TB
	cfg Config
	// process is nil until the first launch.
	process *Process
}

// Start runs a server and returns when it serves clients. It is killed when the test ends; if the
// test failed, the end of its log is shown.
func Start(t testing.TB, c Config) *Server {
	t.Helper()
	s := newServer(t, c)
	s.Restart()
	return s
}

// New prepares a server without running it: Launch or Restart do.
func New(t testing.TB, c Config) *Server {
	t.Helper()
	return newServer(t, c)
}

// Try is Start for a server that may fail to start: it returns nil if the server exits.
func Try(t testing.TB, c Config) *Server {
	t.Helper()
	s := newServer(t, c)
	s.Launch()
	if !s.await() {
		return nil
	}
	return s
}

func newServer(t testing.TB, c Config) *Server {
	t.Helper()
	if c.Program == "" {
		c.Program = Subject()
	}
	if c.DataDir == "" {
		c.DataDir = filepath.Join(tempDir(t, c.Memory), "data")
	}
	if c.ClientPort == 0 {
		c.ClientPort = FreePort(t)
	}
	if c.PeerPort == 0 {
		c.PeerPort = FreePort(t)
	}
	s := &Server{t: t, cfg: c}
	t.Cleanup(func() {
		s.Kill()
		s.inspect()
		if t.Failed() && s.process != nil {
			t.Logf("log of %s:\n%s", c.Program, s.Log().Tail(30))
		}
	})
	return s
}

// Restart runs the server again with the same ports and data directory; it must not be running.
func (s *Server) Restart() {
	s.t.Helper()
	s.Launch()
	if !s.await() {
		s.t.Fatalf("%s exited with %d before it was ready:\n%s", s.cfg.Program, s.process.Code(),
			s.Log().Tail(30))
	}
}

// await waits until the server is ready and reports false if it exits instead.
func (s *Server) await() bool {
	s.t.Helper()
	select {
	case <-s.Log().Wait(ready):
		return true
	case <-s.process.Exited():
		return false
	case <-time.After(startTimeout):
		s.t.Fatalf("%s is not ready after %s:\n%s", s.cfg.Program, startTimeout, s.Log().Tail(30))
		return false
	}
}

// Launch is Restart without waiting.
func (s *Server) Launch() {
	s.t.Helper()
	args := append(append([]string{}, s.cfg.Wrap...), Path(s.t, s.cfg.Program))
	args = append(args, s.cfg.CommandLine()...)
	s.inspect()
	p, err := Launch(args, s.cfg.Env)
	if err != nil {
		s.t.Fatal(err)
	}
	s.process = p
}

// inspect fails the test if the log has a line that must never appear, in every test. A stock etcd
// is not judged: some requests make it panic.
func (s *Server) inspect() {
	s.t.Helper()
	if s.process == nil || s.cfg.Program == Etcd {
		return
	}
	log := s.Log().String()
	for _, never := range []string{"WARNING: DATA RACE", "panic:", "fatal error:"} {
		if at := strings.Index(log, never); at >= 0 {
			s.t.Errorf("log of %s:\n%s", s.cfg.Program, log[at:min(at+8<<10, len(log))])
		}
	}
}

// CommandLine returns the command line without the program. DataDir and the ports must be set.
func (c Config) CommandLine() []string {
	client, peer := "http://"+c.address(c.ClientPort), "http://"+c.address(c.PeerPort)
	tellClient, tellPeer := client, peer
	if c.Advertise != "" {
		tellClient = "http://" + c.Advertise + ":2379"
		tellPeer = "http://" + c.Advertise + ":2380"
	}
	name, members := c.Name, c.InitialCluster
	if name == "" {
		name = "m1"
	}
	if members == "" {
		members = name + "=" + tellPeer
	}
	args := []string{
		"--name=" + name,
		"--data-dir=" + c.DataDir,
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + tellClient,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + tellPeer,
	}
	if !c.Discover {
		args = append(args, "--initial-cluster="+members)
	}
	return append(args, c.Args...)
}

// address returns where the server listens, as host:port.
func (c Config) address(port int) string {
	host := c.Host
	if host == "" {
		host = "127.0.0.1"
	}
	return fmt.Sprintf("%s:%d", host, port)
}

// Kill ends the process with SIGKILL and returns when it has exited. It has no effect on a process
// that has exited already.
func (s *Server) Kill() {
	if s.process != nil {
		s.process.Kill()
	}
}

// Stop ends the process with SIGTERM and returns its exit code.
func (s *Server) Stop() int {
	s.t.Helper()
	s.signal(syscall.SIGTERM)
	select {
	case <-s.process.Exited():
	case <-time.After(stopTimeout):
		s.t.Fatalf("%s still runs %s after SIGTERM:\n%s", s.cfg.Program, stopTimeout,
			s.Log().Tail(30))
	}
	return s.process.Code()
}

// SetArgs replaces Config.Args for the next start.
func (s *Server) SetArgs(args ...string) { s.cfg.Args = args }

// SetProgram sets the program of the next launch.
func (s *Server) SetProgram(p Program) { s.cfg.Program = p }

// Ready waits until a server that was launched serves.
func (s *Server) Ready() {
	s.t.Helper()
	if !s.await() {
		s.t.Fatalf("%s exited with %d before it was ready:\n%s", s.cfg.Program, s.process.Code(),
			s.Log().Tail(30))
	}
}

// Pause stops the process with SIGSTOP and returns when none of its threads runs any more, which
// may be a while after the signal was sent. Resume continues it.
func (s *Server) Pause() {
	s.t.Helper()
	s.signal(syscall.SIGSTOP)
	for end := time.Now().Add(stopTimeout); !s.paused(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("%s still runs %s after SIGSTOP", s.cfg.Program, stopTimeout)
		}
	}
}

// paused reports whether all threads are stopped.
func (s *Server) paused() bool {
	stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", s.Pid()))
	for _, name := range stats {
		b, err := os.ReadFile(name)
		// The state follows the name, which is in parentheses.
		if i := bytes.LastIndexByte(b, ')'); err == nil &&
			(i < 0 || !bytes.HasPrefix(b[i:], []byte(") T"))) {
			return false
		}
	}
	return len(stats) > 0
}

// Resume undoes Pause.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// Wait waits until the process exits and returns its exit code.
func (s *Server) Wait() int {
	s.t.Helper()
	select {
	case <-s.process.Exited():
	case <-time.After(startTimeout):
		s.t.Fatalf("%s still runs:\n%s", s.cfg.Program, s.Log().Tail(30))
	}
	return s.process.Code()
}

// Running reports whether the process runs.
func (s *Server) Running() bool {
	select {
	case <-s.process.Exited():
		return false
	default:
		return true
	}
}

// ExitsWithin waits until the process exits by itself, and reports false if it still runs after d.
func (s *Server) ExitsWithin(d time.Duration) bool {
	select {
	case <-s.process.Exited():
		return true
	case <-time.After(d):
		return false
	}
}

// Pid returns the process id, of the wrapper if there is one.
func (s *Server) Pid() int { return s.process.Pid() }

// Log returns the output of the process since it was last started.
func (s *Server) Log() *Log { return s.process.Log() }

// DataDir returns the data directory.
func (s *Server) DataDir() string { return s.cfg.DataDir }

// Addr returns where clients connect, as host:port.
func (s *Server) Addr() string { return s.cfg.address(s.cfg.ClientPort) }

// PeerAddr returns where peers connect, as host:port.
func (s *Server) PeerAddr() string { return s.cfg.address(s.cfg.PeerPort) }

// Dial returns a bare gRPC connection that is closed with the test.
func (s *Server) Dial(opts ...grpc.DialOption) *grpc.ClientConn {
	s.t.Helper()
	opts = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30), grpc.MaxCallSendMsgSize(1<<30)),
	}, opts...)
	conn, err := grpc.NewClient("passthrough:///"+s.Addr(), opts...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Client returns a stock client that is closed with the test.
func (s *Server) Client() *clientv3.Client {
	s.t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{s.Addr()},
		DialTimeout: startTimeout,
		Logger:      zap.NewNop(),
		// A member that was away for minutes is reached a second after its start.
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
				MaxDelay: time.Second}, MinConnectTimeout: 5 * time.Second})},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// Context returns the test's context with a deadline far beyond what any single step takes.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func tempDir(t testing.TB, memory bool) string {
	t.Helper()
	if memory {
		if dir, err := os.MkdirTemp("/dev/shm", "vigil-test-"); err == nil {
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			return dir
		}
	}
	return t.TempDir()
}

// Dir returns a directory that is removed after the test, on a memory file system where there is
// one.
func Dir(t testing.TB) string { return tempDir(t, true) }
