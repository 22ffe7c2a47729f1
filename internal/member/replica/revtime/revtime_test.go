package revtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"vigil/internal/kv"
	"vigil/internal/state/fsm"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
	"vigil/internal/vfs/memfs"
)

// member is the pipeline of a member with a store, in fake time.
type member struct {
	t       *testing.T
	s       *Stamper
	times   *Times
	store   *mvcc.Store
	log     bytes.Buffer
	ahead   time.Duration // of the clock
	term    uint64
	index   uint64
	lineare error
	stamps  []string
}

func (m *member) Linearize(context.Context) error { return m.lineare }

func (m *member) ReadStore(_ context.Context, read func(*mvcc.Store) error) error {
	return read(m.store)
}

func (m *member) CheckUser(context.Context) error { return nil }

func (m *member) clock() time.Time { return time.Now().Add(m.ahead) }

// put stamps a group, applies a put with its time, and notes it in seconds since the beginning.
func (m *member) put() {
	m.t.Helper()
	group := fsm.AppendHeader(nil)
	fsm.PutHeader(group, fsm.GroupHeader{})
	m.s.StampGroup(m.term, group)
	h, err := fsm.ParseHeader(group)
	if err == nil {
		err = m.store.Writer().SetTime(h.Time)
	}
	if err == nil {
		_, err = m.store.Writer().Put(&kv.PutRequest{Key: []byte("k")}, nil)
	}
	m.index++
	if err == nil {
		_, err = m.store.Writer().Commit(history.Applied{Term: 1, Index: m.index})
	}
	if err != nil {
		m.t.Fatal(err)
	}
	m.stamps = append(m.stamps, fmt.Sprint(float64(h.Time-epoch)/1000))
}

// epoch is the begin of fake time.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()

// run lets a member work in fake time.
func run(t *testing.T, steps func(m *member)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := &member{t: t, term: 5, index: 1}
		log, err := history.Create(history.Options{FS: memfs.New(), Dir: "h"},
			history.Applied{Term: 1, Index: 1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if m.store, err = mvcc.Open(log, mvcc.Options{}); err != nil {
			t.Fatal(err)
		}
		m.s = NewStamper(m.clock, m.store.NewestTime,
			slog.New(slog.NewTextHandler(&m.log, &slog.HandlerOptions{Level: slog.LevelWarn})))
		m.times = New(m, m, m.clock)
		steps(m)
		m.store.Close()
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
}

func (m *member) expect(want string) {
	m.t.Helper()
	if got := strings.Join(m.stamps, " "); got != want {
		m.t.Errorf("the times are %s, want %s", got, want)
	}
}

// Times are rounded up, so that a clock which is read later is not before them.
func TestTimesAreRoundedUp(t *testing.T) {
	run(t, func(m *member) {
		m.put()
		time.Sleep(time.Nanosecond)
		m.put()
		time.Sleep(time.Millisecond - time.Nanosecond)
		m.put()
		time.Sleep(1000 * time.Second)
		m.put()
		m.expect("0 0.001 0.001 1000.001")
		if m.log.Len() > 0 {
			t.Errorf("log: %s", &m.log)
		}
	})
}

// A clock that is a little behind has no effect until it has passed the newest time. One that is
// far behind is reported once, and believed when it stays there.
func TestClockThatGoesBack(t *testing.T) {
	run(t, func(m *member) {
		elect := func(ahead time.Duration) { m.term, m.ahead = m.term+1, ahead }
		m.ahead = time.Hour
		m.put() // 3600
		elect(time.Hour - 5*time.Second)
		time.Sleep(time.Second)
		m.put() // it is behind by 4 s
		time.Sleep(5 * time.Second)
		m.put() // 3601
		elect(0)
		for range 3 {
			m.put() // held
			time.Sleep(10 * time.Second)
		}
		m.ahead = time.Hour // it is corrected before it counts
		m.put()
		m.ahead = 0
		for range 6 {
			m.put()
			time.Sleep(10 * time.Second)
		}
		m.put() // believed
		time.Sleep(time.Second)
		m.put()
		m.expect("3600 3596 3601 3601 3601 3601 3636 3636 3636 3636 3636 3636 3636 96 97")
		log := m.log.String()
		if behind, set := strings.Count(log, "is behind the newest time"),
			strings.Count(log, "jumped"); behind != 2 || set != 3 {
			t.Errorf("%d lines about a clock that is behind, %d about one that jumped:\n%s",
				behind, set, log)
		}
		if strings.Count(log, "correcting times") != 1 {
			t.Errorf("log:\n%s", log)
		}
		// What was made before counts as made until then.
		spans, err := m.times.Spans(t.Context(), []int64{2, 10, 15, 16})
		if want := fmt.Sprintf("[{0 %d} {0 %d} {%d %d} {%d %d}]", epoch+96_000, epoch+96_000,
			epoch+95_999, epoch+96_000, epoch+96_999, epoch+97_000); fmt.Sprint(spans) != want ||
			err != nil {
			t.Errorf("spans %v, want %s, %v", spans, want, err)
		}
	})
}

func TestRevisionAt(t *testing.T) {
	run(t, func(m *member) {
		check := func(sec float64, want string) {
			t.Helper()
			rev, err := m.times.RevisionAt(t.Context(), epoch+int64(1000*sec), false)
			got := fmt.Sprint(rev)
			var e *kv.TimeError
			if errors.As(err, &e) {
				got = fmt.Sprintf("error %d %d %d %v %v", e.Reason, e.Bound-epoch, e.Revision,
					errors.Is(err, kv.ErrCompacted), errors.Is(err, kv.ErrFutureRev))
			} else if err != nil {
				got = err.Error()
			}
			if got != want {
				t.Errorf("at %v s: %s, want %s", sec, got, want)
			}
		}
		check(0, fmt.Sprintf("error %d %d 0 false false", kv.NoTimes, -epoch))
		for range 4 {
			time.Sleep(time.Second)
			m.put()
		}
		time.Sleep(10*time.Second + 500*time.Millisecond) // 14.5 s
		check(0.999, fmt.Sprintf("error %d 1000 0 false false", kv.TimeBeforeFirst))
		check(1, "2")
		check(1.999, "2")
		check(2, "3")
		check(14, "5")
		check(19, "5")
		check(20, fmt.Sprintf("error %d 14500 0 false true", kv.TimeInFuture))
		if _, err := m.store.Writer().Compact(4); err != nil {
			t.Fatal(err)
		}
		if _, err := m.store.Writer().Commit(history.Applied{Term: 1, Index: m.index}); err != nil {
			t.Fatal(err)
		}
		check(2.5, fmt.Sprintf("error %d 3000 3 true false", kv.TimeCompacted))
		check(3, "4")
		m.lineare = kv.ErrTimeout
		check(3, kv.ErrTimeout.Error())
		if _, err := m.times.Spans(t.Context(), []int64{4}); !errors.Is(err, kv.ErrTimeout) {
			t.Error(err)
		}
		m.lineare = nil
		spans, err := m.times.Spans(t.Context(), []int64{4, 5, 6})
		if want := fmt.Sprintf("[{%d %d} {%d %d} {%d 0}]", epoch+2999, epoch+3000, epoch+3999,
			epoch+4000, epoch+3999); fmt.Sprint(spans) != want || err != nil {
			t.Errorf("spans %v, want %s, %v", spans, want, err)
		}
	})
}
