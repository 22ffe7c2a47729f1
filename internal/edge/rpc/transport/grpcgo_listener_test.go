package transport

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"time"
)

// listeners tracks the listeners that are served, so that they are closed before grpc-go stops: it
// would close connections that it has just accepted, and the client of a call on one would not know
// the outcome.
type listeners struct {
	serving  sync.WaitGroup // one for each listener
	accepted sync.WaitGroup // one for each connection that grpc-go has not begun to serve
	mu       struct {
		sync.Mutex
		open        map[net.Listener]struct{}
		handshaking map[*conn]struct{} // whose HTTP/2 handshake is not complete
		closed      bool
	}
}

// add registers a listener that is about to be served. It returns false after close.
func (d *listeners) add(l net.Listener) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.closed {
		return false
	}
	if d.mu.open == nil {
		d.mu.open = map[net.Listener]struct{}{}
	}
	d.mu.open[l] = struct{}{}
	d.serving.Add(1)
	return true
}

// remove unregisters a listener that is not served any more. It reports whether close has closed
// it.
func (d *listeners) remove(l net.Listener) (expected bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.mu.open, l)
	d.serving.Done()
	return d.mu.closed
}

// lateHandshake is how long a client may take to complete its handshake after the server has begun
// to stop. grpc-go would wait for connectionTimeout.
const lateHandshake = 200 * time.Millisecond

// close closes the listeners and returns when grpc-go serves all accepted connections, or ctx ends.
// Connections without a handshake, and so without a call, are closed after lateHandshake.
func (d *listeners) close(ctx context.Context) {
	d.mu.Lock()
	d.mu.closed = true
	for l := range d.mu.open {
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
	time.AfterFunc(lateHandshake, func() {
		d.mu.Lock()
		late := slices.Collect(maps.Keys(d.mu.handshaking))
		d.mu.Unlock()
		for _, c := range late {
			c.Close()
		}
	})
}

// trackHandshake notes that the handshake of a connection has begun or is complete.
func (d *listeners) trackHandshake(c *conn, begun bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !begun {
		delete(d.mu.handshaking, c)
		return
	}
	if d.mu.handshaking == nil {
		d.mu.handshaking = map[*conn]struct{}{}
	}
	d.mu.handshaking[c] = struct{}{}
}

// listener accepts connections that have a Client.
type listener struct {
	net.Listener
	server *grpcServer
}

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	all := &l.server.listeners
	all.accepted.Add(1)
	out := &conn{Conn: c, listeners: all, begun: sync.OnceFunc(all.accepted.Done)}
	out.client.cut = func() { out.Close() }
	out.client.closed, out.closed = context.WithCancel(context.Background())
	if f := l.server.callMade; f != nil {
		out.client.firstCall = func() { f(c) }
	}
	return out, nil
}

// conn is a connection with its Client.
type conn struct {
	net.Conn
	client    Client
	closed    context.CancelFunc // ends client.closed
	listeners *listeners
	begun     func() // called when grpc-go serves or closes the connection
}

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return addrOf(c.Conn.RemoteAddr(), &c.client) }

// SetDeadline implements net.Conn. It is the first call of grpc-go on a connection that it has
// decided to serve, and therefore to stop gracefully; the deadline is removed after the handshake.
func (c *conn) SetDeadline(t time.Time) error {
	c.listeners.trackHandshake(c, !t.IsZero())
	c.begun()
	return c.Conn.SetDeadline(t)
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.begun()
	c.listeners.trackHandshake(c, false)
	err := c.Conn.Close()
	c.closed()
	return err
}
