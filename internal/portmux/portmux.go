// Package portmux lets gRPC, HTTP/2 and HTTP/1, with TLS and without, share one listener. The first bytes
// of a connection decide: a TLS handshake, the preface that every HTTP/2 client sends first, or anything
// else; with Options.SplitHTTP2 also the first request.
//
//  1. Nothing is lost: whoever gets a connection reads it from its first byte behind the TLS handshake.
//  2. A connection that does not say enough before Options.Timeout is closed; so is the oldest
//     undecided one, its TLS handshake included, when there are more than Options.MaxPending. Undecided
//     connections delay nobody.
//  3. TLS where there is none, and none where there must be, ends the connection at its first byte, with
//     a line in the log. There are at most 10 such lines a second.
//  4. Drain takes no new connections and loses no request: a connection to which anything was written is handed
//     over, so that who serves it can end it in good order.
//  5. After Close has returned no goroutine of this package is left, and every connection that was
//     not handed over is closed.
//
// A Limit bounds how many connections there are, over several listeners.
//
// What is neither protocol goes where HTTP/1 goes, which has an answer for it. A connection that is
// handed over and speaks TLS has a method TLSState() *tls.ConnectionState.
package portmux

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"
)

// Options configures a Mux. The zero value of each field means its default.
type Options struct {
	// Timeout is how long a connection may take to say what it is, default 10 s.
	Timeout time.Duration
	// MaxPending is how many connections may be undecided at once, default 4096.
	MaxPending int
	// TLS says how handshakes are made, for each connection anew; nil if there is no TLS. RefusePlain
	// lets no others in.
	TLS         func() *tls.Config
	RefusePlain bool
	// SplitHTTP2 gives HTTP/2 connections whose first request is not gRPC to where HTTP/1 goes. A
	// connection without a request is a gRPC one.
	SplitHTTP2 bool
	Logger     *slog.Logger
}

// Validate says every field that is wrong.
func (o *Options) Validate() error {
	var errs []error
	if o.Timeout < 0 {
		errs = append(errs, fmt.Errorf("Timeout is %v", o.Timeout))
	}
	if o.RefusePlain && o.TLS == nil {
		errs = append(errs, errors.New("RefusePlain without TLS lets nobody in"))
	}
	if o.MaxPending < 0 {
		errs = append(errs, fmt.Errorf("MaxPending is %d", o.MaxPending))
	}
	return errors.Join(errs...)
}

// Mux shares one listener. Its methods are safe for concurrent use.
type Mux struct {
	o            Options
	root         net.Listener
	http1, http2 *Listener
	wg           sync.WaitGroup // a goroutine per undecided connection
	done         chan struct{}  // closed by Close
	lines        lines

	mu struct {
		sync.Mutex
		pending *list.List // of net.Conn, the oldest first
		// known are the connections that are HTTP/2 and have made no request yet.
		known    map[net.Conn]struct{}
		draining bool
		closed   bool
	}
}

// New makes a Mux of a listener, which belongs to it from now on. Call Serve.
func New(l net.Listener, o Options) (*Mux, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("portmux: %w", err)
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	if o.MaxPending == 0 {
		o.MaxPending = 4096
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Mux{o: o, root: l, http1: NewListener(l.Addr()), http2: NewListener(l.Addr()), done: make(chan struct{})}
	m.mu.pending, m.mu.known = list.New(), map[net.Conn]struct{}{}
	return m, nil
}

// HTTP1 returns the listener that gets what is not HTTP/2. Closing it closes these connections on
// arrival and leaves the rest alone.
func (m *Mux) HTTP1() net.Listener { return m.http1 }

// HTTP2 returns the listener that gets HTTP/2 connections.
func (m *Mux) HTTP2() net.Listener { return m.http2 }

// Serve accepts connections until Drain or Close, after which it returns nil, or until the listener fails
// for good.
func (m *Mux) Serve() error {
	var delay time.Duration
	for {
		conn, err := m.root.Accept()
		if err == nil {
			delay = 0
			if !m.begin(conn) {
				return nil
			}
			continue
		}
		if m.isOver() {
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		// Out of file descriptors, most likely. Others close theirs, so this passes.
		delay = min(max(2*delay, 5*time.Millisecond), time.Second)
		m.o.Logger.Warn("failed to accept a connection", "address", m.root.Addr().String(), "error", err, "retry in", delay)
		select {
		case <-time.After(delay):
		case <-m.done:
			return nil
		}
	}
}

// drainTime is how long a connection may still take to say what it is when there shall be no more.
const drainTime = 100 * time.Millisecond

// Drain closes the listener and waits until every connection that is undecided is handed over or closed, or
// ctx ends. Whoever accepts from HTTP1 and HTTP2 must do so until then.
func (m *Mux) Drain(ctx context.Context) error {
	m.mu.Lock()
	m.mu.draining = true
	now := time.Now()
	for e := m.mu.pending.Front(); e != nil; e = e.Next() {
		e.Value.(net.Conn).SetReadDeadline(now.Add(drainTime))
	}
	for c := range m.mu.known {
		c.SetReadDeadline(now)
	}
	m.mu.Unlock()
	err := m.root.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.wg.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	return err
}

// limit sets how long a connection may take for its next step: d, or rest while the Mux drains.
func (m *Mux) limit(conn net.Conn, d, rest time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.draining {
		d = min(d, rest)
	}
	return conn.SetDeadline(time.Now().Add(d))
}

// Close closes the listener and every connection that is undecided or not yet accepted, and waits
// until that is done.
func (m *Mux) Close() error {
	m.mu.Lock()
	if !m.mu.closed {
		m.mu.closed = true
		close(m.done)
	}
	for e := m.mu.pending.Front(); e != nil; e = e.Next() {
		e.Value.(net.Conn).Close()
	}
	for c := range m.mu.known {
		c.Close()
	}
	drained := m.mu.draining
	m.mu.Unlock()
	err := m.root.Close()
	if drained && errors.Is(err, net.ErrClosed) {
		err = nil
	}
	m.http1.Close()
	m.http2.Close()
	m.wg.Wait()
	return err
}

func (m *Mux) isOver() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.closed || m.mu.draining
}

// begin starts to look at a connection; false if the Mux is closed.
func (m *Mux) begin(conn net.Conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed || m.mu.draining {
		conn.Close()
		return false
	}
	if m.mu.pending.Len() >= m.o.MaxPending {
		oldest := m.mu.pending.Remove(m.mu.pending.Front()).(net.Conn)
		oldest.Close()
		m.o.Logger.Debug("closed the oldest undecided connection", "remote", oldest.RemoteAddr().String())
	}
	e := m.mu.pending.PushBack(conn)
	m.wg.Go(func() {
		c, to, err := m.decide(conn)
		if err == nil && to == m.http2 && m.o.SplitHTTP2 {
			to, err = m.split(conn, e, c)
		}
		// Before it is handed over: then it is no longer ours to close.
		m.mu.Lock()
		m.mu.pending.Remove(e) // does nothing if it was evicted
		delete(m.mu.known, conn)
		m.mu.Unlock()
		if err == nil {
			err = conn.SetDeadline(time.Time{})
		}
		if err != nil {
			conn.Close()
			m.logRejected(conn, err)
		} else if !to.Give(c.conn()) {
			conn.Close()
		}
	})
	return true
}
