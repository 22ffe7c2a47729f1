package peer

import (
	"bufio"
	"fmt"
	"net"
	"sync"
)

// HTTP returns the listener that gets the connections which speak HTTP/1.1 on the peer port, after
// their TLS handshake, if Options.HTTP is set. They are its user's to close.
func (t *Transport) HTTP() net.Listener { return t.http }

// sniffed is a connection of which the first bytes have been read already.
type sniffed struct {
	net.Conn
	r *bufio.Reader // owned by whoever reads; nil when it is empty
}

func (c *sniffed) Read(b []byte) (int, error) {
	if c.r == nil {
		return c.Conn.Read(b)
	}
	n, err := c.r.Read(b[:min(len(b), c.r.Buffered())])
	if c.r.Buffered() == 0 {
		c.r = nil
	}
	return n, err
}

// listener hands connections to the user of HTTP.
type listener struct {
	conns chan net.Conn
	done  chan struct{}
	close func()
}

func newListener() *listener {
	l := &listener{conns: make(chan net.Conn), done: make(chan struct{})}
	l.close = sync.OnceFunc(func() { close(l.done) })
	return l
}

// give hands over a connection; false if nobody will take it.
func (l *listener) give(c net.Conn) bool {
	select {
	case l.conns <- c:
		return true
	case <-l.done:
		return false
	}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, fmt.Errorf("accept HTTP on the peer port: %w", net.ErrClosed)
	}
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return peerPort{} }

// Close makes connections that arrive later be closed.
func (l *listener) Close() error {
	l.close()
	return nil
}

// peerPort is the address of a listener that stands for several.
type peerPort struct{}

func (peerPort) Network() string { return "tcp" }
func (peerPort) String() string  { return "peer port" }
