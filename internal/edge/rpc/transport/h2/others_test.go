package h2

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
)

// costlySource is a source whose Fill waits for a while, as compression of a large message does.
type costlySource struct {
	*source
	filling, release chan struct{}
	once             sync.Once
}

func (s *costlySource) Start() {
	if s.Hold() {
		s.Notify(true)
	}
	s.begin <- s.source
}

func (s *costlySource) Fill(room int) {
	s.once.Do(func() {
		close(s.filling)
		<-s.release
	})
	s.source.Fill(room)
}

// costlySources is a handler whose requests to /costly are costly.
type costlySources struct {
	sources
	filling, release chan struct{}
}

func (h *costlySources) Begin(r *Request) Exchange {
	x := h.sources.Begin(r)
	if r.Path == "/costly" {
		return &costlySource{source: x.(*source), filling: h.filling, release: h.release}
	}
	return x
}

// receives waits until a stream has data.
func (c *client) receives(id uint32) {
	c.t.Helper()
	c.await("data", func(f http2.Frame) bool {
		d, ok := f.(*http2.DataFrame)
		return ok && d.StreamID == id && len(d.Data()) > 0
	})
}

// TestOthersOfCostlyStreams: a goroutine that wakes the streams of all clients, or writes the
// answers of all, does not fill a stream whose Fill takes long, also if others of its connection
// were woken before.
func TestOthersOfCostlyStreams(t *testing.T) {
	h := &costlySources{filling: make(chan struct{}), release: make(chan struct{})}
	h.made = make(chan *source, 10)
	slow := connectTo(t, func(c *client) Handler { h.site = c.site; return h }).greet()
	other, oh := connectSources(t)
	must(t, slow.open(1, "plain", false))
	plain := <-h.made
	must(t, slow.open(3, "costly", false))
	costly := <-h.made
	must(t, other.open(1, "x", false))
	quick := <-oh.made
	for _, s := range []*source{plain, costly, quick} {
		s.produced.Add(100)
	}
	WakeAll([]*Stream{&plain.Stream, &costly.Stream, &quick.Stream}) // returns
	<-h.filling
	other.receives(1)
	// So do those that answer calls of all connections, if a fill is listed that nobody does yet.
	costly.l.flush()
	quick.produced.Add(100)
	WakeAll([]*Stream{&costly.Stream, &quick.Stream})
	other.receives(1)
	close(h.release)
	slow.receives(3)
}

// TestOthersOfBusyConnection: nor does it wait for the lock of a connection that is busy with
// itself. The streams of that are filled when it is free.
func TestOthersOfBusyConnection(t *testing.T) {
	busy, bh := connectSources(t)
	other, oh := connectSources(t)
	must(t, busy.open(1, "x", false))
	must(t, other.open(1, "x", false))
	slow, quick := <-bh.made, <-oh.made
	slow.produced.Add(100)
	quick.produced.Add(100)
	slow.l.mu.Lock()
	WakeAll([]*Stream{&slow.Stream, &quick.Stream}) // returns
	other.receives(1)
	// A connection that was chosen before its lock was taken.
	writeChosen([]*link{slow.l})
	slow.l.mu.Unlock()
	busy.receives(1)
}

// TestDropAtOnce: a connection with very many streams ends in steps, between which others get its
// lock, and notifies its exchanges one after the other.
func TestDropAtOnce(t *testing.T) {
	for _, how := range []string{"closed", "failed"} {
		t.Run(how, func(t *testing.T) {
			for try := 0; !endsInSteps(t, how); try++ { // who gets the lock is the runtime's choice
				if try == 100 {
					t.Fatal("the lock was never free while streams were removed")
				}
			}
		})
	}
}

// endsInSteps ends a connection and reports whether somebody else had its lock during that time.
func endsInSteps(t *testing.T, how string) bool {
	const streams = 20 * dropAtOnce
	h := &endings{}
	h.made = make(chan *source, streams)
	c := connectTo(t, func(c *client) Handler { h.site = c.site; return h }).greet()
	var last *source
	for i := range uint32(streams) {
		must(t, c.open(2*i+1, "x", false))
		last = <-h.made
	}
	conn, seen := last.l, false
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			conn.mu.Lock()
			seen = seen || conn.mu.dropping > 0
			conn.mu.Unlock()
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	if how == "closed" {
		conn.closeConn(net.ErrClosed)
	} else {
		must(t, c.WriteRawFrame(http2.FrameData, 0, 0, nil)) // on stream 0
	}
	eventually(t, "all exchanges are notified", func() bool { return h.ended.Load() == streams })
	close(stop)
	<-stopped
	if n := h.most.Load(); n > 1 {
		t.Errorf("%d exchanges were notified at once", n)
	}
	c.nc.Close()
	return seen
}

// endings counts the ends of its exchanges.
type endings struct {
	sources
	ended, running, most atomic.Int64
}

func (h *endings) Begin(r *Request) Exchange {
	return &countedSource{h.sources.Begin(r).(*source), h}
}

type countedSource struct {
	*source
	h *endings
}

func (e *countedSource) Start() {
	if e.Hold() {
		e.Notify(false)
	}
	e.begin <- e.source
}

func (e *countedSource) Ended() {
	n := e.h.running.Add(1)
	e.h.most.Store(max(e.h.most.Load(), n))
	e.source.Ended()
	e.h.running.Add(-1)
	e.h.ended.Add(1)
}
