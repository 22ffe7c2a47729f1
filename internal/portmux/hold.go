package portmux

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// maxHeld bounds what a connection may send while it is held: more than a client of HTTP/2 sends before it has an answer to its
// preface, unless it begins with requests at once.
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
		_ = conn.SetReadDeadline(time.Unix(1, 0)) // ends the read in hold; it fails if the connection is closed
	}
}

// hold returns when the connection may be handed over. It reads what the client sends, and keeps it, because nothing else tells that the
// client has gone.
func (m *Mux) hold(c *prefixed) error {
	m.mu.Lock()
	if !m.mu.holding {
		m.mu.Unlock()
		return nil
	}
	m.mu.held[c] = struct{}{}
	err := error(nil)
	if !m.mu.draining { // otherwise the deadline is near
		err = c.SetDeadline(time.Time{})
	}
	m.mu.Unlock()
	piece := make([]byte, 1<<10)
	for err == nil {
		var n int
		n, err = c.Conn.Read(piece)
		c.first = append(c.first, piece[:n]...)
		if err == nil && len(c.first) > maxHeld {
			err = fmt.Errorf("more than %d bytes before the member serves", maxHeld)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.mu.held, c)
	if errors.Is(err, os.ErrDeadlineExceeded) && !m.mu.holding {
		return nil
	}
	return err
}
