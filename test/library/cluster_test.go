package library

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/client"
	"vigil/test/link"
	"vigil/test/proc"
)

// patience bounds the waiting for what must come.
const patience = 60 * time.Second

// on runs a test against Vigil and a stock etcd.
func on(t *testing.T, f func(t *testing.T, p proc.Program)) {
	for _, p := range []proc.Program{proc.Vigil, proc.Etcd} {
		t.Run(string(p), func(t *testing.T) { f(t, p) })
	}
}

// cluster is members whose clients in this process go through a network.
type cluster struct {
	t       *testing.T
	members []*proc.Server
	names   []string
	proxies []string
	net     *link.Network
	direct  *clientv3.Client // to all, not through the network
}

// me is this process on the network.
const me = "client"

func start(t *testing.T, p proc.Program, n int) *cluster {
	t.Helper()
	c := &cluster{t: t, net: link.New(t)}
	c.net.Runs(me, os.Getpid())
	var initial, direct []string
	var cfgs []proc.Config
	for i := range n {
		cfg := proc.Config{Program: p, Memory: true, Name: fmt.Sprint("m", i+1),
			ClientPort: proc.FreePort(t), PeerPort: proc.FreePort(t)}
		initial = append(initial, fmt.Sprintf("%s=http://127.0.0.1:%d", cfg.Name, cfg.PeerPort))
		direct = append(direct, fmt.Sprintf("127.0.0.1:%d", cfg.ClientPort))
		cfgs = append(cfgs, cfg)
	}
	for i, cfg := range cfgs {
		cfg.InitialCluster = strings.Join(initial, ",")
		s := proc.New(t, cfg)
		s.Launch()
		c.members = append(c.members, s)
		c.names = append(c.names, cfg.Name)
		c.proxies = append(c.proxies, c.net.Node(cfg.Name, direct[i]))
	}
	for _, s := range c.members {
		s.Ready()
	}
	c.direct = c.members[0].Client()
	c.direct.SetEndpoints(direct...)
	return c
}

// open returns a client that goes through the network.
func (c *cluster) open(change ...func(*client.Config)) *client.Client {
	c.t.Helper()
	cfg := client.Config{Endpoints: c.proxies, KeepAliveTimeout: 2 * time.Second}
	for _, f := range change {
		f(&cfg)
	}
	k, err := client.Connect(ctx(c.t), cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := k.Close(); err != nil {
			c.t.Error(err)
		}
	})
	return k
}

// at returns the number of the member that a client uses.
func (c *cluster) at(k *client.Client) int {
	c.t.Helper()
	for i, p := range c.proxies {
		if p == k.Member() {
			return i
		}
	}
	c.t.Fatalf("the client uses %q", k.Member())
	return 0
}

func (c *cluster) put(key, value string) int64 {
	c.t.Helper()
	for end := time.Now().Add(patience); ; {
		short, cancel := context.WithTimeout(c.t.Context(), 3*time.Second)
		r, err := c.direct.Put(short, key, value)
		cancel()
		if err == nil {
			return r.Header.Revision
		}
		// The same value again is another event, which is fine: what counts is that none is missed.
		if time.Now().After(end) {
			c.t.Fatal(err)
		}
	}
}

func ctx(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// history returns all events of a prefix as the server has them, from a revision on.
func (c *cluster) history(prefix string, from int64, last int64) (list []string) {
	c.t.Helper()
	for r := range c.direct.Watch(ctx(c.t), prefix, clientv3.WithPrefix(), clientv3.WithRev(from)) {
		if err := r.Err(); err != nil {
			c.t.Fatal(err)
		}
		for _, ev := range r.Events {
			list = append(list, fmt.Sprintf("%s=%s@%d", ev.Kv.Key, ev.Kv.Value, ev.Kv.ModRevision))
			if ev.Kv.ModRevision == last {
				return list
			}
		}
	}
	c.t.Fatal("the watch of the history ended")
	return nil
}

// readTo reads a watcher up to a revision.
func readTo(t *testing.T, w *client.Watcher, last int64) (list []string) {
	t.Helper()
	for ev, err := range w.Events() {
		if err != nil {
			t.Fatalf("after %d events: %v", len(list), err)
		}
		list = append(list, fmt.Sprintf("%s=%s@%d", ev.KV.Key, ev.KV.Value, ev.KV.ModRevision))
		if ev.KV.ModRevision == last {
			return list
		}
	}
	t.Fatal("the watch ended")
	return nil
}
