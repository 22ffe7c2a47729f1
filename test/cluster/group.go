package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/proc"
)

// patience bounds the waiting for a condition.
const patience = 60 * time.Second

// steady is the flag of clusters whose leader must not change only because a member gets no
// processor for some seconds. In clusters without it, an election may take place at any time.
const steady = "--election-timeout=10000"

// member is one process, with its identity once it has served.
type member struct {
	*proc.Server
	name, peerURL string
	cfg           proc.Config
	client        *clientv3.Client
}

// group is a cluster.
type group struct {
	t    testing.TB
	list []*member
	args []string
	// secure is set if members speak TLS, and secureClients if clients do: then members have no
	// client here.
	secure, secureClients bool
}

// start runs a new cluster of n members and waits until all serve.
func start(t testing.TB, n int, args ...string) *group {
	t.Helper()
	return run(&group{t: t, args: args}, n)
}

func run(g *group, n int) *group {
	t := g.t
	t.Helper()
	for i := range n {
		g.list = append(g.list, g.configure(fmt.Sprintf("m%d", i+1)))
	}
	for _, m := range g.list {
		m.cfg.InitialCluster = g.initialCluster()
		m.Server = proc.New(t, m.cfg)
		m.Launch()
	}
	for _, m := range g.list {
		g.serving(m)
	}
	return g
}

func (g *group) configure(name string) *member {
	peer := proc.FreePort(g.t)
	m := &member{name: name, peerURL: fmt.Sprintf("http://127.0.0.1:%d", peer)}
	m.cfg = proc.Config{Name: name, Memory: true, PeerPort: peer, ClientPort: proc.FreePort(g.t),
		DataDir: filepath.Join(dir(g.t), name), Args: g.args}
	if g.secure {
		m.peerURL = strings.Replace(m.peerURL, "http:", "https:", 1)
		m.cfg.Args = append([]string{"--listen-peer-urls=" + m.peerURL,
			"--initial-advertise-peer-urls=" + m.peerURL}, g.args...)
	}
	if g.secureClients {
		url := fmt.Sprintf("https://127.0.0.1:%d", m.cfg.ClientPort)
		m.cfg.Args = append([]string{"--listen-client-urls=" + url,
			"--advertise-client-urls=" + url}, m.cfg.Args...)
	}
	return m
}

func (g *group) initialCluster() string {
	var parts []string
	for _, m := range g.list {
		parts = append(parts, m.name+"="+m.peerURL)
	}
	return strings.Join(parts, ",")
}

// serving waits until a member serves and gives it a client.
func (g *group) serving(m *member) {
	g.t.Helper()
	m.Ready()
	if m.client == nil && !g.secureClients {
		m.client = m.Client()
	}
}

// join runs a member that was added.
func (g *group) join(m *member) {
	g.t.Helper()
	g.list = append(g.list, m)
	m.cfg.InitialCluster = g.initialCluster()
	m.cfg.Args = append(append([]string{}, g.args...), "--initial-cluster-state=existing")
	m.Server = proc.New(g.t, m.cfg)
	m.Launch()
	g.serving(m)
}

func (g *group) status(m *member) *pb.StatusResponse {
	ctx, cancel := context.WithTimeout(g.t.Context(), time.Second)
	defer cancel()
	st, err := m.client.Status(ctx, m.Addr())
	if err != nil {
		return nil
	}
	return (*pb.StatusResponse)(st)
}

// leader waits until a member that answers leads.
func (g *group) leader() (lead *member) {
	g.t.Helper()
	g.until("a leader", func() bool {
		for _, m := range g.list {
			if !m.Running() {
				continue
			}
			if st := g.status(m); st != nil && st.Leader == st.Header.MemberId {
				lead = m
				return true
			}
		}
		return false
	})
	return lead
}

// others returns the members but one.
func (g *group) others(not *member) (out []*member) {
	for _, m := range g.list {
		if m != not {
			out = append(out, m)
		}
	}
	return out
}

func (g *group) drop(gone *member) { g.list = g.others(gone) }

func (m *member) id(g *group) uint64 {
	g.t.Helper()
	var id uint64
	g.until("the id of "+m.name, func() bool {
		st := g.status(m)
		if st != nil {
			id = st.Header.MemberId
		}
		return st != nil
	})
	return id
}

// until waits for a condition.
func (g *group) until(what string, done func() bool) {
	g.t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			g.t.Fatalf("no %s after %v", what, patience)
		}
	}
}

func (g *group) put(m *member, key, value string, opts ...clientv3.OpOption) {
	g.t.Helper()
	err := g.elected(func() error {
		_,
			err := m.client.Put(proc.Context(g.t), key, value, opts...)
		return err
	})
	if err != nil {
		g.t.Fatalf("put at %s: %v", m.name, err)
	}
}

// elected makes a call, again if an election interrupts it; in a cluster that is steady that is an
// error.
func (g *group) elected(call func() error) (err error) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err = call(); slices.Contains(g.args, steady) || !interrupted(err) {
			break
		}
	}
	return err
}

// interrupted reports whether an error is that of an election.
func interrupted(err error) bool {
	return errors.Is(err, rpctypes.ErrNoLeader) || errors.Is(err, rpctypes.ErrLeaderChanged) ||
		errors.Is(err, rpctypes.ErrTimeoutDueToLeaderFail) ||
		errors.Is(err, rpctypes.ErrTimeoutDueToConnectionLost)
}

// logged waits for a text in the log of a member.
func (g *group) logged(m *member, text string) {
	g.t.Helper()
	select {
	case <-m.Log().Wait(text):
	case <-time.After(patience):
		g.t.Errorf("%s has not logged %q:\n%s", m.name, text, m.Log().Tail(20))
	}
}

// agree waits until all members have the same data, by the hash of all revisions.
func (g *group) agree() {
	g.t.Helper()
	var last string
	defer func() {
		if g.t.Failed() {
			g.t.Log(last)
		}
	}()
	g.until("agreement", func() bool {
		last = ""
		var first *clientv3.HashKVResponse
		rev := int64(0)
		for _, m := range g.list {
			ctx, cancel := context.WithTimeout(g.t.Context(), 5*time.Second)
			h, err := m.client.HashKV(ctx, m.Addr(), rev)
			cancel()
			if err != nil {
				last += fmt.Sprintf("%s: %v\n", m.name, err)
				return false
			}
			last += fmt.Sprintf("%s: %v\n", m.name, h)
			if first == nil {
				first, rev = h, h.Header.Revision
			}
			if h.Hash != first.Hash || h.Header.Revision != first.Header.Revision {
				return false
			}
		}
		return true
	})
}

// pause is how long a client of writers waits between two writes. Without it each cluster would
// take all processors.
const pause = 10 * time.Millisecond

// writers put at every member, one after the other, until stopped. What was acknowledged must stay.
type writers struct {
	g     *group
	stop  context.CancelFunc
	wg    sync.WaitGroup
	acked []atomic.Int64
	mu    sync.Mutex
	last  map[string]string
}

func (g *group) write() *writers {
	ctx, cancel := context.WithCancel(g.t.Context())
	w := &writers{g: g, stop: cancel, last: map[string]string{},
		acked: make([]atomic.Int64, len(g.list))}
	for i, m := range g.list {
		w.wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				key, value := fmt.Sprintf("w/%s/%d", m.name, n%100), fmt.Sprint(n)
				one, cancel := context.WithTimeout(ctx, 10*time.Second)
				_, err := m.client.Put(one, key, value)
				cancel()
				w.mu.Lock()
				if err == nil {
					w.acked[i].Add(1)
					w.last[key] = value
				} else {
					delete(w.last, key) // it may have taken effect
				}
				w.mu.Unlock()
				time.Sleep(pause)
			}
		})
	}
	return w
}

func (w *writers) total() (n int64) {
	for i := range w.acked {
		n += w.acked[i].Load()
	}
	return n
}

// more waits for n more acknowledged writes.
func (w *writers) more(n int64) {
	w.g.t.Helper()
	from := w.total()
	w.g.until("acknowledged writes", func() bool { return w.total() >= from+n })
}

// check ends the writers and compares what was acknowledged last with what is there.
func (w *writers) check() {
	w.g.t.Helper()
	w.stop()
	w.wg.Wait()
	m := w.g.leader()
	for key, value := range w.last {
		var res *clientv3.GetResponse
		err := w.g.elected(func() (err error) {
			res,
				err = m.client.Get(proc.Context(w.g.t), key)
			return err
		})
		if err != nil {
			w.g.t.Fatal(err)
		}
		if len(res.Kvs) == 0 || string(res.Kvs[0].Value) != value {
			w.g.t.Errorf("%s is %v, %q was acknowledged last", key, res.Kvs, value)
		}
	}
}

func dir(t testing.TB) string { return proc.Dir(t) }
