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

	"vigil/internal/store/ration"
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

// listener hands out connections that know their clients.
type listener struct {
	net.Listener
	svc  *service
	door *door
}

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.door.accepted.Add(1)
	out := &clientConn{Conn: c, door: l.door, begun: sync.OnceFunc(l.door.accepted.Done)}
	out.client = &client{svc: l.svc, cut: func() { out.Close() }}
	if f := l.svc.cfg.CallMade; f != nil {
		out.client.callMade = func() { f(c) }
	}
	return out, nil
}

// clientConn is a client's connection.
type clientConn struct {
	net.Conn
	client *client
	door   *door
	// begun is called when the transport takes the connection, or closes it.
	begun func()
}

// RemoteAddr implements net.Conn.
func (c *clientConn) RemoteAddr() net.Addr { return clientAddr{c.Conn.RemoteAddr(), c.client} }

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
	c.client.gone()
	return err
}

// client is the one who reads the answers that are sent on a connection. A call finds it by the address of its
// peer.
type client struct {
	svc *service
	// cut ends the connection.
	cut func()
	// callMade, if it is set, is called for the first call.
	callMade func()
	called   atomic.Bool

	mu struct {
		sync.Mutex
		flights map[*flight]struct{} // nil until there is one
		closed  bool
	}
}

// clientAddr is the address of a client, with the client.
type clientAddr struct {
	net.Addr
	client *client
}

// clientOf returns the client that has made a call, nil if it is not known.
func clientOf(ctx context.Context) *client {
	if p, ok := peer.FromContext(ctx); ok {
		if a, ok := p.Addr.(clientAddr); ok {
			return a.client
		}
	}
	return nil
}

// note remembers that the client of a call has made one.
func note(ctx context.Context) {
	if c := clientOf(ctx); c != nil && c.callMade != nil && !c.called.Load() && c.called.CompareAndSwap(false, true) {
		c.callMade()
	}
}

// Of the memory for large answers a connection may have a quarter and a user half.
const (
	connPart = 4
	userPart = 2
)

// held is a context in which large answers count as those of the client and its user.
func (s *service) held(ctx context.Context) context.Context {
	if c := clientOf(ctx); c != nil && s.cfg.Ranges != nil {
		return ration.WithHolders(ctx, c)
	}
	return ctx
}

// Holders implements ration.Holders.
func (c *client) Holders(ctx context.Context) []ration.Holder {
	list := []ration.Holder{{Key: c, Part: connPart}}
	if user := c.svc.userOf(ctx); user != "" {
		list = append(list, ration.Holder{Key: user, Part: userPart})
	}
	return list
}

// userOf returns the user who makes a call, empty if that is not known.
func (s *service) userOf(ctx context.Context) string {
	if !s.enabled() {
		return ""
	}
	return s.cfg.Auth.User(ctx)
}

// gone ends what was to be sent to the client.
func (c *client) gone() {
	c.mu.Lock()
	flights := c.mu.flights
	c.mu.flights, c.mu.closed = nil, true
	c.mu.Unlock()
	for f := range flights {
		f.lost()
	}
}

// add keeps a flight; false if the client is gone.
func (c *client) add(f *flight) bool {
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

func (c *client) remove(f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.flights, f)
}
