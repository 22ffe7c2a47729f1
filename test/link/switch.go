package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

const (
	// queued is how long a packet may be queued because of a Rate. Others are lost.
	queued = 500 * time.Millisecond
	// biggest bounds the packets of an interface.
	biggest = 64 << 10
)

// router is the sender of errors.
var router = address(255 - 1)

func address(n int) [4]byte { return [4]byte{10, 0, 0, byte(n)} }

// Switch connects nodes in network namespaces of their own. Its methods are safe for concurrent
// use.
type Switch struct {
	t     testing.TB
	nodes map[string]*port
	at    map[[4]byte]*port
	wg    sync.WaitGroup
	mu    struct {
		sync.Mutex
		rules map[way]Rule
		busy  map[way]time.Time // until when a way with a Rate is in use
		// the connections in their first direction, and whether they are to be reset
		flows map[flow]bool
		off   map[string]func() error
		lost  int // packets
	}
}

// port is where a node is connected.
type port struct {
	*namespace
	name string
	addr [4]byte
}

// NewSwitch returns a network with these nodes, which is removed when the test ends. It logs why
// and returns nil if this process cannot create network namespaces. VIGIL_NETNS=1 makes that a
// failure, with VIGIL_NETNS=0 it does not try.
func NewSwitch(t testing.TB, names ...string) *Switch {
	t.Helper()
	wish := os.Getenv("VIGIL_NETNS")
	if wish == "0" {
		t.Log("no network namespaces: VIGIL_NETNS=0")
		return nil
	}
	w, err := newSwitch(t, names...)
	if err != nil && wish == "1" {
		t.Fatalf("VIGIL_NETNS=1: %v", err)
	}
	if err != nil {
		t.Logf("no network namespaces here, they need root: %v", err)
		return nil
	}
	return w
}

func newSwitch(t testing.TB, names ...string) (*Switch, error) {
	w := &Switch{t: t, nodes: map[string]*port{}, at: map[[4]byte]*port{}}
	w.mu.rules, w.mu.busy = map[way]Rule{}, map[way]time.Time{}
	w.mu.flows, w.mu.off = map[flow]bool{}, map[string]func() error{}
	for n, name := range names {
		p := &port{name: name, addr: address(n + 1)}
		var err error
		if p.namespace, err = newNamespace(p.addr); err != nil {
			w.close()
			return nil, err
		}
		w.nodes[name], w.at[p.addr] = p, p
	}
	for _, p := range w.nodes {
		w.wg.Go(func() { w.carry(p) })
	}
	t.Cleanup(w.close)
	return w, nil
}

func (w *Switch) close() {
	for _, p := range w.nodes {
		p.close()
	}
	w.wg.Wait()
}

// Host returns the address of a node.
func (w *Switch) Host(name string) string { return net.IP(w.nodes[name].addr[:]).String() }

// Inside calls a function in the namespace of a node: the processes that the function starts, and
// the sockets that it creates, are there. It must do so in its own goroutine.
func (w *Switch) Inside(name string, do func()) {
	w.t.Helper()
	if err := w.nodes[name].inside(func() error { do(); return nil }); err != nil {
		w.t.Fatal(err)
	}
}

// Dial connects a node of the test process to an address, which must not be a name.
func (w *Switch) Dial(ctx context.Context, from, addr string) (c net.Conn, err error) {
	e := w.nodes[from].inside(func() error {
		c, err = new(net.Dialer).DialContext(ctx, "tcp4", addr)
		return nil
	})
	return c, errors.Join(err, e)
}

// Set sets the rule for the packets from one node to another.
func (w *Switch) Set(from, to string, r Rule) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.rules[way{from, to}] = r
}

// Heal removes all rules and connects all nodes.
func (w *Switch) Heal() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.mu.rules)
	clear(w.mu.busy)
	for name, on := range w.mu.off {
		if err := on(); err != nil {
			w.t.Errorf("connecting %s: %v", name, err)
		}
	}
	clear(w.mu.off)
}

// Unplug pulls the cable of a node: what it sends and what is sent to it is lost, and its kernel
// knows.
func (w *Switch) Unplug(name string) {
	w.t.Helper()
	p := w.nodes[name]
	w.switchOff(p, p.plug)
}

// Disable disables the interface of a node: its kernel returns errors, because no route is left.
func (w *Switch) Disable(name string) {
	w.t.Helper()
	p := w.nodes[name]
	w.switchOff(p, func(on bool) error { return p.inside(func() error { return up(device, on) }) })
}

func (w *Switch) switchOff(p *port, set func(on bool) error) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.off[p.name] != nil {
		return
	}
	if err := set(false); err != nil {
		w.t.Fatal(err)
	}
	w.mu.off[p.name] = func() error { return set(true) }
}

// Reset resets every connection between two nodes, at both ends, with its next packet. It returns
// their number.
func (w *Switch) Reset(a, b string) (count int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x, y := w.nodes[a].addr, w.nodes[b].addr
	for f := range w.mu.flows {
		if f.source == x && f.target == y || f.source == y && f.target == x {
			w.mu.flows[f] = true
			count++
		}
	}
	return count
}

// Lost returns how many packets were not delivered because of a rule or a node that is not
// connected.
func (w *Switch) Lost() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.lost
}

// String returns the active rules.
func (w *Switch) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := fmt.Sprint(w.mu.rules)
	for name := range w.mu.off {
		text += ", " + name + " is disconnected"
	}
	return text
}

// carry carries what a node sends until the device is closed.
func (w *Switch) carry(p *port) {
	buf := make([]byte, biggest)
	for {
		n, err := p.dev.Read(buf)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			w.t.Errorf("the interface of %s: %v", p.name, err)
			return
		}
		w.forward(p, packet(buf[:n]))
	}
}

// forward delivers a packet as its rule says. What is not IPv4 is lost.
func (w *Switch) forward(from *port, p packet) {
	if !p.valid() {
		return
	}
	to := w.at[p.target()]
	if to == nil {
		return
	}
	answers, delays := w.decide(from, to, p)
	for _, a := range answers {
		w.at[a.target()].deliver(a)
	}
	for _, d := range delays {
		if d <= 0 {
			to.deliver(p)
			continue
		}
		late := packet(bytes.Clone(p))
		time.AfterFunc(d, func() { to.deliver(late) })
	}
}

// deliver gives the node a packet. An interface that is disabled or closed loses it.
func (p *port) deliver(b packet) { _, _ = p.dev.Write(b) }

// decide returns the packets that a packet causes, and the delay of each copy of it that is
// delivered.
func (w *Switch) decide(from, to *port, p packet) (answers []packet, delays []time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := way{from.name, to.name}
	r := w.mu.rules[k]
	switch {
	case r.NoDial && p.dials(), w.mu.off[from.name] != nil || w.mu.off[to.name] != nil, r.Stall,
		r.Largest > 0 && len(p) > r.Largest, rand.Float64() < r.Loss:
		w.mu.lost++
		return nil, nil
	case r.Refuse:
		w.mu.lost++
		return []packet{p.unreachable(router)}, nil
	}
	if resets := w.track(p); resets != nil {
		return resets, nil
	}
	wait := r.Delay
	if r.Rate > 0 {
		now := time.Now()
		busy := latest(w.mu.busy[k], now)
		if busy.Sub(now) > queued {
			w.mu.lost++
			return nil, nil
		}
		busy = busy.Add(time.Duration(len(p)) * time.Second / time.Duration(r.Rate))
		w.mu.busy[k] = busy
		wait += busy.Sub(now)
	}
	delays = []time.Duration{wait + time.Duration(rand.Float64()*float64(r.Jitter))}
	if rand.Float64() < r.Twice {
		delays = append(delays, wait+time.Duration(rand.Float64()*float64(r.Jitter)))
	}
	return nil, delays
}

// track remembers the connection of a packet, and returns the packets that reset it if it is to be
// reset.
func (w *Switch) track(p packet) []packet {
	s := p.segment()
	if s == nil {
		return nil
	}
	f := flowOf(p, s)
	first := f
	if _, ok := w.mu.flows[f.reverse()]; ok {
		first = f.reverse()
	}
	switch {
	case s.has(rstFlag), s.has(finFlag):
		delete(w.mu.flows, first)
	case s.has(synFlag):
		w.mu.flows[first] = false
	case w.mu.flows[first]:
		delete(w.mu.flows, first)
		return []packet{f.reset(s.seq()), f.reverse().reset(s.ack())}
	}
	return nil
}
