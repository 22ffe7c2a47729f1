package compactor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"vigil/internal/kv"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		mode, retention string
		want            Policy
	}{
		{"", "", Policy{Mode: Periodic}},
		{"periodic", "0", Policy{Mode: Periodic}},
		{"periodic", "1", Policy{Mode: Periodic, Period: time.Hour}},
		{"", "72", Policy{Mode: Periodic, Period: 72 * time.Hour}},
		{"periodic", "5m30s", Policy{Mode: Periodic, Period: 330 * time.Second}},
		{"periodic", "0s", Policy{Mode: Periodic}},
		{"periodic", "-5m", Policy{Mode: Periodic}},
		{"revision", "1000", Policy{Mode: Revision, Revisions: 1000}},
		{"revision", "0", Policy{Mode: Revision}},
		{"revision", "", Policy{Mode: Revision}},
	} {
		p, err := Parse(c.mode, c.retention)
		if err != nil || p != c.want {
			t.Errorf("Parse(%q, %q): %+v, %v, want %+v", c.mode, c.retention, p, err, c.want)
		}
		if on := p.Period > 0 || p.Revisions > 0; p.Enabled() != on {
			t.Errorf("Parse(%q, %q) is enabled: %v", c.mode, c.retention, p.Enabled())
		}
	}
	for _, c := range []struct{ mode, retention, want string }{
		{"hourly", "1", `"hourly" is neither "periodic" nor "revision"`},
		{"periodic", "-1", "from 0"},
		{"periodic", "9999999", "2562047"},
		{"periodic", "soon", "duration such as"},
		{"periodic", "5us", "less than 10µs"},
		{"revision", "-1", "whole number from 0"},
		{"revision", "5m", "whole number from 0"},
		{"revision", "99999999999999999999", "whole number from 0"},
	} {
		if p, err := Parse(c.mode, c.retention); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("Parse(%q, %q): %+v, %v, want %q", c.mode, c.retention, p, err, c.want)
		}
	}
}

// bench is a store at which one revision is written each minute from minute 0 on, and a member.
type bench struct {
	began     time.Time
	mu        sync.Mutex
	leads     bool
	err       error
	compacted []string // minute:revision
}

func (b *bench) minute() int64   { return int64(time.Since(b.began) / time.Minute) }
func (b *bench) Revision() int64 { return b.minute() + 1 }
func (b *bench) Compact(_ context.Context, rev int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil || errors.Is(b.err, kv.ErrCompacted) {
		b.compacted = append(b.compacted, fmt.Sprintf("%d:%d", b.minute(), rev))
	}
	return b.err
}

func (b *bench) leading() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.leads
}

// run lets a compactor work in fake time; steps[i] happens after a number of minutes.
func run(t *testing.T, p Policy, end int, steps map[int]func(*bench)) (*bench, string) {
	t.Helper()
	b := &bench{leads: true}
	var log bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		b.began = time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			Run(ctx, Config{Policy: p, Store: b, Leading: b.leading,
				Logger: slog.New(slog.NewTextHandler(&log, nil))})
		}()
		// Half a minute off, so that what a step does lies between two ticks.
		time.Sleep(30 * time.Second)
		for minute := range end {
			if f := steps[minute]; f != nil {
				b.mu.Lock()
				f(b)
				b.mu.Unlock()
			}
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		cancel()
		<-done
	})
	return b, log.String()
}

// The first compaction comes after a period, at what was the newest revision in the beginning; then
// one comes an interval after the other, at what was the newest revision a period and a sample ago.
func TestPeriodic(t *testing.T) {
	for _, c := range []struct {
		period time.Duration
		end    int
		want   []string
	}{
		{10 * time.Minute, 42, []string{"10:1", "20:10", "30:20", "40:30"}},
		{time.Hour, 200, []string{"60:1", "120:55", "180:115"}},
		{2 * time.Hour, 310, []string{"120:1", "180:55", "240:115", "300:175"}},
	} {
		b, log := run(t, Policy{Mode: Periodic, Period: c.period}, c.end, nil)
		if !slices.Equal(b.compacted, c.want) {
			t.Errorf("%v: %q, want %q", c.period, b.compacted, c.want)
		}
		for _, want := range []string{`msg="starting auto periodic compaction" revision=1 compact-period=`, `msg="completed auto periodic compaction"`, "took="} {
			if !strings.Contains(log, want) {
				t.Errorf("%v: %q is not in\n%s", c.period, want, log)
			}
		}
	}
}

// What was noted while another member led is used as soon as this one does.
func TestPeriodicFollower(t *testing.T) {
	b, _ := run(t, Policy{Mode: Periodic, Period: time.Hour}, 200, map[int]func(*bench){
		0:   func(b *bench) { b.leads = false },
		100: func(b *bench) { b.leads = true },
		110: func(b *bench) { b.leads = false },
		190: func(b *bench) { b.leads = true },
	})
	// Ticks are at the minutes that 6 divides.
	if want := []string{"102:37", "192:127"}; !slices.Equal(b.compacted, want) {
		t.Errorf("%q, want %q", b.compacted, want)
	}
}

func TestPeriodicFailure(t *testing.T) {
	b, log := run(t, Policy{Mode: Periodic, Period: 10 * time.Minute}, 40, map[int]func(*bench){
		9:  func(b *bench) { b.err = errors.New("no leader") },
		13: func(b *bench) { b.err = nil },
		20: func(b *bench) { b.err = kv.ErrCompacted },
		30: func(b *bench) { b.err = nil },
	})
	// Tried again at each tick with what is old enough by then; what another one did counts.
	if want := []string{"14:4", "24:14", "34:24"}; !slices.Equal(b.compacted, want) {
		t.Errorf("%q, want %q\n%s", b.compacted, want, log)
	}
	if n := strings.Count(log, `msg="failed auto periodic compaction"`); n != 4 ||
		!strings.Contains(log, `retry-interval=1m0s error="no leader"`) {
		t.Errorf("%d failures\n%s", n, log)
	}
}

func TestRevision(t *testing.T) {
	b, log := run(t, Policy{Mode: Revision, Revisions: 10}, 42, map[int]func(*bench){
		16: func(b *bench) { b.leads = false },
		27: func(b *bench) { b.leads, b.err = true, errors.New("no leader") },
		31: func(b *bench) { b.err = nil },
	})
	// At minute 5 there are 6 revisions, at minute 10 the eleventh is written.
	if want := []string{"10:1", "15:6", "35:26", "40:31"}; !slices.Equal(b.compacted, want) {
		t.Errorf("%q, want %q\n%s", b.compacted, want, log)
	}
	for _, want := range []string{`msg="starting auto revision compaction" revision=1 revision-compaction-retention=10`,
		`msg="failed auto revision compaction" revision=21 revision-compaction-retention=10 retry-interval=5m0s error="no leader"`} {
		if !strings.Contains(log, want) {
			t.Errorf("%q is not in\n%s", want, log)
		}
	}
}

// A store to which nothing is written is left alone.
func TestQuiet(t *testing.T) {
	for _, p := range []Policy{{Mode: Periodic, Period: 10 * time.Minute},
		{Mode: Revision, Revisions: 1}} {
		synctest.Test(t, func(t *testing.T) {
			still := &still{}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Hour)
			defer cancel()
			Run(ctx, Config{Policy: p, Store: still, Leading: func() bool { return true }})
			if still.calls != 1 {
				t.Errorf("%+v: %d compactions", p, still.calls)
			}
		})
	}
}

// still is a store at which nothing happens.
type still struct{ calls int }

func (s *still) Revision() int64 { return 7 }
func (s *still) Compact(context.Context, int64) error {
	s.calls++
	return nil
}

func TestOff(t *testing.T) {
	Run(t.Context(), Config{Policy: Policy{Mode: Periodic}}) // returns
}
