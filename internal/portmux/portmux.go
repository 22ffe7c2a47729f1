// Package portmux serves HTTP/2 and HTTP/1, with TLS and without, on one listener. It routes a
// connection by its first bytes: a TLS handshake, the preface that every HTTP/2 client sends first,
// or anything else.
//
//  1. No byte is lost: the server that accepts a connection reads it from its first byte after the
//     TLS handshake.
//  2. A connection that is not routed within Options.Timeout is closed; so is the oldest unrouted
//     connection when there are more than Options.MaxPending. A connection in its TLS handshake is
//     unrouted. Unrouted connections delay no others.
//  3. TLS on a listener without it, or plain text on a listener that requires TLS, closes the
//     connection at its first byte and is logged, at most 10 lines a second.
//  4. Drain accepts no new connections and loses no request: it hands over connections whose
//     protocol is known, so that their server can close them gracefully.
//  5. Between Hold and Release connections of HTTP/2 are not handed over. They count as unrouted,
//     without a timeout. If the client closes such a connection, so does the Mux, unless the client
//     has sent more than maxHeld bytes.
//  6. After Close has returned, no goroutine of this package is left, and every connection that was
//     not handed over is closed.
//
// A Limit bounds the number of connections of several listeners.
//
// A connection with neither protocol is routed like HTTP/1, whose server answers with an error. A
// connection with TLS has a method TLSState() *tls.ConnectionState when it is handed over.
package portmux

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"
)

// Options configures a Mux. The zero value of each field means its default.
type Options struct {
	// Timeout is how long routing a connection may take, default 10 s.
	Timeout time.Duration
	// MaxPending is the largest number of connections that are not routed yet, default 4096.
	MaxPending int
	// TLS returns the configuration of the next handshake; nil means no TLS. RefusePlain rejects
	// connections without TLS.
	TLS         func() *tls.Config
	RefusePlain bool
	Logger      *slog.Logger
}

// Validate reports every invalid field.
func (o *Options) Validate() error {
	var errs []error
	if o.Timeout < 0 {
		errs = append(errs, fmt.Errorf("Timeout is %v", o.Timeout))
	}
	if o.RefusePlain && o.TLS == nil {
		errs = append(errs, errors.New("RefusePlain without TLS rejects every connection"))
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
	wg           sync.WaitGroup // a goroutine for each unrouted connection
	done         chan struct{}  // closed by Close
	lines        lines

	mu struct {
		sync.Mutex
		pending *list.List // of net.Conn, the oldest first
		holding bool
		// pending connections that wait for Release; closing the channel ends the wait
		held     map[net.Conn]chan struct{}
		draining bool
		closed   bool
	}
}

// New makes a Mux, which owns the listener from now on. Call Serve.
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
	m := &Mux{o: o, root: l, http1: NewListener(l.Addr()), http2: NewListener(l.Addr()),
		done: make(chan struct{})}
	m.mu.pending, m.mu.held = list.New(), map[net.Conn]chan struct{}{}
	return m, nil
}

// HTTP1 returns the listener for connections that are not HTTP/2. After it is closed, such
// connections are closed at once; others are not affected.
func (m *Mux) HTTP1() net.Listener { return m.http1 }

// HTTP2 returns the listener for HTTP/2 connections.
func (m *Mux) HTTP2() net.Listener { return m.http2 }

// Serve accepts connections until Drain or Close, after which it returns nil, or until the listener
// fails permanently.
func (m *Mux) Serve() error {
	var delay time.Duration
	for {
		conn, err := m.root.Accept()
		if err == nil {
			delay = 0
			if !m.startRouting(conn) {
				return nil
			}
			continue
		}
		if m.isStopped() {
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		// Most likely there is no free file descriptor; other connections will be closed.
		delay = min(max(2*delay, 5*time.Millisecond), time.Second)
		m.o.Logger.Warn("failed to accept a connection", "address", m.root.Addr().String(), "error",
			err, "retry in", delay)
		select {
		case <-time.After(delay):
		case <-m.done:
			return nil
		}
	}
}

// drainTime is how long routing a connection may take after Drain has begun.
const drainTime = 100 * time.Millisecond

// Drain closes the listener and waits until every unrouted connection is handed over or closed, or
// ctx ends. The servers must accept from HTTP1 and HTTP2 until then.
func (m *Mux) Drain(ctx context.Context) error {
	m.mu.Lock()
	m.mu.draining = true
	now := time.Now()
	for e := m.mu.pending.Front(); e != nil; e = e.Next() {
		e.Value.(net.Conn).SetReadDeadline(now.Add(drainTime))
		m.endHold(e.Value.(net.Conn))
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

// refuseTime and refuseBytes bound how much is read from a connection that no server accepts.
const (
	refuseTime  = 50 * time.Millisecond
	refuseBytes = 64 << 10
)

// refuseClient shuts the output of a connection and reads what the client has sent. Closing it with
// unread bytes would reset it, and the client would not see an orderly end.
func (c *prefixed) refuseClient() {
	// like the calls below it fails if the client has closed the connection
	_ = c.SetDeadline(time.Now().Add(refuseTime))
	for nc := c.Conn; ; {
		if w, ok := nc.(interface{ CloseWrite() error }); ok {
			_ = w.CloseWrite()
			break
		}
		inner, ok := nc.(interface{ NetConn() net.Conn })
		if !ok {
			return
		}
		nc = inner.NetConn()
	}
	_, _ = io.CopyN(io.Discard, c.Conn, refuseBytes)
}

// setRouteDeadline sets how long routing a connection may take: less while the Mux drains.
func (m *Mux) setRouteDeadline(conn net.Conn) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.o.Timeout
	if m.mu.draining {
		d = min(d, drainTime)
	}
	return conn.SetDeadline(time.Now().Add(d))
}

// Close closes the listener and every connection that is not routed or not accepted, and waits
// until that is done.
func (m *Mux) Close() error {
	m.mu.Lock()
	if !m.mu.closed {
		m.mu.closed = true
		close(m.done)
	}
	for e := m.mu.pending.Front(); e != nil; e = e.Next() {
		e.Value.(net.Conn).Close()
		m.endHold(e.Value.(net.Conn))
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

func (m *Mux) isStopped() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.closed || m.mu.draining
}

// startRouting routes a connection on a new goroutine. It closes the connection and returns false
// if the Mux drains or is closed.
func (m *Mux) startRouting(conn net.Conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed || m.mu.draining {
		conn.Close()
		return false
	}
	if m.mu.pending.Len() >= m.o.MaxPending {
		oldest := m.mu.pending.Remove(m.mu.pending.Front()).(net.Conn)
		oldest.Close()
		m.endHold(oldest)
		m.o.Logger.Debug("closed the oldest unrouted connection", "remote",
			oldest.RemoteAddr().String())
	}
	e := m.mu.pending.PushBack(conn)
	m.wg.Go(func() {
		c, to, err := m.route(conn)
		if err == nil && to == m.http2 {
			err = m.awaitRelease(conn, c)
		}
		// Before the handover: from then on the server closes the connection.
		m.mu.Lock()
		m.mu.pending.Remove(e) // no effect if it was evicted
		m.mu.Unlock()
		if err == nil {
			err = conn.SetDeadline(time.Time{})
		}
		if err != nil {
			conn.Close()
			m.logRejected(conn, err)
		} else if !to.Give(c.serverConn()) {
			c.refuseClient()
			conn.Close()
		}
	})
	return true
}
