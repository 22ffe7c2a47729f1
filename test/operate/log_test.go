package operate

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"vigil/test/proc"
)

// head is how a line begins that programs made for etcd's log read.
var head = regexp.MustCompile(`^\{"level":"(debug|info|warn|error)","ts":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d{4})","caller":"[a-z0-9@.]+/[a-z0-9_]+\.go:\d+","msg":"`)

// checkLines holds lines of JSON against the form, and returns their messages.
func checkLines(t *testing.T, text string) (messages []string) {
	t.Helper()
	for line := range strings.Lines(text) {
		var m struct{ Msg, Level string }
		if err := json.Unmarshal([]byte(line), &m); err != nil || !head.MatchString(line) {
			t.Errorf("%v: %s", err, line)
		}
		if m.Level == "error" {
			t.Errorf("an error in normal operation: %s", line)
		}
		messages = append(messages, m.Msg)
	}
	return messages
}

// TestLog: every line of a start, some work and a stop has the form, none is an error, a file gets
// what stderr gets, and after SIGHUP the file is a new one.
func TestLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "vigil.log")
	s := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true,
		Args: []string{"--logger=zap", "--log-level=debug", "--log-outputs=stderr," + file}})
	c := s.Client()
	ctx := proc.Context(t)
	if _, err := c.Put(ctx, "k", "v"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	reopened := s.Log().Wait(`"msg":"reopened the log"`)
	if err := syscall.Kill(s.Pid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	select {
	case <-reopened:
	case <-time.After(time.Minute):
		t.Fatal("no line about SIGHUP")
	}
	if _, err := c.Put(ctx, "k", "v"); err != nil {
		t.Fatal(err)
	}
	if code := s.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	all := strings.Join(checkLines(t, s.Log().String()), "\n")
	for _, want := range []string{"effective configuration", "ready to serve client requests",
		"serving client traffic", "request stats", "stopping", "stopped"} {
		if !strings.Contains(all, want) {
			t.Errorf("no line %q", want)
		}
	}
	first, err := os.ReadFile(file + ".1")
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(first)+string(second) != s.Log().String() {
		t.Errorf("the files have %d and %d bytes, stderr got %d", len(first), len(second),
			len(s.Log().String()))
	}
	if !strings.Contains(string(second), "reopened the log") ||
		strings.Contains(string(second), "ready to serve") {
		t.Errorf("the new file begins in the wrong place:\n%.300s", second)
	}
}

// TestRotatedLog: the server rotates the file according to its flags.
func TestRotatedLog(t *testing.T) {
	dir := t.TempDir()
	s := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true,
		Args: []string{"--log-level=debug", "--log-outputs=stderr," + filepath.Join(dir, "v.log"),
			"--enable-log-rotation",
			`--log-rotation-config-json={"maxsize": 1, "maxbackups": 1, "compress": false}`}})
	c := s.Client()
	ctx := proc.Context(t)
	// Each of these is logged with its key in a line of at least its size.
	key := strings.Repeat("k", 100)
	for end := time.Now().Add(time.Minute); ; {
		for range 200 {
			if _, err := c.Get(ctx, key); err != nil {
				t.Fatal(err)
			}
		}
		old, err := filepath.Glob(filepath.Join(dir, "v-*.log"))
		if err != nil {
			t.Fatal(err)
		}
		if len(old) > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the log was not replaced")
		}
	}
	s.Stop()
	last, err := os.ReadFile(filepath.Join(dir, "v.log"))
	if err != nil {
		t.Fatal(err)
	}
	checkLines(t, string(last))
	if !strings.Contains(string(last), `"msg":"stopped"`) {
		t.Errorf("the end of the log is not in the newest file:\n%.300s", last)
	}
}

func TestConsoleLog(t *testing.T) {
	s := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true,
		Args: []string{"--log-format=console"}, Env: []string{"ETCD_NO_SUCH=1"}})
	s.Stop()
	form := regexp.MustCompile(`^\d{4}-\d\d-\d\dT[0-9:.]+(Z|[+-]\d{4})\t(info|warn)\t[a-z0-9@.]+/[a-z0-9_]+\.go:\d+\t[^\t{]+(\t\{.*\})?$`)
	for line := range strings.Lines(s.Log().String()) {
		if !form.MatchString(strings.TrimSuffix(line, "\n")) {
			t.Errorf("%q", line)
		}
	}
	if !strings.Contains(s.Log().String(), `"variable":"ETCD_NO_SUCH"}`) {
		t.Error("no line about a variable without a flag")
	}
}
