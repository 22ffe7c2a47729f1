package portmux

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"slices"
	"time"
)

// maxHeld is how many bytes are read from a connection while it is held. A client of HTTP/2 sends
// less before it has an answer to its preface, unless it sends requests at once. The rest waits in
// the kernel or at the client.
const maxHeld = 16 << 10

// Hold makes connections of HTTP/2 wait until Release. Their clients see a server that accepts them
// and does not answer yet. Call it before Serve.
func (m *Mux) Hold() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.holding = true
}

// Release hands over the held connections, and all later ones.
func (m *Mux) Release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.holding = false
	for conn := range m.mu.held {
		renewSilence(conn) // before newer connections can replace it
		// ends the read in awaitRelease; fails if the connection is closed
		_ = conn.SetReadDeadline(time.Unix(1, 0))
		m.endHold(conn)
	}
}

// endHold wakes awaitRelease for a connection that it does not read any more. mu must be held.
func (m *Mux) endHold(conn net.Conn) {
	if end := m.mu.held[conn]; end != nil {
		close(end)
		delete(m.mu.held, conn)
	}
}

// tlsConfig returns the configuration for the next handshake. While connections of HTTP/2 are held,
// a client that speaks both protocols gets HTTP/1.1. Clients of gRPC offer only HTTP/2.
func (m *Mux) tlsConfig() *tls.Config {
	c := m.o.TLS()
	m.mu.Lock()
	holding := m.mu.holding
	m.mu.Unlock()
	if !holding {
		return c
	}
	c = preferHTTP1(c)
	if choose := c.GetConfigForClient; choose != nil {
		c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			chosen, err := choose(hello)
			if chosen != nil {
				chosen = preferHTTP1(chosen)
			}
			return chosen, err
		}
	}
	return c
}

// preferHTTP1 returns a copy of a configuration that prefers HTTP/1.1, if it is among its
// protocols.
func preferHTTP1(c *tls.Config) *tls.Config {
	c = c.Clone()
	if i := slices.Index(c.NextProtos, http1); i > 0 {
		c.NextProtos = slices.Insert(slices.Delete(slices.Clone(c.NextProtos), i, i+1), 0, http1)
	}
	return c
}

// http1 is the name of HTTP/1.1 in a TLS handshake.
const http1 = "http/1.1"

// awaitRelease returns when the connection may be handed over. It reads and keeps up to maxHeld
// bytes, because only reading shows that a client has gone. If a client sends more, its end stays
// unnoticed until Release.
func (m *Mux) awaitRelease(conn net.Conn, c *prefixed) error {
	m.mu.Lock()
	if !m.mu.holding {
		m.mu.Unlock()
		return nil
	}
	end := make(chan struct{})
	err := error(nil)
	if m.mu.draining || m.mu.closed {
		err = net.ErrClosed
	} else {
		err = conn.SetDeadline(time.Time{})
		m.mu.held[conn] = end
	}
	m.mu.Unlock()
	piece := make([]byte, 1<<10)
	for err == nil && len(c.first) < maxHeld {
		var n int
		n, err = c.Conn.Read(piece)
		c.first = append(c.first, piece[:n]...)
	}
	if err == nil {
		<-end
		err = os.ErrDeadlineExceeded
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.mu.held, conn)
	switch {
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return err
	case m.mu.holding:
		return net.ErrClosed // evicted, or the Mux ends
	}
	return nil
}
