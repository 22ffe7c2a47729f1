package link

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// Rule describes how bytes from one node to another are delivered. The zero value delivers them at
// once.
type Rule struct {
	// Delay is added to each piece or packet, and up to Jitter at random.
	Delay, Jitter time.Duration
	// Rate is the number of bytes a second, if not 0.
	Rate int
	// Stall delivers nothing, new connections and the ends of old ones included. Proxies hold it
	// back, a switch drops it.
	Stall bool
	// NoDial lets no new connection be made in this direction, as a firewall does that works one
	// way. Bytes pass on those that the other node has made, and on those that there are.
	NoDial bool

	// The others are for the packets of a switch.

	// Loss and Twice are the fractions of packets that are lost and that are delivered twice.
	Loss, Twice float64
	// Largest is the size of the largest packet that is delivered, if not 0. Others vanish.
	Largest int
	// Refuse answers each packet with an error: its destination is unreachable.
	Refuse bool
}

// way is a direction between two nodes.
type way struct{ from, to string }

// Network is a set of nodes with a proxy in front of each. Its methods are safe for concurrent use.
type Network struct {
	t      testing.TB
	closed chan struct{}
	wg     sync.WaitGroup
	mu     struct {
		sync.Mutex
		rules   map[way]Rule
		changed chan struct{} // closed and replaced when rules change
		pids    map[string]int
		conns   map[*conn]struct{}
	}
}

// New returns a network that is closed when the test ends.
func New(t testing.TB) *Network {
	n := &Network{t: t, closed: make(chan struct{})}
	n.mu.rules = map[way]Rule{}
	n.mu.changed = make(chan struct{})
	n.mu.pids = map[string]int{}
	n.mu.conns = map[*conn]struct{}{}
	t.Cleanup(func() {
		close(n.closed)
		n.reset(func(*conn) bool { return true })
		n.wg.Wait()
	})
	return n
}

// Node puts a proxy in front of a node that listens at target, host:port, and returns the proxy's
// address. The node need not run yet.
func (n *Network) Node(name, target string) string {
	n.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		n.t.Fatal(err)
	}
	n.wg.Go(func() {
		<-n.closed
		_ = l.Close()
	})
	n.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n.wg.Go(func() { n.serve(c.(*net.TCPConn), name, target) })
		}
	})
	return l.Addr().String()
}

// Runs sets the process of a node.
func (n *Network) Runs(name string, pid int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.pids[name] = pid
}

// Set sets the rule for the bytes from one node to another.
func (n *Network) Set(from, to string, r Rule) {
	if r.Loss > 0 || r.Twice > 0 || r.Largest > 0 || r.Refuse {
		panic("a rule for packets needs a switch")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.rules[way{from, to}] = r
	n.change()
}

// Heal removes all rules. Queued bytes are delivered.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.mu.rules)
	n.change()
}

func (n *Network) change() {
	close(n.mu.changed)
	n.mu.changed = make(chan struct{})
}

// Reset ends every connection between two nodes with a reset; queued bytes are lost. It returns
// their number.
func (n *Network) Reset(a, b string) int {
	return n.reset(func(c *conn) bool {
		return c.from == a && c.to == b || c.from == b && c.to == a
	})
}

// HalfClose ends the bytes from one node to another on every connection between them, while the
// other direction stays open. It returns the number of connections.
func (n *Network) HalfClose(from, to string) (count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.mu.conns {
		c.mu.Lock()
		// The first socket is that of the node that dialed, the second that of the other.
		i := -1
		switch {
		case c.from == from && c.to == to:
			i = 1
		case c.from == to && c.to == from:
			i = 0
		}
		if i >= 0 && i < len(c.socks) {
			_ = c.socks[i].CloseWrite()
			count++
		}
		c.mu.Unlock()
	}
	return count
}

func (n *Network) reset(which func(*conn) bool) int {
	n.mu.Lock()
	var out []*conn
	for c := range n.mu.conns {
		if which(c) {
			out = append(out, c)
		}
	}
	n.mu.Unlock()
	for _, c := range out {
		c.end()
	}
	return len(out)
}

func (n *Network) rule(w way) (Rule, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.rules[w], n.mu.changed
}

// conn is a connection through a proxy.
type conn struct {
	from, to string // who dialed, and whom
	once     sync.Once
	done     chan struct{}
	mu       sync.Mutex
	socks    []*net.TCPConn
}

// hold registers a socket that end closes.
func (c *conn) hold(s *net.TCPConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.socks = append(c.socks, s)
	select {
	case <-c.done:
		_ = s.Close()
	default:
	}
}

// end resets both sides.
func (c *conn) end() {
	c.once.Do(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		close(c.done)
		for _, s := range c.socks {
			_ = s.SetLinger(0)
			_ = s.Close()
		}
	})
}

func (n *Network) serve(in *net.TCPConn, to, target string) {
	c := &conn{to: to, done: make(chan struct{})}
	c.hold(in)
	n.mu.Lock()
	c.from = n.owner(in)
	n.mu.conns[c] = struct{}{}
	n.mu.Unlock()
	defer func() {
		c.end()
		n.mu.Lock()
		delete(n.mu.conns, c)
		n.mu.Unlock()
	}()
	select {
	case <-n.closed:
		return
	default:
	}
	if r, _ := n.rule(way{c.from, to}); r.NoDial {
		return
	}
	// Connecting takes one packet in each direction.
	now := time.Now()
	if !n.pass(c, way{c.from, to}, now, 0) || !n.pass(c, way{to, c.from}, time.Now(), 0) {
		return
	}
	s, err := net.DialTimeout("tcp", target, 5*time.Second)
	if err != nil {
		return
	}
	out := s.(*net.TCPConn)
	c.hold(out)
	var wg sync.WaitGroup
	wg.Go(func() { n.pump(c, way{c.from, to}, out, in) })
	wg.Go(func() { n.pump(c, way{to, c.from}, in, out) })
	wg.Wait()
}

// piece is what one read returned. The last one has no data.
type piece struct {
	data []byte
	at   time.Time
}

// pump carries bytes one way until their end or that of the connection.
func (n *Network) pump(c *conn, w way, dst, src *net.TCPConn) {
	pieces := make(chan piece, 64)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		defer close(pieces)
		for {
			buf := make([]byte, 32<<10)
			k, err := src.Read(buf)
			if k > 0 {
				select {
				case pieces <- piece{buf[:k], time.Now()}:
				case <-c.done:
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	for p := range pieces {
		if !n.pass(c, w, p.at, len(p.data)) {
			c.end()
			return
		}
		if _, err := dst.Write(p.data); err != nil {
			c.end()
			return
		}
	}
	if n.pass(c, w, time.Now(), 0) {
		_ = dst.CloseWrite()
	}
}

// pass waits until size bytes that were sent at a time have arrived, and reports false if the
// connection ends before.
func (n *Network) pass(c *conn, w way, at time.Time, size int) bool {
	luck := rand.Float64()
	for {
		r, changed := n.rule(w)
		var wait <-chan time.Time
		if !r.Stall {
			due := at.Add(r.Delay + time.Duration(luck*float64(r.Jitter)))
			if r.Rate > 0 {
				due = latest(due, time.Now()).Add(time.Duration(size) * time.Second / time.Duration(r.Rate))
				size = 0
				at = due.Add(-r.Delay - r.Jitter)
			}
			left := time.Until(due)
			if left <= 0 {
				return true
			}
			timer := time.NewTimer(left)
			defer timer.Stop()
			wait = timer.C
		}
		select {
		case <-wait:
		case <-changed:
		case <-c.done:
			return false
		}
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// String returns the active rules.
func (n *Network) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return fmt.Sprint(n.mu.rules)
}
