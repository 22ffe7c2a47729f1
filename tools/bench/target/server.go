package target

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"vigil/tools/bench/api"
	"vigil/tools/bench/grpcconn"
)

// Config says how a server is started.
type Config struct {
	// Dir holds the data directory and the log. It exists and is the caller's to remove.
	Dir string
	// Profile turns the profiling endpoints on.
	Profile bool
	// Seat, if not nil, makes the server a member of several; Cluster lists all of them, and
	// Existing says that they run already.
	Seat     *Seat
	Cluster  string
	Existing bool
	// Args are further flags. Like all others, one that the binary does not know is left out.
	Args []string
}

// Server is a running server.
type Server struct {
	Build *Build
	// Addr is the host and port of the client URL.
	Addr string
	// PID is its process id.
	PID int
	// Began is when the process was started.
	Began time.Time
	// DataDir is where it keeps its data.
	DataDir string

	cmd    *exec.Cmd
	log    string
	config Config
	peer   string
	exited chan struct{}
	mu     struct {
		sync.Mutex
		exit error
	}
}

// Seat is a member's name and addresses.
type Seat struct {
	Name, Client, Peer string
}

// Seats chooses free addresses for n members, and returns them with the list that --initial-cluster
// takes.
func Seats(n int) (seats []*Seat, cluster string, err error) {
	var parts []string
	for i := range n {
		s := &Seat{Name: fmt.Sprintf("m%d", i+1)}
		if s.Client, err = freeAddr(); err != nil {
			return nil, "", err
		}
		if s.Peer, err = freeAddr(); err != nil {
			return nil, "", err
		}
		seats = append(seats, s)
		parts = append(parts, s.Name+"=http://"+s.Peer)
	}
	return seats, strings.Join(parts, ","), nil
}

// ErrPortTaken means that a server ended while starting because somebody else took a port that was
// free before.
var ErrPortTaken = errors.New("port taken by another program")

// Start starts a server on free ports. It does not wait until the server answers.
func (l *Launcher) Start(b *Build, c Config) (*Server, error) {
	if c.Seat != nil {
		return l.start(b, c, c.Seat.Client, c.Seat.Peer)
	}
	client, err := freeAddr()
	if err != nil {
		return nil, err
	}
	peer, err := freeAddr()
	if err != nil {
		return nil, err
	}
	return l.start(b, c, client, peer)
}

// Restart starts a server that has ended again, on its ports and its data.
func (l *Launcher) Restart(s *Server) (*Server, error) {
	select {
	case <-s.exited:
	default:
		return nil, errors.New("restart of a server that still runs")
	}
	return l.start(s.Build, s.config, s.Addr, s.peer)
}

func (l *Launcher) start(b *Build, c Config, client, peer string) (*Server, error) {
	s := &Server{Build: b, Addr: client, peer: peer, config: c, exited: make(chan struct{})}
	s.DataDir = filepath.Join(c.Dir, "data")
	s.log = filepath.Join(c.Dir, "server.log")
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	name, cluster, state := "bench", "bench=http://"+peer, "new"
	if c.Seat != nil {
		name, cluster = c.Seat.Name, c.Cluster
	}
	if c.Existing {
		state = "existing"
	}
	args := []string{
		"--name=" + name, "--data-dir=" + s.DataDir, "--log-level=warn",
		"--listen-client-urls=http://" + client, "--advertise-client-urls=http://" + client,
		"--listen-peer-urls=http://" + peer, "--initial-advertise-peer-urls=http://" + peer,
		"--initial-cluster=" + cluster, "--initial-cluster-state=" + state,
		"--quota-backend-bytes=68719476736",
		// A member need not wait a whole election timeout; its restart is a figure.
		"--initial-election-tick-advance=true",
	}
	if c.Profile {
		args = append(args, "--enable-pprof")
	}
	s.cmd = &exec.Cmd{Path: b.Path, Args: []string{b.Path}}
	for _, a := range append(args, c.Args...) {
		name, _, _ := strings.Cut(strings.TrimLeft(a, "-"), "=")
		if b.Has(name) {
			s.cmd.Args = append(s.cmd.Args, a)
		}
	}
	s.cmd.Env = cleanEnv(os.Environ())
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	s.Began = time.Now()
	if err := l.run(s.cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", b.Name, err)
	}
	s.PID = s.cmd.Process.Pid
	go func() {
		err := s.cmd.Wait()
		s.mu.Lock()
		s.mu.exit = err
		s.mu.Unlock()
		close(s.exited)
	}()
	return s, nil
}

// Args returns the command line that the server was started with.
func (s *Server) Args() []string { return s.cmd.Args[1:] }

// Ready waits until the server answers a linearizable read, and returns when it did.
func (s *Server) Ready(ctx context.Context) (time.Time, error) {
	r := api.RangeRequest{Key: []byte("ready?")}
	msg := r.Append(nil)
	var last error
	for {
		at, err := s.tryGet(ctx, msg)
		if err == nil {
			return at, nil
		}
		// The end of the context says less than the last answer before it.
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-s.exited:
			tail := s.LogTail()
			if strings.Contains(tail, syscall.EADDRINUSE.Error()) {
				return time.Time{}, fmt.Errorf("%s: %s or %s: %w", s.Build.Name, s.Addr,
					s.peer, ErrPortTaken)
			}
			return time.Time{}, fmt.Errorf("%s ended while starting: %w\n%s", s.Build.Name,
				s.exitErr(), tail)
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("%s does not answer (%w): last %w\n%s", s.Build.Name,
				ctx.Err(), last, s.LogTail())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func (s *Server) tryGet(ctx context.Context, msg []byte) (time.Time, error) {
	c, err := grpcconn.Dial(ctx, s.Addr, grpcconn.Options{})
	if err != nil {
		return time.Time{}, err
	}
	defer c.Close()
	if _, err := c.Call(ctx, api.Range, msg); err != nil {
		return time.Time{}, err
	}
	return time.Now(), nil
}

// Exited returns a channel that is closed when the process has ended.
func (s *Server) Exited() <-chan struct{} { return s.exited }

func (s *Server) exitErr() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.exit == nil {
		return errors.New("exit code 0")
	}
	return s.mu.exit
}

// Stop asks the process to end, kills it if it takes more than 30 s, and waits for it.
func (s *Server) Stop() error { return s.signalAndWait(syscall.SIGTERM) }

// Kill ends the process at once and waits for it.
func (s *Server) Kill() error { return s.signalAndWait(syscall.SIGKILL) }

func (s *Server) signalAndWait(sig syscall.Signal) error {
	if err := s.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-s.exited:
		return nil
	case <-time.After(30 * time.Second):
	}
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-s.exited
	return fmt.Errorf("%s had to be killed: it did not end within 30 s of %v", s.Build.Name, sig)
}

// LogTail returns the end of the server's log.
func (s *Server) LogTail() string {
	b, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	if len(b) > 4096 {
		b = b[len(b)-4096:]
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			b = b[i+1:]
		}
	}
	return string(b)
}

func cleanEnv(env []string) []string {
	var out []string
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		switch {
		case strings.HasPrefix(name, "ETCD_"), strings.HasPrefix(name, "VIGIL_"):
		case name == "GOGC", name == "GOMEMLIMIT", name == "GODEBUG", name == "GOMAXPROCS":
		default:
			out = append(out, kv)
		}
	}
	return out
}

func freeAddr() (string, error) {
	given.Lock()
	defer given.Unlock()
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		addr := l.Addr().String()
		l.Close()
		if !given.addrs[addr] {
			given.addrs[addr] = true
			return addr, nil
		}
	}
}

// given are the addresses that servers of this process have got: the kernel may offer a port again
// before its server has taken it.
var given = struct {
	sync.Mutex
	addrs map[string]bool
}{addrs: make(map[string]bool)}

// Seat returns the member's place in its cluster, and the list of all.
func (s *Server) Seat() (seat *Seat, cluster string) { return s.config.Seat, s.config.Cluster }
