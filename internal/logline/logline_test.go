package logline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/slogtest"
	"time"
	"unicode"
	"unicode/utf8"

	"go.uber.org/zap/zapcore"
)

// lines keeps what is written.
type lines struct{ bytes.Buffer }

func (l *lines) write(_ zapcore.Level, line []byte) { l.Write(line) }

func testHandler(console bool) (*handler, *lines) {
	out := &lines{}
	return newHandler(slog.LevelDebug, console, &outputs{list: []output{out}}, nil), out
}

// TestSlog holds the handler against the contract of slog.
func TestSlog(t *testing.T) {
	h, out := testHandler(false)
	err := slogtest.TestHandler(h, func() (list []map[string]any) {
		for line := range bytes.Lines(out.Bytes()) {
			var m map[string]any
			if err := json.Unmarshal(line, &m); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if ts, ok := m["ts"]; ok {
				m[slog.TimeKey] = ts
			}
			list = append(list, m)
		}
		return list
	})
	if err != nil {
		t.Error(err)
	}
}

type stringer struct{ name string }

func (n *stringer) String() string { return n.name }

func TestLine(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678900000, time.UTC)
	record := func(msg string, args ...any) slog.Record {
		r := slog.NewRecord(at, slog.LevelWarn, msg, 0)
		r.Add(args...)
		return r
	}
	h, out := testHandler(false)
	for _, c := range []struct {
		record slog.Record
		want   string
	}{
		{record("hello"), `{"level":"warn","ts":"2026-01-02T03:04:05.6789Z","msg":"hello"}`},
		{record("a\"b\n<c>\x00\xff€", "k\\", "v"),
			`{"level":"warn","ts":"2026-01-02T03:04:05.6789Z","msg":"a\"b\n<c>\u0000\ufffd€","k\\":"v"}`},
		{record("", "d", 1500*time.Microsecond, "t", at, "e", errors.New("no"), "error", nil, "n",
			nil, "f", 1.5, "nan", math.NaN(), "b", true, "u", uint64(math.MaxUint64)),
			`{"level":"warn","ts":"2026-01-02T03:04:05.6789Z","msg":"","d":"1.5ms","t":"2026-01-02T03:04:05.6789Z","e":"no","n":null,"f":1.5,"nan":"NaN","b":true,"u":18446744073709551615}`},
		{record("", "list", []string{"a", "<b>"}, "map", map[string]int{"x": 1}, "nil",
			(*stringer)(nil), "fn", func() {}),
			`{"level":"warn","ts":"2026-01-02T03:04:05.6789Z","msg":"","list":["a","<b>"],"map":{"x":1},"nil":"!PANIC: runtime error: invalid memory address or nil pointer dereference","fn":"0x`},
		{record("", slog.Group("g", "a", 1, slog.Group("h", "b", 2)), slog.Group("", "c", 3),
			slog.Group("empty")),
			`{"level":"warn","ts":"2026-01-02T03:04:05.6789Z","msg":"","g":{"a":1,"h":{"b":2}},"c":3}`},
	} {
		out.Reset()
		if err := h.Handle(t.Context(), c.record); err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSuffix(out.String(), "\n"); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s\nwant %s", got, c.want)
		}
		if !json.Valid(out.Bytes()) {
			t.Errorf("no JSON: %s", out)
		}
	}
}

func TestConsole(t *testing.T) {
	h, out := testHandler(true)
	log := slog.New(h)
	log.Info("two\nlines")
	log.With("a", 1).Error("bad", "error", errors.New("no\nway"))
	for i, line := range strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n") {
		parts := strings.Split(line, "\t")
		want := [][]string{{"info", `two\nlines`}, {"error", "bad", `{"a":1,"error":"no\nway"}`}}[i]
		if _, err := time.Parse(timeFormat, parts[0]); err != nil || parts[1] != want[0] ||
			!strings.HasPrefix(parts[2], "logline/logline_test.go:") {
			t.Errorf("%q: %v", line, err)
		}
		if got := strings.Join(parts[3:], "\t"); got != strings.Join(want[1:], "\t") {
			t.Errorf("%q, want %q", got, want[1:])
		}
	}
}

// Below the level nothing is done, and a line costs no memory that is not used again.
//
//vigil:norace
func TestAllocations(t *testing.T) {
	h := newHandler(slog.LevelInfo, false,
		&outputs{list: []output{&stream{Writer: io.Discard}}}, nil)
	log := slog.New(h)
	if n := testing.AllocsPerRun(100, func() { log.Debug("x") }); n != 0 {
		t.Errorf("%v allocations for nothing", n)
	}
	// Under the race detector a sync.Pool drops some of its content at random, so the least of many
	// lines counts.
	least := math.Inf(1)
	for range 100 {
		least = min(least, testing.AllocsPerRun(1,
			func() { log.LogAttrs(t.Context(), slog.LevelInfo, "x", slog.Int("n", 1)) }))
	}
	if least > 5 {
		t.Errorf("%v allocations for a line", least)
	}
}

func TestConcurrent(t *testing.T) {
	h, out := testHandler(false)
	var wg sync.WaitGroup
	for i := range 8 {
		log := slog.New(h).With("writer", i)
		wg.Go(func() {
			for n := range 200 {
				log.Info(strings.Repeat("x", n), "n", n)
			}
		})
	}
	wg.Wait()
	count := 0
	for line := range bytes.Lines(out.Bytes()) {
		if count++; !json.Valid(line) {
			t.Fatalf("%q", line)
		}
	}
	if count != 1600 {
		t.Errorf("%d lines", count)
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one.log"), filepath.Join(dir, "two.log")
	l, err := Open(Config{Outputs: []string{one, two, one}})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(l.Handler())
	log.Info("first")
	if err := os.Rename(one, one+".1"); err != nil {
		t.Fatal(err)
	}
	log.Info("second")
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	log.Info("third")
	log.Debug("too quiet")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{one + ".1": "first second", one: "third",
		two: "first second third"} {
		if got := messages(t, path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if _, err := Open(Config{Outputs: []string{one,
		filepath.Join(dir, "no", "such.log")}}); err == nil ||
		!strings.Contains(err.Error(), "no/such.log") {
		t.Error(err)
	}
}

func messages(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range bytes.Lines(b) {
		var m struct{ Msg string }
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		out = append(out, m.Msg)
	}
	return strings.Join(out, " ")
}

// A file that is too large is replaced, and only so many old ones are kept.
func TestRotation(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "v.log")
	r, err := ParseRotation(`{"maxsize": 1, "maxbackups": 2}`)
	if err != nil {
		t.Fatal(err)
	}
	l, err := Open(Config{Outputs: []string{path}, Rotation: &r})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		l.queues[0].out.write(zapcore.InfoLevel,
			fmt.Appendf(nil, "{\"msg\":\"%d\",\"fill\":\"%s\"}\n", i, strings.Repeat("x", 600<<10)))
		if i == 4 {
			if err := l.Reopen(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := messages(t, path); got != "7" {
		t.Errorf("the file has %s", got)
	}
	// The old files are removed by a goroutine.
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		names, err := filepath.Glob(filepath.Join(dir, "v-*.log"))
		if err != nil {
			t.Fatal(err)
		}
		if len(names) == 2 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d old files", len(names))
		}
	}
	for _, bad := range []string{"", "{", `{"maxsize": "1"}`, `{"maxsize": -1}`, `{"size": 1}`} {
		if _, err := ParseRotation(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func FuzzString(f *testing.F) {
	f.Add("plain", "\x00\"\\\u2028")
	f.Fuzz(func(t *testing.T, key, value string) {
		h, out := testHandler(false)
		slog.New(h).Info(value, key, value)
		var m map[string]any
		if err := json.Unmarshal(out.Bytes(), &m); err != nil ||
			strings.Count(out.String(), "\n") != 1 {
			t.Fatalf("%q: %v", out, err)
		}
		if want := strings.ToValidUTF8(value, "\ufffd"); m["msg"] != want &&
			len(want) == len(value) {
			t.Errorf("%q came out as %q", value, m["msg"])
		}
	})
}

// TestConsoleIsSafe: no terminal acts on what a line for people says, and its fields stay JSON.
func TestConsoleIsSafe(t *testing.T) {
	const hostile = "\x1b[2J\u009b2J\x7f\x9b\r\u202e\u2028\U000e0041ü"
	h, out := testHandler(true)
	slog.New(h).Warn("a client said "+hostile, "error", errors.New(hostile), hostile,
		json.RawMessage(`"\u009b"`))
	line := strings.TrimSuffix(out.String(), "\n")
	for _, r := range line {
		if r != '\t' && !unicode.IsPrint(r) || r == utf8.RuneError {
			t.Errorf("%q in %q", r, line)
		}
	}
	_, fields, _ := strings.Cut(line, "\t{")
	var got map[string]string
	if err := json.Unmarshal([]byte("{"+fields), &got); err != nil {
		t.Fatalf("%v: %s", err, fields)
	}
	if want := strings.ToValidUTF8(hostile, "\ufffd"); got["error"] != want ||
		got[want] != "\u009b" {
		t.Errorf("%q", got)
	}
}
