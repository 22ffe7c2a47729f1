package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// asVigil is the variable that makes the program of the tests run as vigil.
const asVigil = "TEST_RUN_AS_VIGIL"

func TestMain(m *testing.M) {
	if os.Getenv(asVigil) != "" {
		os.Exit(run(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// process returns a member that is not started, with free ports and its data in a directory of the
// test.
func process(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program, append([]string{"--data-dir", filepath.Join(t.TempDir(), "data"),
		"--listen-client-urls=http://127.0.0.1:0", "--listen-peer-urls=http://127.0.0.1:0"},
		args...)...)
	c.Env = append(os.Environ(), asVigil+"=1")
	t.Cleanup(func() {
		if c.Process != nil && c.ProcessState == nil {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	})
	return c
}

func signals(t *testing.T, c *exec.Cmd, list ...os.Signal) {
	t.Helper()
	for _, s := range list {
		if err := c.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
}

// A member whose log has no reader any more goes on, and stops as ever.
func TestLogWithoutReader(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := process(t, "--log-format=json")
	c.Stderr = write
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	lines := bufio.NewScanner(read)
	for lines.Scan() && !strings.Contains(lines.Text(), "ready to serve client requests") {
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	read.Close()
	signals(t, c, syscall.SIGHUP, syscall.SIGTERM)
	if err := c.Wait(); err != nil {
		t.Errorf("%v, want exit code 0", err)
	}
}

// The second signal ends a member whose start hangs.
func TestSecondSignalAtStart(t *testing.T) {
	// The start reads a certificate that never comes.
	cert := filepath.Join(t.TempDir(), "cert")
	if err := syscall.Mkfifo(cert, 0o600); err != nil {
		t.Fatal(err)
	}
	c := process(t, "--listen-client-urls=https://127.0.0.1:0", "--cert-file", cert,
		"--key-file", cert)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(cert, os.O_WRONLY, 0) // returns when the member has opened it
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	signals(t, c, syscall.SIGTERM, syscall.SIGINT)
	if err := c.Wait(); c.ProcessState.ExitCode() != 1 {
		t.Errorf("%v, want exit code 1", err)
	}
}

// Why a member does not start is in its log, too, if that is a file.
func TestFailureIsLogged(t *testing.T) {
	for name, args := range map[string][]string{
		"not a directory": {"--data-dir", os.Args[0]},
		"/does/not/exist": {"--listen-client-urls=https://127.0.0.1:0",
			"--cert-file=/does/not/exist", "--key-file=/does/not/exist"},
		"no network interface": {"--listen-client-urls=http://192.0.2.1:1"},
	} {
		file := filepath.Join(t.TempDir(), "log")
		c := process(t, append(args, "--log-outputs", file)...)
		var printed strings.Builder
		c.Stderr = &printed
		if err := c.Run(); err == nil {
			t.Fatalf("%q has started", args)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		reason := strings.TrimSpace(strings.TrimPrefix(printed.String(), "vigil: "))
		if text := string(b); !strings.Contains(reason, name) ||
			!strings.Contains(text, `"level":"error"`) ||
			!strings.Contains(text, strings.ReplaceAll(reason, `"`, `\"`)) {
			t.Errorf("%s: printed %q, logged %s", name, reason,
				text[strings.LastIndex(strings.TrimSpace(text), "\n")+1:])
		}
	}
}
