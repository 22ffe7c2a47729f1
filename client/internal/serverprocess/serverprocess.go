// Package serverprocess runs a server as a process for the tests of the client library. The library
// is a module of its own that does not depend on the server's, so the tests build the program of
// the repository they are in.
package serverprocess

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// stopTimeout is how long a server may take to end before it is killed.
const stopTimeout = 30 * time.Second

// Run builds the server, starts a cluster of one member on a free port, sets endpoint to its client
// address, runs the tests and exits. Call it from TestMain.
func Run(m *testing.M, endpoint *string) {
	if slices.Contains(os.Args, "-test.fuzzworker") {
		os.Exit(m.Run()) // fuzzing needs no server
	}
	code, err := run(m, endpoint)
	if err != nil {
		fmt.Fprintln(os.Stderr, "serverprocess:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M, endpoint *string) (code int, err error) {
	dir, err := os.MkdirTemp("", "serverprocess-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	program, err := build(dir)
	if err != nil {
		return 0, err
	}
	s, err := start(program, filepath.Join(dir, "data"))
	if err != nil {
		return 0, err
	}
	*endpoint = s.address
	return m.Run(), s.stop()
}

// build compiles the server of the repository around the working directory into dir.
func build(dir string) (program string, err error) {
	root, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(root, "cmd", "vigil")); err == nil {
			break
		}
		parent := filepath.Dir(root)
		if parent == root {
			return "", errors.New("there is no cmd/vigil in a parent directory: run the tests in a checkout of the repository")
		}
		root = parent
	}
	program = filepath.Join(dir, "vigil")
	out, err := exec.Command("go", "build", "-C", root, "-o", program,
		"./cmd/vigil").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the server: %w\n%s", err, out)
	}
	return program, nil
}

type process struct {
	cmd     *exec.Cmd
	address string
	read    chan struct{} // closed when the log has ended
}

// start starts the server and returns when it is ready.
func start(program, dataDir string) (*process, error) {
	p := &process{read: make(chan struct{})}
	p.cmd = exec.Command(program, "--data-dir="+dataDir, "--unsafe-no-fsync",
		"--listen-client-urls=http://127.0.0.1:0", "--advertise-client-urls=http://127.0.0.1:0",
		"--listen-peer-urls=http://127.0.0.1:0")
	p.cmd.SysProcAttr = endsWithParent()
	log, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(log)
	var last string
	for lines.Scan() {
		var line struct{ Msg, Address string }
		last = lines.Text()
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			continue
		}
		if line.Address != "" && line.Msg == "serving client traffic insecurely" {
			p.address = line.Address
		}
		if line.Msg == "ready to serve client requests" {
			go func() {
				defer close(p.read)
				_, _ = io.Copy(io.Discard, log)
			}()
			return p, nil
		}
	}
	return nil, fmt.Errorf("the server ended: %w: %s", p.cmd.Wait(), last)
}

func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	kill := time.AfterFunc(stopTimeout, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	<-p.read
	return p.cmd.Wait()
}
