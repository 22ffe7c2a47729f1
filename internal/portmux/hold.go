package portmux

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"slices"
	"time"
)

// maxHeld bounds what is read from a connection while it is held: more than a client of HTTP/2 sends before it has an answer to its
// preface, unless it begins with requests at once. The rest waits in the kernel, or at the client.
const maxHeld = 16 << 10

// Hold lets connections of HTTP/2 wait until Release: their clients see a server that accepts and does not answer yet. Call it before
// Serve.
func (m *Mux) Hold() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.holding = true
}

// Release hands the held connections over, and those that come from now on.
func (m *Mux) Release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.holding = false
	for conn := range m.mu.held {
		renewSilence(conn)                        // before newer ones can replace it
		_ = conn.SetReadDeadline(time.Unix(1, 0)) // ends the read in hold; it fails if the connection is closed
		m.endHold(conn)
	}
}

// endHold wakes a connection in hold that is not read.
func (m *Mux) endHold(conn net.Conn) {
	if end := m.mu.held[conn]; end != nil {
		close(end)
		delete(m.mu.held, conn)
	}
}

// tlsConfig returns the configuration of the next handshake. While connections of HTTP/2 are held, a client that speaks HTTP/1.1 too gets
// that; clients of gRPC offer HTTP/2 alone.
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

// preferHTTP1 returns a copy of a configuration that chooses HTTP/1.1, if it is among its protocols, before the others.
func preferHTTP1(c *tls.Config) *tls.Config {
	c = c.Clone()
	if i := slices.Index(c.NextProtos, http1); i > 0 {
		c.NextProtos = slices.Insert(slices.Delete(slices.Clone(c.NextProtos), i, i+1), 0, http1)
	}
	return c
}

// http1 is HTTP/1.1 in a TLS handshake.
const http1 = "http/1.1"

// awaitRelease returns when the connection may be handed over. It reads what the client sends, up to maxHeld, and keeps it, because nothing else
// tells that the client has gone. Of a client that sends more that is not noticed: it waits as a connection does that nobody accepts.
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
