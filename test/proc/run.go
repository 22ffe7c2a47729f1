package proc

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Result is the outcome of a command.
type Result struct {
	Code           int
	Stdout, Stderr string
}

// Spec describes a command.
type Spec struct {
	Name  string
	Args  []string
	Env   []string // added to this process's
	Stdin string
	// User is the user of the command, if not nil.
	User *syscall.Credential
}

// patience is for etcdctl, which gives up an authentication after 5 s, though a busy machine needs
// longer.
var patience = []string{"ETCDCTL_DIAL_TIMEOUT=30s", "ETCDCTL_COMMAND_TIMEOUT=30s"}

// Run runs a command, which must exit within the timeout. The stock etcdctl is more patient than by
// default.
func Run(t testing.TB, timeout time.Duration, s Spec) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.Name, s.Args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(s.Stdin), &stdout, &stderr
	cmd.Env = os.Environ()
	if filepath.Base(s.Name) == string(Etcdctl) {
		cmd.Env = append(cmd.Env, patience...)
	}
	cmd.Env = append(cmd.Env, s.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: s.User}
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("%s %q still runs after %s\nstdout: %s\nstderr: %s", s.Name, s.Args, timeout,
			stdout.String(), stderr.String())
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return Result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// Words splits a command line; quotation marks keep a word with spaces, or an empty one, together.
func Words(line string) (out []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			out = append(out, part)
		} else {
			out = append(out, strings.Fields(part)...)
		}
	}
	return out
}
