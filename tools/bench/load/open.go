package load

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"vigil/tools/bench/grpcconn"
	"vigil/tools/bench/hist"

	"golang.org/x/sys/unix"
)

// maxOutstanding is how many unanswered requests an open loop lets pile up before it gives up.
const maxOutstanding = 200_000

// Pacer is an open loop that runs until it is stopped: requests are due at fixed intervals and go
// to the connections in turn. The run can be cut into phases; a request counts in the phase in
// which it was due, whenever its answer comes.
type Pacer struct {
	conns Conns
	rate  float64
	newOp func(slot int) Op
	// refusal says which errors are a server's way to say that it cannot keep up.
	refusal func(grpcconn.Status) bool

	stop   chan struct{}
	done   chan struct{} // closed when the pacing goroutine has ended
	failed chan struct{}
	once   sync.Once
	err    error // written once before failed is closed

	mu struct {
		sync.Mutex
		free        []*shot
		made        int
		outstanding int
		all         int64
		phase       *phase
		ended       bool // the pacing goroutine has ended
	}
}

// phase is a part of the run. It is guarded by the pacer's mu until whole is closed.
type phase struct {
	began, ended time.Time
	// before is the phase before this one until all its requests are sent, and paced reports that
	// all of this one are.
	before    *phase
	paced     bool
	sent, ops int64
	refused   int64 // part of ops
	lat, late hist.Hist
	whole     chan struct{} // closed when the phase is over and its last answer is there
}

func newPhase(now time.Time) *phase { return &phase{began: now, whole: make(chan struct{})} }

// endPacing records that all requests that were due before the phase are sent.
func (ph *phase) endPacing() {
	for q := ph.before; q != nil; q = q.before {
		q.paced = true
		q.settle()
	}
	ph.before = nil
}

func (ph *phase) settle() {
	if !ph.ended.IsZero() && ph.paced && ph.ops == ph.sent {
		close(ph.whole)
	}
}

// Timed is an Op that is told when its next request is due, before it makes it.
type Timed interface {
	Due(at time.Time)
}

// shot is one request of an open loop; it is used again when it is answered.
type shot struct {
	p        *Pacer
	phase    *phase
	op       Op
	buf      []byte
	due      time.Time
	method   string
	answers  int
	checkErr error
}

// RefusedLatency is what a refused request counts as in the latencies: a client that has to come
// back is worse off than one that waits.
const RefusedLatency = 10 * time.Second

// Refuses is a refusal function for servers under too much load.
func Refuses(s grpcconn.Status) bool {
	return strings.Contains(s.Message, "too many requests") ||
		strings.Contains(s.Message, "request timed out")
}

// Start begins sending rate requests a second. An error that refusal, which may be nil, accepts is
// counted as a refused request; every other one ends the run.
func Start(conns Conns, rate float64, newOp func(slot int) Op,
	refusal func(grpcconn.Status) bool) (*Pacer, error) {
	if rate <= 0 || len(conns) == 0 {
		return nil, fmt.Errorf("open loop of %v requests a second on %d connections",
			rate, len(conns))
	}
	p := &Pacer{conns: conns, rate: rate, newOp: newOp, refusal: refusal,
		stop: make(chan struct{}), done: make(chan struct{}), failed: make(chan struct{})}
	p.mu.phase = newPhase(time.Now())
	go p.sendOnSchedule()
	return p, nil
}

// sendOnSchedule sends. It holds its own thread and sleeps in the kernel, because the runtime's
// timers are a millisecond late on an idle processor.
func (p *Pacer) sendOnSchedule() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.mu.ended = true
		p.mu.phase.endPacing()
	}()
	// Without it the kernel may be 50 µs late, which would still be counted as lateness.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	start := time.Now()
	for i := 0; ; i++ {
		due := start.Add(time.Duration(float64(i) * float64(time.Second) / p.rate))
		for wait := time.Until(due); wait > 0; wait = time.Until(due) {
			ts := unix.NsecToTimespec(int64(min(wait, 20*time.Millisecond)))
			_ = unix.Nanosleep(&ts, nil) // woken early by a signal: the loop looks again
			select {
			case <-p.stop:
				return
			case <-p.failed:
				return
			default:
			}
		}
		select {
		case <-p.stop:
			return
		case <-p.failed:
			return
		default:
		}
		if err := p.sendOne(p.conns[i%len(p.conns)], due); err != nil {
			p.fail(err)
			return
		}
	}
}

func (p *Pacer) sendOne(c *grpcconn.Conn, due time.Time) error {
	m := &p.mu
	var s *shot
	m.Lock()
	if m.outstanding >= maxOutstanding {
		m.Unlock()
		return fmt.Errorf("%d requests are unanswered at %.0f requests/s", maxOutstanding, p.rate)
	}
	m.outstanding++
	if n := len(m.free); n > 0 {
		s, m.free = m.free[n-1], m.free[:n-1]
	} else {
		s = &shot{p: p, op: p.newOp(m.made)}
		m.made++
	}
	s.phase = m.phase
	for due.Before(s.phase.began) && s.phase.before != nil { // the pacer is late
		s.phase = s.phase.before
	}
	s.phase.endPacing()
	s.phase.sent++
	s.phase.late.Record(time.Since(due))
	m.Unlock()
	if timed, ok := s.op.(Timed); ok {
		timed.Due(due)
	}
	method, msg, more := s.op.Next(s.buf[:0])
	if !more {
		return errors.New("the operations of an open loop ended")
	}
	if msg == nil {
		msg = []byte{}
	}
	s.buf, s.method, s.due, s.answers, s.checkErr = msg, method, due, 0, nil
	if _, err := c.Open(method, s, msg, true); err != nil {
		return err
	}
	return c.Flush()
}

func (s *shot) Message(_ time.Time, msg []byte) {
	s.answers++
	if s.checkErr == nil {
		s.checkErr = s.op.Check(msg)
	}
}

func (s *shot) End(at time.Time, st grpcconn.Status) {
	p := s.p
	err := st.Err()
	refused := err != nil && p.refusal != nil && p.refusal(st)
	switch {
	case refused:
		err = nil
	case err != nil:
	case s.answers != 1:
		err = fmt.Errorf("%d answers to one request", s.answers)
	default:
		err = s.checkErr
	}
	if err != nil {
		p.fail(fmt.Errorf("%s: %w", s.method, err))
	}
	m := &p.mu
	m.Lock()
	defer m.Unlock()
	m.outstanding--
	if err != nil {
		return
	}
	s.phase.ops++
	if refused {
		s.phase.refused++
		s.phase.lat.Record(max(at.Sub(s.due), RefusedLatency))
	} else {
		m.all++
		s.phase.lat.Record(at.Sub(s.due))
	}
	s.phase.settle()
	m.free = append(m.free, s)
}

func (p *Pacer) fail(err error) {
	p.once.Do(func() {
		p.err = err
		close(p.failed)
	})
}

// startPhase ends the current phase and begins the next one.
func (p *Pacer) startPhase() *phase {
	m := &p.mu
	m.Lock()
	defer m.Unlock()
	old, now := m.phase, time.Now()
	m.phase = newPhase(now)
	m.phase.before = old
	old.ended = now
	if m.ended {
		m.phase.endPacing()
	}
	return old
}

// awaitResult waits for the last answer of a phase that is over.
func (p *Pacer) awaitResult(ctx context.Context, ph *phase) (*Result, error) {
	select {
	case <-ph.whole:
	case <-p.failed:
		return nil, p.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	// A loop that failed is over, also if a phase without a request looks whole.
	select {
	case <-p.failed:
		return nil, p.err
	default:
	}
	return &Result{Ops: ph.ops - ph.refused, Refused: ph.refused, All: ph.ops,
		Elapsed: ph.ended.Sub(ph.began), Latency: ph.lat, Late: ph.late, Offered: p.rate}, nil
}

// Phase begins a phase, lets during run, ends the phase and returns its measurements. What
// came before is dropped.
func (p *Pacer) Phase(ctx context.Context, during func() error) (*Result, error) {
	p.startPhase()
	if err := during(); err != nil {
		return nil, err
	}
	return p.awaitResult(ctx, p.startPhase())
}

// Wait lets d pass, unless the loop fails before.
func (p *Pacer) Wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-p.failed:
		return p.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Failed returns a channel that is closed when a request has failed.
func (p *Pacer) Failed() <-chan struct{} { return p.failed }

// Stop ends the sending, waits for the answers of the current phase and returns how many requests
// were answered in all.
func (p *Pacer) Stop(ctx context.Context) (int64, error) {
	close(p.stop)
	<-p.done
	if _, err := p.awaitResult(ctx, p.startPhase()); err != nil {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.all, nil
}
