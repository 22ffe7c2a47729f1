package portmux

import (
	"container/list"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"
)

const (
	// DefaultSilence is how long a connection may be without a call before it is closed, if there
	// are many such connections.
	DefaultSilence = time.Minute
	// A quarter of the limit, at most mostSpare connections, may be silent for any time.
	sparePart = 4
	mostSpare = 256
	// leastSilence is how long newer connections cannot replace a silent one.
	leastSilence = time.Second
)

var errTooMany = errors.New("too many connections are open")

// Limit bounds the connections of several listeners together. Each connection uses a file
// descriptor, and the process needs some for other purposes.
//
// A connection is silent until CallMade is called for it. Harmless clients have silent connections
// too: they connect to every member and call only one. If there are more than a few, connections
// that were silent for some time are closed. When the limit is reached, a new connection replaces
// the oldest silent one. If no connection is silent, the new one is closed.
type Limit struct {
	max     int
	spare   int
	silence time.Duration
	log     *slog.Logger
	lines   lines

	mu struct {
		sync.Mutex
		open   int
		silent *list.List // of *limited, the oldest first
	}
}

// NewLimit makes a limit of max connections. silence is how long a connection may be silent; 0
// means DefaultSilence.
func NewLimit(max int, silence time.Duration, log *slog.Logger) *Limit {
	if silence == 0 {
		silence = DefaultSilence
	}
	l := &Limit{max: max, spare: min(max/sparePart, mostSpare), silence: silence, log: log}
	l.mu.silent = list.New()
	return l
}

// Max returns the limit.
func (l *Limit) Max() int { return l.max }

// Open returns the number of open connections.
func (l *Limit) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.open
}

// Listener returns a listener whose connections count.
func (l *Limit) Listener(root net.Listener) net.Listener { return &limitedListener{root, l} }

// CallMade notes that a client has made a call on a connection. Types with a method NetConn may
// wrap the connection. It does nothing if the connection does not count.
func CallMade(conn net.Conn) {
	if c := findLimited(conn); c != nil {
		c.noteCall()
	}
}

// findLimited returns the limited connection that types with a method NetConn wrap, nil if there is
// none.
func findLimited(conn net.Conn) *limited {
	for conn != nil {
		if c, ok := conn.(*limited); ok {
			return c
		}
		inner, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return nil
		}
		conn = inner.NetConn()
	}
	return nil
}

// renewSilence treats a silent connection as if it had come now, because it could not have a call
// before.
func renewSilence(conn net.Conn) {
	c := findLimited(conn)
	if c == nil {
		return
	}
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.place != nil {
		c.since = time.Now()
		c.l.mu.silent.MoveToBack(c.place)
		c.timer.Reset(c.l.silence)
	}
}

type limitedListener struct {
	net.Listener
	l *Limit
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.l.admit(conn); c != nil {
			return c, nil
		}
		conn.Close()
		if dropped, ok := l.l.lines.allowLine(time.Now()); ok {
			l.l.log.Warn("rejected connection", "address", l.Addr().String(), "remote-addr",
				conn.RemoteAddr().String(),
				"limit", l.l.max, "lines-left-out", dropped, "error", errTooMany)
		}
	}
}

// admit counts a connection. It returns nil if the limit is reached and no silent connection makes
// room.
func (l *Limit) admit(conn net.Conn) *limited {
	c := &limited{Conn: conn, l: l, since: time.Now()}
	l.mu.Lock()
	if l.mu.open >= l.max {
		e := l.mu.silent.Front()
		if e == nil || c.since.Sub(e.Value.(*limited).since) < leastSilence {
			l.mu.Unlock()
			return nil
		}
		oldest := e.Value.(*limited)
		l.forgetSilent(oldest)
		l.mu.Unlock()
		oldest.Close()
		l.mu.Lock()
		if l.mu.open >= l.max {
			l.mu.Unlock()
			return nil
		}
	}
	defer l.mu.Unlock()
	l.mu.open++
	c.place = l.mu.silent.PushBack(c)
	c.timer = time.AfterFunc(l.silence, c.closeSilent)
	return c
}

// forgetSilent removes a connection from the silent ones and reports whether it was silent. mu must
// be held.
func (l *Limit) forgetSilent(c *limited) bool {
	if c.place == nil {
		return false
	}
	l.mu.silent.Remove(c.place)
	c.place = nil
	c.timer.Stop()
	return true
}

// limited is a connection that counts.
type limited struct {
	net.Conn
	l     *Limit
	timer *time.Timer

	// Guarded by l.mu.
	since  time.Time
	place  *list.Element // nil if it is not silent
	closed bool
}

// NetConn returns the connection below.
func (c *limited) NetConn() net.Conn { return c.Conn }

// PassesOn says that Read passes on the bytes of the connection below.
func (c *limited) PassesOn() bool { return true }

// Close implements net.Conn.
func (c *limited) Close() error {
	err := c.Conn.Close()
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if !c.closed {
		c.closed = true
		c.l.mu.open--
		c.l.forgetSilent(c)
	}
	return err
}

func (c *limited) noteCall() {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.l.forgetSilent(c)
}

// closeSilent closes a connection that was silent for too long, if there are many silent ones.
func (c *limited) closeSilent() {
	c.l.mu.Lock()
	if c.place != nil && c.l.mu.silent.Len() <= c.l.spare {
		c.timer.Reset(c.l.silence)
		c.l.mu.Unlock()
		return
	}
	silent := c.l.forgetSilent(c)
	c.l.mu.Unlock()
	if silent {
		c.Close()
	}
}
