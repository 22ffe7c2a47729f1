package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vigil/test/proc"
)

// door is a proxy at the peer URL of a member. Other members reach it through the door only; it
// reaches them through theirs.
type door struct {
	t      *testing.T
	addr   string
	target string
	mu     sync.Mutex
	l      net.Listener // nil while the door is closed: connections are refused
	conns  map[net.Conn]bool
}

func newDoor(t *testing.T, target string) *door {
	d := &door{t: t, addr: fmt.Sprintf("127.0.0.1:%d", proc.FreePort(t)), target: target,
		conns: map[net.Conn]bool{}}
	d.open()
	t.Cleanup(d.shut)
	return d
}

func (d *door) open() {
	var l net.Listener
	for end := time.Now().Add(patience); l == nil; time.Sleep(10 * time.Millisecond) {
		var err error
		if l, err = net.Listen("tcp", d.addr); err != nil && time.Now().After(end) {
			d.t.Fatal(err)
		}
	}
	d.mu.Lock()
	d.l = l
	d.mu.Unlock()
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go d.pass(in)
		}
	}()
}

func (d *door) pass(in net.Conn) {
	out, err := net.Dial("tcp", d.target)
	if err != nil {
		in.Close()
		return
	}
	d.mu.Lock()
	d.conns[in], d.conns[out] = true, true
	d.mu.Unlock()
	go func() { _, _ = io.Copy(out, in); out.Close() }()
	_, _ = io.Copy(in, out)
	in.Close()
	d.mu.Lock()
	delete(d.conns, in)
	delete(d.conns, out)
	d.mu.Unlock()
}

// reset ends all connections through the door with a RST.
func (d *door) reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.conns {
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
}

// shut lets the door refuse connections, and resets those that are open.
func (d *door) shut() {
	d.mu.Lock()
	if d.l != nil {
		d.l.Close()
		d.l = nil
	}
	d.mu.Unlock()
	d.reset()
}

// absences returns how many elections the members have begun because a leader was absent.
func (g *group) absences(members []*member) (n int) {
	g.t.Helper()
	for _, m := range members {
		res, err := http.Get("http://" + m.Addr() + "/metrics")
		if err != nil {
			g.t.Fatal(err)
		}
		b, err := io.ReadAll(res.Body)
		res.Body.Close()
		_, line, found := strings.Cut(string(b),
			"\nvigil_elections_started_total{cause=\"leader-absent\"} ")
		if err != nil || !found {
			g.t.Fatalf("no elections in the metrics of %s: %v", m.name, err)
		}
		count := 0
		if _, err := fmt.Sscan(line, &count); err != nil {
			g.t.Fatal(err)
		}
		n += count
	}
	return n
}

// putters put at members without a pause and without a repetition. No put may fail.
type putters struct {
	stop  context.CancelFunc
	wg    sync.WaitGroup
	acked atomic.Int64
}

func (g *group) putAt(members []*member) *putters {
	ctx, cancel := context.WithCancel(g.t.Context())
	p := &putters{stop: cancel}
	for _, m := range members {
		for i := range 3 {
			p.wg.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					one, cancel := context.WithTimeout(g.t.Context(), patience)
					if _, err := m.client.Put(one, fmt.Sprintf("p/%s/%d", m.name, i),
						fmt.Sprint(n)); err != nil {
						g.t.Errorf("put at %s: %v", m.name, err)
					}
					cancel()
					p.acked.Add(1)
				}
			})
		}
	}
	return p
}

func (p *putters) more(g *group, n int64) {
	g.t.Helper()
	from := p.acked.Load()
	g.until("puts", func() bool { return p.acked.Load() >= from+n })
}

func (p *putters) end() { p.stop(); p.wg.Wait() }

// A leader that is killed is replaced without waiting for the election timeout, which is long here,
// and no put at another member fails.
func TestKilledLeaderIsReplacedEarly(t *testing.T) {
	t.Parallel()
	if proc.Subject() != proc.Vigil {
		t.Skip("etcd waits for the election timeout")
	}
	g := start(t, 3, steady)
	for range trials(t) {
		lead := g.leader()
		p := g.putAt(g.others(lead))
		p.more(g, 100)
		before := g.absences(g.others(lead))
		lead.Kill()
		p.more(g, 100)
		if g.absences(g.others(lead)) == before {
			t.Error("the new leader was not elected because the former one was absent")
		}
		p.end()
		lead.Restart()
	}
	g.agree()
}

// Whatever happens to connections, and to processes that go on, makes no election because of an
// absent leader. The election timeout is so long that there is no other election either.
func TestNoEarlyElection(t *testing.T) {
	t.Parallel()
	if proc.Subject() != proc.Vigil {
		t.Skip("etcd waits for the election timeout")
	}
	g := &group{t: t, args: []string{steady}}
	doors := map[string]*door{}
	for i := range 3 {
		m := g.configure(fmt.Sprintf("m%d", i+1))
		d := newDoor(t, fmt.Sprintf("127.0.0.1:%d", m.cfg.PeerPort))
		doors[m.name] = d
		m.cfg.Args = append([]string{"--listen-peer-urls=" + m.peerURL,
			"--initial-advertise-peer-urls=http://" + d.addr}, m.cfg.Args...)
		m.peerURL = "http://" + d.addr
		g.list = append(g.list, m)
	}
	for _, m := range g.list {
		m.cfg.InitialCluster = g.initialCluster()
		m.Server = proc.New(t, m.cfg)
		m.Launch()
	}
	for _, m := range g.list {
		g.serving(m)
	}
	lead := g.leader()
	term := g.status(lead).RaftTerm
	rest := g.others(lead)
	// What a follower forwards while connections are reset may be lost, and waits for its timeout
	// then.
	works := func() { t.Helper(); g.put(lead, "k", "v") }
	all := func(do func(*door)) {
		for _, d := range doors {
			do(d)
		}
	}
	refused := func(by *member, times int) {
		t.Helper()
		// A line that repeats is logged once a minute; a connection that is made in between clears
		// that.
		g.until("refused connections", func() bool {
			return strings.Count(by.Log().String(), "connect: connection refused") >= times
		})
	}
	steps := []struct {
		name string
		do   func()
	}{
		{"all connections are reset, again and again", func() {
			for range 10 {
				all((*door).reset)
				works()
			}
		}},
		{"connections to the leader are reset", func() {
			for range 10 {
				doors[lead.name].reset()
				works()
			}
		}},
		{"the port of the leader refuses connections, and it reaches the others", func() {
			doors[lead.name].shut()
			for _, m := range rest {
				refused(m, 1)
			}
			// how long it refuses them, less than the leader needs to resign without answers
			time.Sleep(time.Second)
			doors[lead.name].open()
			works()
		}},
		{"a follower is unreachable in both directions", func() {
			before := strings.Count(lead.Log().String(), "connect: connection refused")
			doors[rest[0].name].shut()
			refused(lead, before+1)
			works()
			doors[rest[0].name].open()
			works()
		}},
		{"the leader stands still", func() {
			lead.Pause()
			all((*door).reset)
			time.Sleep(2 * time.Second) // how long it stands still
			lead.Resume()
			works()
		}},
		{"a follower is killed and restarted", func() {
			rest[1].Kill()
			works()
			rest[1].Restart()
			works()
		}},
	}
	for _, s := range steps {
		s.do()
		if now := g.leader(); now != lead || g.status(lead).RaftTerm != term ||
			g.absences(g.list) > 0 {
			t.Fatalf("%s: %s leads in term %d, before %s in term %d; %d elections because of an absent leader", s.name,
				now.name, g.status(now).RaftTerm, lead.name, term, g.absences(g.list))
		}
	}
	g.agree()
}
