package logline

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"go.uber.org/zap/zapcore"
)

// filling is a stream to a disk that becomes full in the middle of a line, and is not full later.
type filling struct {
	bytes.Buffer
	free int
}

func (f *filling) Write(b []byte) (int, error) {
	n := min(len(b), f.free)
	f.free -= n
	f.Buffer.Write(b[:n])
	if n < len(b) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

// A line of which only a part was written spoils no other.
func TestLineInPart(t *testing.T) {
	disk := &filling{free: 250}
	log := slog.New(newHandler(slog.LevelInfo, false,
		&outputs{list: []output{&stream{Writer: disk}}}, nil))
	for range 10 {
		log.Info("before")
	}
	disk.free = 3 // not even a newline and a line
	log.Info("still full")
	disk.free = 1 << 20
	log.Info("after")
	log.Info("last")
	lines := strings.Split(strings.TrimSuffix(disk.String(), "\n"), "\n")
	for i, line := range lines[len(lines)-2:] {
		var m struct{ Msg string }
		if err := json.Unmarshal([]byte(line), &m); err != nil ||
			m.Msg != []string{"after", "last"}[i] {
			t.Errorf("%q: %v", line, err)
		}
	}
	if n := strings.Count(disk.String(), "\n\n"); n > 0 {
		t.Errorf("%d empty lines", n)
	}
}

// The first line of a process spoils no line that a crash has left in part.
func TestFileInPart(t *testing.T) {
	for _, rotation := range []*Rotation{nil, {MaxSize: 1}} {
		path := filepath.Join(t.TempDir(), "v.log")
		if err := os.WriteFile(path, []byte("{\"msg\":\"whole\"}\n{\"msg\":\"in pa"),
			0o600); err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"first", "second"} {
			l, err := Open(Config{Outputs: []string{path}, Rotation: rotation})
			if err != nil {
				t.Fatal(err)
			}
			slog.New(l.Handler()).Info(text)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(b), "\n")
		if len(lines) != 5 || !strings.Contains(lines[2], `"msg":"first"`) ||
			!json.Valid([]byte(lines[2])) || !json.Valid([]byte(lines[3])) {
			t.Errorf("%q", lines)
		}
	}
}

// A log whose file cannot be replaced goes on in the old one, and a file that cannot be opened
// again is an error.
func TestRotationFails(t *testing.T) {
	dir := t.TempDir()
	// The name with a date is longer than the file system allows.
	path := filepath.Join(dir, strings.Repeat("v", 240)+".log")
	l, err := Open(Config{Outputs: []string{path}, Rotation: &Rotation{MaxSize: 1}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		l.queues[0].out.write(zapcore.InfoLevel,
			fmt.Appendf(nil, "{\"msg\":\"%d\",\"fill\":\"%s\"}\n", i, strings.Repeat("x", 600<<10)))
	}
	if got := messages(t, path); got != "0 1 2 3" {
		t.Errorf("the file has %s", got)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := l.Reopen(); err == nil {
		t.Error("a directory was opened")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// How many lines of a place were left out is reported also if the place logs nothing more.
func TestLinesLeftOut(t *testing.T) {
	h, out := testHandler(false)
	now := time.Unix(1e9, 0)
	h.sites = newSites()
	h.sites.now = func() time.Time { return now }
	log := slog.New(h)
	for range MaxBurst + 50 {
		log.Error("it fails")
	}
	log.Info("meanwhile")
	if strings.Contains(out.String(), "left-out") {
		t.Error("reported before it is known how many")
	}
	now = now.Add(time.Minute)
	out.Reset()
	log.With("client", "x").WithGroup("g").Info("later")
	log.Info("later")
	if n := strings.Count(out.String(), `"lines-left-out":50`); n != 1 ||
		!strings.Contains(out.String(), `"it fails"`) ||
		!strings.Contains(out.String(), `"level":"error"`) {
		t.Errorf("reported %d times in\n%s", n, out)
	}
	if n := strings.Count(out.String(), "client"); n != 1 {
		t.Errorf("the attributes of another line:\n%s", out)
	}
	for line := range strings.Lines(out.String()) {
		if !strings.Contains(line, "torn_test.go") {
			t.Errorf("the place is missing: %s", line)
		}
	}
}

// A terminal acts on no byte of a JSON line either, for instance of a file that somebody prints.
func TestJSONIsSafe(t *testing.T) {
	const hostile = "\x1b[2J\u009b2J\x7f\x9b\r\u202e\u2028\U000e0041ü"
	h, out := testHandler(false)
	slog.New(h).Warn("a client said "+hostile, "error", errors.New(hostile), hostile,
		json.RawMessage(`"\u009b"`))
	if line := strings.TrimSuffix(out.String(), "\n"); strings.ContainsFunc(line,
		func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("%q", line)
	}
	var got map[string]string
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if want := strings.ToValidUTF8(hostile, "\ufffd"); got["error"] != want ||
		got[want] != "\u009b" || got["msg"] != "a client said "+want {
		t.Errorf("%q", got)
	}
}

// A reader that reads nothing blocks nobody who logs, and no other output. When it reads again it
// gets the lines that were kept, and the number of the others.
func TestUnreadPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	other := &lines{}
	l := &Log{}
	for _, out := range []output{&stream{Writer: w}, other} {
		q := newQueue(out, newCore(false, nil).lostLines)
		l.out.list, l.queues = append(l.out.list, q), append(l.queues, q)
	}
	log := slog.New(newHandler(slog.LevelInfo, false, &l.out, nil))
	text := strings.Repeat("x", 900)
	const n = 2 * MaxQueued / 900
	for i := range n {
		log.Info("line", "n", i, "text", text)
		if i%100 == 0 {
			if err := l.queues[1].flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := l.queues[1].flush(); err != nil || strings.Count(other.String(), "\n") != n {
		t.Fatalf("the other output has %d lines of %d: %v",
			strings.Count(other.String(), "\n"), n, err)
	}
	q := l.queues[0]
	if q.flush() == nil {
		t.Error("all lines were written to a pipe that nobody reads")
	}
	q.mu.Lock()
	if q.mu.bytes > MaxQueued {
		t.Errorf("%d bytes wait", q.mu.bytes)
	}
	q.mu.Unlock()
	read, lost := 0, 0
	done := make(chan struct{})
	go func() {
		defer close(done)
		for s := bufio.NewScanner(r); s.Scan(); {
			var m struct {
				Msg  string
				Lost int `json:"lines-left-out"`
			}
			if err := json.Unmarshal(s.Bytes(), &m); err != nil {
				t.Errorf("%v: %s", err, s.Bytes())
			}
			if read++; m.Msg != "line" {
				read--
				lost += m.Lost
			}
			if read+lost == n {
				return
			}
		}
	}()
	<-done
	if lost == 0 || read+lost != n {
		t.Errorf("%d lines were read and %d lost, of %d", read, lost, n)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
