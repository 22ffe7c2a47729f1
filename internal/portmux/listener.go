package portmux

import (
	"fmt"
	"net"
	"sync"
)

// Listener is a net.Listener that receives its connections from Give.
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

// Give waits until Accept returns the connection. After the listener is closed it returns false,
// and the caller keeps the connection.
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
