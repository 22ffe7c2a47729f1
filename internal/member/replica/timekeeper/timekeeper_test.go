package timekeeper

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
	"vigil/internal/state/cluster"
	"vigil/internal/state/fsm"
	"vigil/internal/state/timeline"
)

// member is the pipeline and the raft node of a member that applies at once what it proposes.
type member struct {
	mu      sync.Mutex
	t       *Timekeeper
	rev     int64
	term    uint64
	level   uint64
	ahead   time.Duration // of the clock
	err     error
	lineare error
	compact int64
	applied []kv.TimeRequest
}

func (m *member) change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

func (m *member) Header() kv.Header {
	m.mu.Lock()
	defer m.mu.Unlock()
	return kv.Header{Revision: m.rev}
}

func (m *member) LeadTerm() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.term
}

func (m *member) Membership() *cluster.State {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, err := cluster.Initial("t", []cluster.Member{{Name: "a", PeerURLs: []string{"http://a:1"}}})
	if err == nil {
		s, _, err = s.Change(cluster.Change{Op: cluster.SetAttributes, Member: cluster.Member{ID: s.IDs()[0], Name: "a", Level: m.level}})
	}
	if err != nil {
		panic(err)
	}
	return s
}

func (m *member) Linearize(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lineare
}

func (m *member) compactRevision() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.compact
}

func (m *member) CheckUser(context.Context) error { return nil }

func (m *member) Propose(_ context.Context, r *fsm.Request) (fsm.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return fsm.Result{}, m.err
	}
	next, _, err := m.t.applied.Load().Add(r.Time, m.rev, 0)
	if err != nil {
		return fsm.Result{}, err
	}
	c := *r.Time
	c.Marks = slices.Clone(c.Marks)
	m.applied = append(m.applied, c)
	m.t.Follow(next)
	return fsm.Result{}, nil
}

// run lets a timekeeper work in fake time, in which steps change the member.
func run(t *testing.T, steps func(m *member, sleep func(time.Duration))) (*member, string) {
	t.Helper()
	m := &member{rev: 1, term: 5, level: fsm.Level}
	var log bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		m.t = New(Options{Pipeline: m, Raft: m, Access: m, CompactRevision: m.compactRevision, Interval: DefaultInterval, RequestTimeout: time.Second,
			Clock: func() time.Time {
				m.mu.Lock()
				defer m.mu.Unlock()
				return time.Now().Add(m.ahead)
			},
			Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))}, &timeline.State{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			m.t.Run(ctx)
		}()
		// Between two looks.
		time.Sleep(DefaultInterval / 2)
		steps(m, func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		})
		cancel()
		<-done
	})
	return m, log.String()
}

// epoch is the begin of fake time.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()

// text has the marks of all accepted requests, with times in seconds since the beginning.
func (m *member) text() string {
	var b strings.Builder
	for _, r := range m.applied {
		fmt.Fprintf(&b, "%d:", r.Term)
		if r.Back {
			b.WriteString("back")
		}
		for _, k := range r.Marks {
			fmt.Fprintf(&b, " %d@%d", k.Revision, (k.Time-epoch)/1000)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// Marks are proposed while revisions grow and not otherwise, and a write after an idle time has a narrow span.
func TestMarks(t *testing.T) {
	m, log := run(t, func(m *member, sleep func(time.Duration)) {
		sleep(100 * time.Second) // nothing is written
		m.change(func() { m.rev = 2 })
		sleep(time.Second) // the look at 101 s
		m.change(func() { m.rev = 7 })
		sleep(time.Second)
		sleep(1000 * time.Second)
		m.change(func() { m.rev = 8 })
		sleep(time.Second)
		m.change(func() { m.err = errors.New("not now"); m.rev = 9 })
		sleep(time.Second)
		m.change(func() { m.err = nil; m.rev = 10 })
		sleep(time.Second)
	})
	want := "5: 1@100 2@101\n5: 7@102\n5: 7@1102 8@1103\n5: 9@1104 10@1105\n"
	if got := m.text(); got != want || log != "" {
		t.Errorf("marks\n%swant\n%slog: %s", got, want, log)
	}
	if m.t.Marks() != 4 {
		t.Errorf("%d requests are counted", m.t.Marks())
	}
}

// Only a leader proposes that has applied what earlier leaders have acknowledged, and only if all members know marks.
func TestWhoProposes(t *testing.T) {
	m, _ := run(t, func(m *member, sleep func(time.Duration)) {
		m.change(func() { m.rev, m.term = 2, 0 })
		sleep(10 * time.Second)
		m.change(func() { m.term, m.lineare = 6, kv.ErrTimeout })
		sleep(10 * time.Second)
		m.change(func() { m.lineare = nil })
		sleep(10 * time.Second)
		m.change(func() { m.term, m.rev = 9, 3 }) // it was not seen that revision 2 was still the newest
		sleep(time.Second)
	})
	if got, want := m.text(), "6: 2@21\n9: 3@31\n"; got != want {
		t.Errorf("marks\n%swant\n%s", got, want)
	}
}

// A clock that is a little behind is waited for. One that is far behind is reported once, and replaces later marks when it
// stays there.
func TestClockThatGoesBack(t *testing.T) {
	m, log := run(t, func(m *member, sleep func(time.Duration)) {
		m.change(func() { m.rev, m.ahead = 2, time.Hour })
		sleep(time.Second) // the look at 1 s
		elect := func(term uint64, rev int64, ahead time.Duration) {
			m.change(func() { m.term = 0 })
			sleep(time.Second)
			m.change(func() { m.term, m.rev, m.ahead = term, rev, ahead })
		}
		elect(6, 3, time.Hour-5*time.Second)
		sleep(5 * time.Second)
		elect(7, 4, 0)
		sleep(30 * time.Second)
		// It is corrected before it counts.
		m.change(func() { m.ahead = time.Hour })
		sleep(time.Second)
		m.change(func() { m.rev, m.ahead = 5, 0 })
		sleep(59 * time.Second)
		m.change(func() { m.rev = 6 })
		sleep(3 * time.Second)
		m.change(func() { m.rev = 7 })
		sleep(time.Second)
	})
	want := "5: 2@3601\n6: 3@3602\n7: 4@3639\n7:back 6@100\n7: 6@101 7@102\n"
	if got := m.text(); got != want {
		t.Errorf("marks\n%swant\n%s", got, want)
	}
	if behind, set := strings.Count(log, "is behind the newest time"), strings.Count(log, "was set"); behind != 2 || set != 2 {
		t.Errorf("%d lines about a clock that is behind, %d about one that was set:\n%s", behind, set, log)
	}
	if strings.Count(log, "replacing times") != 1 {
		t.Errorf("log:\n%s", log)
	}
	if at, _ := m.t.applied.Load().First(); at.Revision != 6 {
		t.Errorf("the first mark is of revision %d: those of the wrong hour must be gone", at.Revision)
	}
}

func TestRevisionAt(t *testing.T) {
	_, _ = run(t, func(m *member, sleep func(time.Duration)) {
		at := func(sec float64) string {
			rev, err := m.t.RevisionAt(t.Context(), epoch+int64(1000*sec), false)
			var e *kv.TimeError
			switch {
			case errors.As(err, &e):
				return fmt.Sprintf("error %d %d %d %v %v", e.Reason, e.Bound-epoch, e.Revision, errors.Is(err, kv.ErrCompacted), errors.Is(err, kv.ErrFutureRev))
			case err != nil:
				return err.Error()
			}
			return fmt.Sprint(rev)
		}
		check := func(sec float64, want string) {
			t.Helper()
			if got := at(sec); got != want {
				t.Errorf("at %v s: %s, want %s", sec, got, want)
			}
		}
		check(0, fmt.Sprintf("error %d %d 0 false false", kv.NoTimes, -epoch))
		for rev := int64(2); rev <= 5; rev++ {
			m.change(func() { m.rev = rev })
			sleep(time.Second)
		}
		sleep(10 * time.Second) // 14.5 s
		check(0.9, fmt.Sprintf("error %d 1000 0 false false", kv.TimeBeforeFirst))
		check(1, "2")
		check(1.999, "2")
		check(2, "3")
		check(14, "5")
		check(19, "5")
		check(20, fmt.Sprintf("error %d 14500 0 false true", kv.TimeInFuture))
		m.change(func() { m.compact = 4 })
		check(2.5, fmt.Sprintf("error %d 3000 3 true false", kv.TimeCompacted))
		check(3, "4")
		m.change(func() { m.lineare = kv.ErrTimeout })
		check(3, kv.ErrTimeout.Error())
		m.change(func() { m.lineare = nil })
		spans, err := m.t.Spans(t.Context(), []int64{1, 2, 3, 5, 6})
		if got, want := fmt.Sprint(spans), fmt.Sprintf("[{0 %d} {0 %d} {%d %d} {%d %d} {%d 0}]", epoch+1000, epoch+1000, epoch+1000, epoch+2000, epoch+3000, epoch+4000, epoch+4000); got != want || err != nil {
			t.Errorf("spans %s, want %s, %v", got, want, err)
		}
	})
}
