package logline

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

type texts struct{ Name string }

// TestBoundedLine logs texts of any size in every way that a line can hold one.
func TestBoundedLine(t *testing.T) {
	huge := map[string]string{
		"plain":   strings.Repeat("x", 256<<10),
		"escaped": strings.Repeat("\x00", 256<<10),
		"runes":   strings.Repeat("€", 64<<10),
		"invalid": strings.Repeat("\xff", 64<<10),
		"delete":  strings.Repeat("\x7f", 64<<10),
		"format":  strings.Repeat("\U000e0041", 64<<10),
		"quotes":  strings.Repeat(`"\`, 64<<10),
		"lines":   strings.Repeat("\n", 64<<10),
	}
	const rest = 1 << 10
	for kind, s := range huge {
		many := make([]any, 0, 2000)
		for i := range 1000 {
			many = append(many, fmt.Sprint(i), s)
		}
		for name, log := range map[string]func(*slog.Logger){
			"message":  func(l *slog.Logger) { l.Warn(s) },
			"key":      func(l *slog.Logger) { l.Warn("m", s, 1) },
			"string":   func(l *slog.Logger) { l.Warn("m", "k", s) },
			"error":    func(l *slog.Logger) { l.Warn("m", "k", errors.New(s)) },
			"stringer": func(l *slog.Logger) { l.Warn("m", "k", &stringer{s}) },
			"list":     func(l *slog.Logger) { l.Warn("m", "k", []string{s, s, s}) },
			"struct":   func(l *slog.Logger) { l.Warn("m", "k", texts{s}) },
			"bytes":    func(l *slog.Logger) { l.Warn("m", "k", []byte(s)) },
			"function": func(l *slog.Logger) { l.Warn("m", "k", []any{s, func() {}}) },
			"group": func(l *slog.Logger) {
				l.Warn("m",
					slog.Group("g", "a", s, slog.Group("h", "b", s)))
			},
			"group name": func(l *slog.Logger) { l.Warn("m", slog.Group(s, "a", 1)) },
			"many":       func(l *slog.Logger) { l.Warn("m", many...) },
			"with":       func(l *slog.Logger) { l.With("k", s).Warn("m") },
			"with group": func(l *slog.Logger) { l.WithGroup(s).Warn("m", "k", s) },
			"at error":   func(l *slog.Logger) { l.Error(s, "k", s, "k2", errors.New(s)) },
		} {
			for _, console := range []bool{false, true} {
				h, out := testHandler(console)
				log(slog.New(h))
				// The last attribute begins below MaxFields. The rest is what the line has besides
				// texts.
				if most := 3*MaxErrorString + MaxFields + rest; out.Len() > most {
					t.Errorf("%s text as %s: a line of %d bytes, more than %d", kind, name,
						out.Len(), most)
				}
				if strings.Count(out.String(), "\n") != 1 {
					t.Errorf("%s text as %s: %d lines", kind, name,
						strings.Count(out.String(), "\n"))
				}
				if !console && !json.Valid(out.Bytes()) {
					t.Errorf("%s text as %s: no JSON: %.200q", kind, name, out)
				}
			}
		}
	}
	// What is cut says so, and what is not is whole.
	h, out := testHandler(false)
	slog.New(h).Warn("m", "cut", strings.Repeat("€", 1000), "whole", strings.Repeat("w", MaxString))
	var m struct{ Cut, Whole string }
	if err := json.Unmarshal(out.Bytes(), &m); err != nil {
		t.Fatal(err)
	}
	if want := strings.Repeat("€", MaxString/3) + "... (3000 bytes)"; m.Cut != want ||
		len(m.Whole) != MaxString {
		t.Errorf("cut to %q, whole to %d bytes", m.Cut, len(m.Whole))
	}
}

// TestBoundedNumber logs from one place without end, and from others in between.
func TestBoundedNumber(t *testing.T) {
	h, out := testHandler(false)
	now := time.Unix(1e9, 0)
	h.sites = newSites()
	h.sites.now = func() time.Time { return now }
	log := slog.New(h).With("part", "test")
	for range 60_000 { // a minute
		log.Warn("again", "name", "x")
		now = now.Add(time.Millisecond)
	}
	log.Debug("seen anyway")
	log.Info("another place")
	log.Error("a place of its own")
	if n, most := strings.Count(out.String(), `"again"`),
		MaxBurst+60*MaxRate; n < most-1 || n > most+1 {
		t.Errorf("%d lines, not %d", n, most)
	}
	for _, want := range []string{"seen anyway", "another place", "a place of its own",
		`"lines-left-out":99}`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s", want)
		}
	}
	// A wrapper logs for many places, and texts in it that a client chooses make no place of their
	// own.
	out.Reset()
	wrap := func(msg string) { log.Warn(msg) }
	for i := range 10_000 {
		wrap(fmt.Sprint("the one begins the same and ends as ", i))
		wrap("the other")
	}
	if n := strings.Count(out.String(), "the one"); n != MaxBurst {
		t.Errorf("%d lines of the one", n)
	}
	if n := strings.Count(out.String(), "the other"); n != MaxBurst {
		t.Errorf("%d lines of the other", n)
	}
	// Places are not kept without end.
	for i := range 10 * maxSites {
		wrap(fmt.Sprint(i, " is at the beginning"))
	}
	if n := len(h.sites.mu.credits); n > maxSites+1 {
		t.Errorf("%d places are kept", n)
	}
	// Nor are later ones held to account for them.
	now = now.Add(time.Minute)
	out.Reset()
	for i := range MaxBurst {
		wrap(fmt.Sprint(i, " is another beginning"))
		wrap("a place that has logged nothing")
	}
	if n := strings.Count(out.String(), "a place that has"); n != MaxBurst {
		t.Errorf("%d lines of a place that came after many", n)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				log.Info("at once")
			}
		})
	}
	wg.Wait()
}
