// Package load drives a server: in a closed loop, where each of a number of slots sends its next
// request when the last one is answered and throughput is the figure, or in an open loop, where
// requests are due at fixed times whatever the server does and latency is counted from the time a
// request was due, so that a stall is counted for every request it delayed.
//
// Every answer is checked by the operation that asked; the first wrong one ends the run with an
// error.
package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"vigil/tools/bench/grpcconn"
	"vigil/tools/bench/hist"
)

// Op makes requests, one at a time, and checks their answers. It belongs to one slot, so its
// methods are never called concurrently.
type Op interface {
	// Next appends the next request's message to buf and returns it with its method; false means
	// there is nothing more to ask.
	Next(buf []byte) (method string, msg []byte, more bool)
	// Check judges the answer to the last request. The message is valid until it returns.
	Check(msg []byte) error
}

// Conns is a set of connections to one server.
type Conns []*grpcconn.Conn

// Dial opens n connections.
func Dial(ctx context.Context, addr string, n int, o grpcconn.Options) (Conns, error) {
	var cs Conns
	for range n {
		c, err := grpcconn.Dial(ctx, addr, o)
		if err != nil {
			cs.Close()
			return nil, fmt.Errorf("connection %d: %w", len(cs), err)
		}
		cs = append(cs, c)
	}
	return cs, nil
}

// Close closes all connections and waits for their readers.
func (cs Conns) Close() {
	var wg sync.WaitGroup
	for _, c := range cs {
		wg.Go(c.Close)
	}
	wg.Wait()
}

// Window is the part of a run that counts.
type Window struct {
	// Warmup comes before, Duration is its length. With no Duration the whole run counts, until the
	// operations have nothing more to ask.
	Warmup, Duration time.Duration
	// Begin and End, if given, are called at its ends, to read meters.
	Begin, End func() error
}

// Result is what a run measured.
type Result struct {
	// Ops is the number of answers inside the window, Elapsed its real length.
	Ops     int64
	Elapsed time.Duration
	// All is the number of answers of the whole run.
	All int64
	// Latency has the latencies of the answers inside the window.
	Latency hist.Hist
	// Late is how late the open loop's own pacer sent requests. It is part of Latency.
	Late hist.Hist
	// Refused is how many requests of an open loop were refused under too much load; they are not
	// in Ops, and count as RefusedLatency in Latency.
	Refused int64
	// Offered is the rate an open loop was asked for.
	Offered float64
}

// PerSecond returns the rate of answers.
func (r *Result) PerSecond() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(r.Ops) / r.Elapsed.Seconds()
}

// closed is the state of one closed-loop run.
type closed struct {
	base     time.Time
	from, to atomic.Int64 // the window, nanoseconds since base
	stopping atomic.Bool
	failed   chan struct{}
	slots    sync.WaitGroup
	once     sync.Once
	err      error // written once before failed is closed
}

func (r *closed) fail(err error) {
	r.once.Do(func() {
		r.err = err
		r.stopping.Store(true)
		close(r.failed)
	})
}

// lane is what the slots of one connection share; it belongs to the connection's reader.
type lane struct {
	run  *closed
	conn *grpcconn.Conn
	ops  int64
	all  int64
	lat  hist.Hist
}

// slot is one request in flight.
type slot struct {
	*lane
	stream   uint32 // of a slot whose requests go to one stream; 0 if each is a call
	op       Op
	buf      []byte
	began    time.Time
	answers  int
	checkErr error
	method   string
}

func (s *slot) Message(at time.Time, msg []byte) {
	s.answers++
	if s.checkErr == nil {
		s.checkErr = s.op.Check(msg)
	}
	if s.stream != 0 {
		s.recordAnswer(at)
	}
}

// recordAnswer takes the answer on a stream, and sends the next request there.
func (s *slot) recordAnswer(at time.Time) {
	if s.checkErr == nil && s.answers == 1 {
		s.countAnswer(at)
		if !s.run.stopping.Load() && s.issueRequest(at) {
			return
		}
	}
	if err := s.conn.CloseSend(s.stream); err != nil { // End follows
		s.run.fail(err)
	}
}

// countAnswer records an answer.
func (s *slot) countAnswer(at time.Time) {
	run := s.run
	s.all++
	if since := int64(at.Sub(run.base)); since >= run.from.Load() && since < run.to.Load() {
		s.ops++
		s.lat.Record(at.Sub(s.began))
	}
}

func (s *slot) End(at time.Time, st grpcconn.Status) {
	run := s.run
	err := st.Err()
	if s.stream != 0 && err == nil && s.checkErr == nil && (s.answers == 1 || s.method == "") {
		run.slots.Done()
		return
	}
	switch {
	case err != nil:
	case s.answers != 1:
		err = fmt.Errorf("%d answers to one request", s.answers)
	default:
		err = s.checkErr
	}
	if err != nil {
		run.fail(fmt.Errorf("%s: %w", s.method, err))
		run.slots.Done()
		return
	}
	s.countAnswer(at)
	if run.stopping.Load() || !s.issueRequest(at) {
		run.slots.Done()
	}
}

// issueRequest sends the slot's next request; false means there is none.
func (s *slot) issueRequest(at time.Time) bool {
	method, msg, more := s.op.Next(s.buf[:0])
	if !more {
		return false
	}
	if msg == nil {
		msg = []byte{}
	}
	s.buf, s.method, s.began, s.answers = msg, method, at, 0
	if s.stream != 0 {
		if err := s.conn.Send(s.stream, msg, false); err != nil {
			s.run.fail(err)
			return false
		}
		return true
	}
	if _, err := s.conn.Open(method, s, msg, true); err != nil {
		s.run.fail(err)
		return false
	}
	return true
}

const never = int64(1) << 62

// Closed runs inflight slots on each connection, with the operations that newOp gives them, until
// the window has passed, the operations end, or ctx does, which is an error.
func Closed(ctx context.Context, conns Conns, inflight int, w Window,
	newOp func(slot int) Op) (*Result, error) {
	return runClosed(ctx, conns, inflight, "", w, newOp)
}

// ClosedStreams is Closed with requests of a method that has a stream: each slot has its own
// stream, on which it sends its next request after the previous answer.
func ClosedStreams(ctx context.Context, conns Conns, inflight int, method string, w Window,
	newOp func(slot int) Op) (*Result, error) {
	return runClosed(ctx, conns, inflight, method, w, newOp)
}

func runClosed(ctx context.Context, conns Conns, inflight int, stream string, w Window,
	newOp func(slot int) Op) (*Result, error) {
	r := &closed{base: time.Now(), failed: make(chan struct{})}
	if w.Duration > 0 {
		r.from.Store(never)
	}
	r.to.Store(never)
	lanes := make([]*lane, len(conns))
	if w.Duration <= 0 && w.Begin != nil {
		if err := w.Begin(); err != nil {
			return nil, err
		}
	}
	n := 0
	for i, c := range conns {
		l := &lane{run: r, conn: c}
		lanes[i] = l
		// All slots exist before the first request, because the reader uses them.
		slots := make([]*slot, inflight)
		for j := range slots {
			slots[j] = &slot{lane: l, op: newOp(n)}
			n++
		}
		r.slots.Add(inflight)
		for _, s := range slots {
			if stream != "" {
				var err error
				if s.stream, err = c.Open(stream, s, nil, false); err != nil {
					r.fail(err)
				}
			}
			switch {
			case s.issueRequest(time.Now()):
			case s.stream == 0:
				r.slots.Done()
			default:
				if err := c.CloseSend(s.stream); err != nil {
					r.fail(err)
				}
			}
		}
		if err := c.Flush(); err != nil {
			r.fail(err)
		}
	}
	elapsed, err := r.measureWindow(ctx, w)
	if err != nil {
		// The slots of a failed run end by themselves or with their connections.
		return nil, err
	}
	res := &Result{Elapsed: elapsed}
	for _, l := range lanes {
		res.Ops += l.ops
		res.All += l.all
		res.Latency.Merge(&l.lat)
	}
	return res, nil
}

// measureWindow sees the run through its window and until the last slot has its answer.
func (r *closed) measureWindow(ctx context.Context, w Window) (time.Duration, error) {
	ended := make(chan struct{})
	go func() { r.slots.Wait(); close(ended) }()
	var elapsed time.Duration
	if w.Duration > 0 {
		if err := r.sleep(ctx, w.Warmup, ended); err != nil {
			return 0, err
		}
		if w.Begin != nil {
			if err := w.Begin(); err != nil {
				return 0, err
			}
		}
		began := time.Now()
		r.from.Store(int64(began.Sub(r.base)))
		if err := r.sleep(ctx, w.Duration, ended); err != nil {
			return 0, err
		}
		end := time.Now()
		r.to.Store(int64(end.Sub(r.base)))
		elapsed = end.Sub(began)
		if w.End != nil {
			if err := w.End(); err != nil {
				return 0, err
			}
		}
		r.stopping.Store(true)
	}
	select {
	case <-ended:
	case <-ctx.Done():
		r.stopping.Store(true)
		return 0, ctx.Err()
	}
	select {
	case <-r.failed:
		return 0, r.err
	default:
	}
	if w.Duration <= 0 {
		elapsed = time.Since(r.base)
		if w.End != nil {
			if err := w.End(); err != nil {
				return 0, err
			}
		}
	}
	return elapsed, nil
}

// sleep lets d pass unless the run fails or ends before that.
func (r *closed) sleep(ctx context.Context, d time.Duration, ended <-chan struct{}) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-r.failed:
		return r.err
	case <-ended:
		select {
		case <-r.failed:
			return r.err
		default:
			return errors.New("the operations ended before the window did")
		}
	case <-ctx.Done():
		r.stopping.Store(true)
		return ctx.Err()
	}
}
