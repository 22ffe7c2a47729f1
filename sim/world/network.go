package world

import (
	"net/netip"
	"slices"
	"time"
)

// window is how much a connection takes before its receiver reads.
const window = 256 << 10

// network connects the machines. Each direction between two machines is a link of its own.
type network struct {
	w     *World
	ports uint16 // of dialers, so far
	links map[[2]int]*Link
	// ends are the ends of connections, in the order in which they were made.
	ends []*endpoint
	made uint64
}

// Link is one direction between two machines.
type Link struct {
	// Delay and Jitter are how long data is under way: Delay and a random part of Jitter.
	Delay, Jitter time.Duration
	// BytesPerSecond limits the rate; 0 means no limit.
	BytesPerSecond int64
	cut            bool
}

// Link returns the link from one machine to another, whose fields may be changed.
func (w *World) Link(from, to *Machine) *Link {
	n := &w.network
	if n.links == nil {
		n.links = map[[2]int]*Link{}
	}
	k := [2]int{from.n, to.n}
	l := n.links[k]
	if l == nil {
		l = &Link{Delay: 200 * time.Microsecond, Jitter: 300 * time.Microsecond}
		n.links[k] = l
	}
	return l
}

// Cut stops all data from one machine to another. Connections stay open, and nothing reports an
// error.
func (w *World) Cut(from, to *Machine) {
	w.Note(from, "link to %s is cut", to.Name)
	w.Link(from, to).cut = true
}

// Heal undoes Cut. Data that was lost is sent again after some time, as TCP does.
func (w *World) Heal(from, to *Machine) {
	if !w.Link(from, to).cut {
		return
	}
	w.Note(from, "link to %s is healed", to.Name)
	w.Link(from, to).cut = false
	for _, e := range w.network.ends {
		if e.m == from && e.to == to && e.stalled {
			e.stalled = false
			w.After(time.Duration(w.rng.Int64N(int64(1500*time.Millisecond))), e.pump)
		}
	}
}

// Reset breaks all connections between two machines.
func (w *World) Reset(a, b *Machine) {
	w.Note(a, "connections with %s are reset", b.Name)
	for _, e := range slices.Clone(w.network.ends) {
		if e.m == a && e.to == b || e.m == b && e.to == a {
			e.fail()
		}
	}
}

func (n *network) machine(a netip.Addr) *Machine {
	for _, m := range n.w.machines {
		if m.Addr == a {
			return m
		}
	}
	return nil
}

// vanish forgets the connections of a machine without power. The other ends do not notice.
func (n *network) vanish(m *Machine) {
	for _, e := range n.ends {
		if e.m == m {
			e.gone, e.out, e.in = true, nil, nil
		}
	}
	n.sweep()
}

// booted answers what was sent to connections that a machine had before it lost power.
func (n *network) booted(m *Machine) {
	for _, e := range n.ends {
		if e.to == m && !e.gone && (e.peer == nil || e.peer.gone) && e.unanswered {
			n.w.After(time.Duration(n.w.rng.Int64N(int64(3*time.Second))), e.fail)
		}
	}
}

// sweep forgets connections without ends.
func (n *network) sweep() {
	n.ends = slices.DeleteFunc(n.ends, func(e *endpoint) bool {
		return e.gone && len(e.out) == 0 && (e.peer == nil || e.peer.gone)
	})
}

type segmentKind byte

const (
	segmentOpen segmentKind = iota
	segmentAccept
	segmentData
	segmentEnd
	segmentReset
)

type segment struct {
	kind segmentKind
	at   time.Duration
	data []byte
}

// endpoint is one end of a connection.
type endpoint struct {
	n             *network
	id            uint64
	p             *Process // nil after its end
	m, to         *Machine
	local, remote netip.AddrPort
	peer          *endpoint // nil before the other machine knows of the connection

	connected  bool
	refused    bool
	broken     bool // reset by the other end
	ended      bool // the other end sends nothing any more
	gone       bool // this end is closed
	shut       bool // this end sends nothing any more
	unanswered bool // data was sent to a machine without power
	in         []byte
	// flight counts the bytes that were written and not read yet.
	flight  int
	out     []segment
	last    time.Duration // the arrival of the newest segment
	pumping bool
	stalled bool // a cut link holds the segments
}

// dial opens a connection.
func (n *network) dial(p *Process, to netip.AddrPort) *endpoint {
	p.m.load.add(n.w.now, Work{Dials: 1})
	n.ports++
	e := &endpoint{n: n, p: p, m: p.m, to: n.machine(to.Addr()),
		local: netip.AddrPortFrom(p.m.Addr, 20000+n.ports%40000), remote: to}
	n.add(e)
	if e.to == nil {
		e.refused = true
		return e
	}
	e.send(segmentOpen, nil)
	return e
}

func (n *network) add(e *endpoint) {
	n.made++
	e.id = n.made
	n.ends = append(n.ends, e)
	if n.made%64 == 0 {
		n.sweep()
	}
}

// send sends a segment over the link.
func (e *endpoint) send(kind segmentKind, data []byte) {
	w := e.n.w
	l := w.Link(e.m, e.to)
	at := w.now + l.Delay
	if l.Jitter > 0 {
		at += time.Duration(w.rng.Int64N(int64(l.Jitter)))
	}
	at = max(at, e.last)
	if l.BytesPerSecond > 0 {
		at += time.Duration(int64(len(data)) * int64(time.Second) / l.BytesPerSecond)
	}
	e.last = at
	e.out = append(e.out, segment{kind, at, data})
	if !e.pumping && !e.stalled {
		e.pumping = true
		w.At(at, e.pump)
	}
}

// pump delivers the segments whose time has come.
func (e *endpoint) pump() {
	w := e.n.w
	e.pumping = false
	for len(e.out) > 0 {
		s := e.out[0]
		if s.at > w.now {
			e.pumping = true
			w.At(s.at, e.pump)
			return
		}
		if w.Link(e.m, e.to).cut {
			e.stalled = true
			return
		}
		e.out = e.out[1:]
		w.trace.mix('n', e.id, uint64(s.kind), uint64(w.now), uint64(len(s.data)), sumOf(s.data))
		e.deliver(s)
	}
}

// deliver gives a segment to the other machine.
func (e *endpoint) deliver(s segment) {
	if !e.to.on {
		e.unanswered = true
		return
	}
	if s.kind == segmentOpen {
		e.open()
		return
	}
	to := e.peer
	if to == nil || to.gone {
		if s.kind == segmentData && !e.gone {
			e.n.w.After(e.n.w.Link(e.to, e.m).Delay, e.fail)
		}
		return
	}
	switch s.kind {
	case segmentAccept:
		to.connected = true
	case segmentData:
		to.in = append(to.in, s.data...)
	case segmentEnd:
		to.ended = true
	case segmentReset:
		to.broken = true
	}
	if s.kind != segmentData {
		e.n.w.Note(to.m, "connection %d with %v: %s", to.id, to.remote,
			[...]string{"", "open", "", "ends", "is reset"}[s.kind])
	}
	to.wake()
}

// open makes the other end at a listener.
func (e *endpoint) open() {
	var l *listener
	if e.to.process != nil {
		l = e.to.process.ports[e.remote.Port()]
	}
	if l == nil {
		e.n.w.After(e.n.w.Link(e.to, e.m).Delay, func() {
			e.refused = true
			e.wake()
		})
		return
	}
	e.peer = &endpoint{n: e.n, p: l.p, m: e.to, to: e.m, local: e.remote, remote: e.local, peer: e,
		connected: true}
	e.n.add(e.peer)
	l.backlog = append(l.backlog, e.peer)
	e.peer.send(segmentAccept, nil)
	e.peer.wake()
}

func (e *endpoint) wake() {
	if e.p != nil && !e.gone {
		e.n.w.wake(e.p)
	}
}

// fail breaks this end.
func (e *endpoint) fail() {
	if !e.broken && !e.gone {
		e.n.w.Note(e.m, "connection %d from %v to %v is broken", e.id, e.local, e.remote)
	}
	e.broken = true
	e.wake()
}

func (e *endpoint) readable() bool {
	return len(e.in) > 0 || e.ended || e.broken || e.refused
}

func (e *endpoint) writable() bool {
	return e.broken || e.refused || e.connected && e.flight < window
}

// read implements a read of the process.
func (e *endpoint) read(b []byte) (int, uint64) {
	switch {
	case len(e.in) > 0:
		n := copy(b, e.in)
		if e.in = e.in[n:]; len(e.in) == 0 {
			e.in = nil
		}
		if p := e.peer; p != nil {
			full := p.flight >= window
			if p.flight -= n; full && p.flight < window {
				p.wake()
			}
		}
		return n, wasiOK
	case e.broken:
		return 0, wasiReset
	case e.ended:
		return 0, wasiOK
	}
	return 0, wasiAgain
}

// write implements a write of the process.
func (e *endpoint) write(b []byte) (int, uint64) {
	switch {
	case e.broken:
		return 0, wasiReset
	case e.shut:
		return 0, wasiPipe
	case !e.connected || e.flight >= window:
		return 0, wasiAgain
	}
	n := min(len(b), window-e.flight)
	e.flight += n
	e.send(segmentData, slices.Clone(b[:n]))
	return n, wasiOK
}

func (e *endpoint) shutdown() {
	if !e.shut && e.connected {
		e.shut = true
		e.send(segmentEnd, nil)
	}
}

// close implements the end of the process's descriptor.
func (e *endpoint) close() {
	if e.gone {
		return
	}
	e.gone, e.p = true, nil
	if e.m.on && e.connected && !e.broken {
		kind := segmentEnd
		if len(e.in) > 0 {
			kind = segmentReset
		}
		e.send(kind, nil)
	}
	e.in = nil
}

// listener accepts connections at a port.
type listener struct {
	p       *Process
	port    uint16
	backlog []*endpoint
}

func (l *listener) readable() bool { return len(l.backlog) > 0 }
func (l *listener) writable() bool { return false }

func (l *listener) accept() int32 {
	e := l.backlog[0]
	l.backlog = l.backlog[1:]
	return l.p.open(e)
}

func (l *listener) close() {
	delete(l.p.ports, l.port)
	for _, e := range l.backlog {
		e.close()
	}
}
