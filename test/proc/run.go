package proc

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
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

// Run runs a command, which must exit within the timeout.
func Run(t testing.TB, timeout time.Duration, s Spec) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.Name, s.Args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(s.Stdin), &stdout, &stderr
	cmd.Env = append(os.Environ(), s.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: s.User}
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("%s %q still runs after %s\nstdout: %s\nstderr: %s", s.Name, s.Args, timeout, stdout.String(), stderr.String())
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
