package rpc

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/peer"
)

// door knows the listeners that are served, so that they are closed before the transport stops: it would close
// connections that it has just accepted, and a client that has made a call on one would not know what came
// of it.
type door struct {
	serving  sync.WaitGroup // a count for each listener
	accepted sync.WaitGroup // a count for each connection that the transport has not begun to serve
	mu       struct {
		sync.Mutex
		listeners map[net.Listener]struct{}
		greeting  map[*clientConn]struct{} // whose handshake of HTTP/2 is not over
		shut      bool
	}
}

// open is called before a listener is served; false if it must not be.
func (d *door) open(l net.Listener) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.shut {
		return false
	}
	if d.mu.listeners == nil {
		d.mu.listeners = map[net.Listener]struct{}{}
	}
	d.mu.listeners[l] = struct{}{}
	d.serving.Add(1)
	return true
}

// close is called when a listener is no longer served. It reports whether that was to be.
func (d *door) close(l net.Listener) (expected bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.mu.listeners, l)
	d.serving.Done()
	return d.mu.shut
}

// greetTime is how long a client may still take for its handshake when the server stops. The transport would
// wait for it as long as ever.
const greetTime = 200 * time.Millisecond

// shut closes the listeners and returns when the transport serves all that was accepted, or ctx ends. Clients
// that have not said that they speak HTTP/2, and so made no call, are cut off a little later.
func (d *door) shut(ctx context.Context) {
	d.mu.Lock()
	d.mu.shut = true
	for l := range d.mu.listeners {
		l.Close()
	}
	d.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.serving.Wait()
		d.accepted.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	time.AfterFunc(greetTime, func() {
		d.mu.Lock()
		greeting := slices.Collect(maps.Keys(d.mu.greeting))
		d.mu.Unlock()
		for _, c := range greeting {
			c.Close()
		}
	})
}

// note keeps a connection as long as its handshake is not over.
func (d *door) note(c *clientConn, greets bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !greets {
		delete(d.mu.greeting, c)
		return
	}
	if d.mu.greeting == nil {
		d.mu.greeting = map[*clientConn]struct{}{}
	}
	d.mu.greeting[c] = struct{}{}
}

// listener hands out connections that know their flights.
type listener struct {
	net.Listener
	door     *door
	callMade func(net.Conn) // may be nil
}

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.door.accepted.Add(1)
	return &clientConn{Conn: c, door: l.door, begun: sync.OnceFunc(l.door.accepted.Done), callMade: l.callMade}, nil
}

// clientConn is a client's connection. A call finds it by the address of its peer.
type clientConn struct {
	net.Conn
	door *door
	// begun is called when the transport takes the connection, or closes it.
	begun func()
	// callMade is called for the first call.
	callMade func(net.Conn)
	called   atomic.Bool

	mu struct {
		sync.Mutex
		flights map[*flight]struct{} // nil until there is one
		closed  bool
	}
}

// connAddr is the address of a connection's other end, with the connection.
type connAddr struct {
	net.Addr
	conn *clientConn
}

// RemoteAddr implements net.Conn.
func (c *clientConn) RemoteAddr() net.Addr { return connAddr{c.Conn.RemoteAddr(), c} }

// SetDeadline implements net.Conn. It is the first thing that the transport does with a connection that it has
// decided to serve, and so to end in good order; it takes the deadline away after the handshake.
func (c *clientConn) SetDeadline(t time.Time) error {
	c.door.note(c, !t.IsZero())
	c.begun()
	return c.Conn.SetDeadline(t)
}

// Close implements net.Conn. What the transport had not sent, it will not.
func (c *clientConn) Close() error {
	c.begun()
	c.door.note(c, false)
	err := c.Conn.Close()
	c.mu.Lock()
	flights := c.mu.flights
	c.mu.flights, c.mu.closed = nil, true
	c.mu.Unlock()
	for f := range flights {
		f.lost()
	}
	return err
}

// note remembers that a client has made a call.
func (c *clientConn) note() {
	if c.callMade != nil && !c.called.Load() && c.called.CompareAndSwap(false, true) {
		c.callMade(c.Conn)
	}
}

// connOf returns the connection on which a call came, nil if that is not known.
func connOf(ctx context.Context) *clientConn {
	if p, ok := peer.FromContext(ctx); ok {
		if a, ok := p.Addr.(connAddr); ok {
			return a.conn
		}
	}
	return nil
}

// add keeps a flight; false if the connection is closed.
func (c *clientConn) add(f *flight) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return false
	}
	if c.mu.flights == nil {
		c.mu.flights = map[*flight]struct{}{}
	}
	c.mu.flights[f] = struct{}{}
	return true
}

func (c *clientConn) remove(f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.flights, f)
}
