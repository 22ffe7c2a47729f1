// Package portmux lets HTTP/2 and HTTP/1 share one listener. The first bytes of a connection decide:
// the preface that every HTTP/2 client sends first, or anything else.
//
//  1. Nothing is lost: whoever gets a connection reads it from its first byte.
//  2. A connection that does not say enough before Options.Timeout is closed; so is the oldest
//     undecided one when there are more than Options.MaxPending. Undecided connections delay nobody.
//  3. After Close has returned no goroutine of this package is left, and every connection that was
//     not handed over is closed.
//
// What is neither protocol goes where HTTP/1 goes, which has an answer for it.
package portmux

import (
	"container/list"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"
)

// preface is what an HTTP/2 client sends first.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Options configures a Mux. The zero value of each field means its default.
type Options struct {
	// Timeout is how long a connection may take to say what it is, default 10 s.
	Timeout time.Duration
	// MaxPending is how many connections may be undecided at once, default 4096.
	MaxPending int
	Logger     *slog.Logger
}

// Validate says every field that is wrong.
func (o *Options) Validate() error {
	var errs []error
	if o.Timeout < 0 {
		errs = append(errs, fmt.Errorf("Timeout is %v", o.Timeout))
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

	mu struct {
		sync.Mutex
		pending *list.List // of net.Conn, the oldest first
		closed  bool
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
	m.mu.pending = list.New()
	return m, nil
}

// HTTP1 returns the listener that gets what is not HTTP/2. Closing it closes these connections on
// arrival and leaves the rest alone.
func (m *Mux) HTTP1() net.Listener { return m.http1 }

// HTTP2 returns the listener that gets HTTP/2 connections.
func (m *Mux) HTTP2() net.Listener { return m.http2 }

// Serve accepts connections until Close, after which it returns nil, or until the listener fails for
// good.
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
		if m.isClosed() {
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
	m.mu.Unlock()
	err := m.root.Close()
	m.http1.Close()
	m.http2.Close()
	m.wg.Wait()
	return err
}

func (m *Mux) isClosed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.closed
}

// begin starts to look at a connection; false if the Mux is closed.
func (m *Mux) begin(conn net.Conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed {
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
		decided, err := m.decide(conn)
		// Before it is handed over: then it is no longer ours to close.
		m.mu.Lock()
		m.mu.pending.Remove(e) // does nothing if it was evicted
		m.mu.Unlock()
		if err != nil {
			conn.Close()
			m.o.Logger.Debug("rejected connection on client endpoint", "remote", conn.RemoteAddr().String(), "error", err)
		} else if !decided.to.Give(decided) {
			conn.Close()
		}
	})
	return true
}

// decide reads from a connection until it is clear what it is.
func (m *Mux) decide(conn net.Conn) (*prefixed, error) {
	if err := conn.SetDeadline(time.Now().Add(m.o.Timeout)); err != nil {
		return nil, err
	}
	buf := make([]byte, len(preface))
	n := 0
	for n < len(preface) && string(buf[:n]) == preface[:n] {
		k, err := conn.Read(buf[n:])
		if n += k; k == 0 && err != nil {
			return nil, fmt.Errorf("after %d bytes: %w", n, err)
		}
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	to := m.http1
	if string(buf[:n]) == preface {
		to = m.http2
	}
	return &prefixed{Conn: conn, first: buf[:n], to: to}, nil
}

// prefixed is a connection of which the first bytes have been read already.
type prefixed struct {
	net.Conn
	first []byte // owned by whoever reads
	to    *Listener
}

func (c *prefixed) Read(b []byte) (int, error) {
	if len(c.first) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.first)
	c.first = c.first[n:]
	return n, nil
}

// Listener is a net.Listener that is handed its connections.
type Listener struct {
	addr  net.Addr
	conns chan net.Conn
	done  chan struct{}
	close func()
}

// NewListener makes a Listener whose address is addr.
func NewListener(addr net.Addr) *Listener {
	l := &Listener{addr: addr, conns: make(chan net.Conn), done: make(chan struct{})}
	l.close = sync.OnceFunc(func() { close(l.done) })
	return l
}

// Give waits until Accept takes the connection. It returns false, and the connection stays the
// caller's, once the listener is closed.
func (l *Listener) Give(c net.Conn) bool {
	select {
	case l.conns <- c:
		return true
	case <-l.done:
		return false
	}
}

// Accept implements net.Listener. After Close its error wraps net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, fmt.Errorf("accept %v: %w", l.addr, net.ErrClosed)
	}
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return l.addr }

// Close implements net.Listener. It may be called more than once.
func (l *Listener) Close() error {
	l.close()
	return nil
}
