package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"vigil/test/proc"
)

func TestLease(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Memory: true})
	c := s.Client()
	ctx := proc.Context(t)

	g, err := c.Grant(ctx, 100)
	if err != nil || g.TTL != 100 || g.ID <= 0 {
		t.Fatalf("grant: %+v, %v", g, err)
	}
	least, err := c.Grant(ctx, 1)
	if err != nil || least.TTL != 2 {
		t.Fatalf("grant of one second: %+v, %v", least, err)
	}
	short, err := c.Grant(ctx, 6)
	if err != nil {
		t.Fatal(err)
	}
	w := c.Watch(ctx, "l/", clientv3.WithPrefix())
	for _, k := range []string{"l/b", "l/a"} {
		if _, err := c.Put(ctx, k, "v", clientv3.WithLease(short.ID)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Put(ctx, "m"+k, "v", clientv3.WithLease(g.ID)); err != nil {
			t.Fatal(err)
		}
	}
	ttl, err := c.TimeToLive(ctx, g.ID, clientv3.WithAttachedKeys())
	if err != nil || ttl.GrantedTTL != 100 || ttl.TTL < 90 || ttl.TTL > 100 || len(ttl.Keys) != 2 ||
		string(ttl.Keys[0]) != "ml/a" {
		t.Errorf("time to live: %+v, %v", ttl, err)
	}
	if ka, err := c.KeepAliveOnce(ctx, g.ID); err != nil || ka.TTL != 100 {
		t.Errorf("keep-alive: %+v, %v", ka, err)
	}
	list, err := c.Leases(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var ids []clientv3.LeaseID // the nearest end first
	for _, l := range list.Leases {
		if l.ID != least.ID {
			ids = append(ids, l.ID)
		}
	}
	if !slices.Equal(ids, []clientv3.LeaseID{short.ID, g.ID}) {
		t.Errorf("leases: %+v", list)
	}
	// The short one ends by itself: both its keys go, in one revision.
	var events []*clientv3.Event
	for len(events) < 4 {
		r := <-w
		if err := r.Err(); err != nil {
			t.Fatal(err)
		}
		events = append(events, r.Events...)
	}
	a, b := events[2], events[3]
	if a.Type != mvccpb.DELETE || b.Type != mvccpb.DELETE || string(a.Kv.Key) != "l/a" ||
		string(b.Kv.Key) != "l/b" || a.Kv.ModRevision != b.Kv.ModRevision {
		t.Errorf("events of the end: %v %v", a, b)
	}
	if _, err := c.KeepAliveOnce(ctx, short.ID); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		t.Errorf("keep-alive of a lease that has ended: %v", err)
	}
	if ttl, err := c.TimeToLive(ctx, short.ID); err != nil || ttl.TTL != -1 {
		t.Errorf("time to live of a lease that has ended: %+v, %v", ttl, err)
	}

	// What was granted outlives the process, with its keys.
	s.Kill()
	s.Restart()
	c = s.Client()
	ttl, err = c.TimeToLive(ctx, g.ID, clientv3.WithAttachedKeys())
	if err != nil || ttl.GrantedTTL != 100 || len(ttl.Keys) != 2 {
		t.Errorf("time to live after a restart: %+v, %v", ttl, err)
	}
	rev, err := c.Revoke(ctx, g.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.Get(ctx, "m", clientv3.WithPrefix()); err != nil || got.Count != 0 ||
		got.Header.Revision != rev.Header.Revision {
		t.Errorf("after the revocation at %d: %v, %v", rev.Header.Revision, got, err)
	}
	if _, err := c.Revoke(ctx, g.ID); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		t.Errorf("revoked again: %v", err)
	}
}

// A lease is kept alive for several times its TTL by the client's own keep-alives, and ends soon
// after they do.
func TestLeaseIsKeptAlive(t *testing.T) {
	t.Parallel()
	c := proc.Start(t, proc.Config{Memory: true}).Client()
	ctx := proc.Context(t)
	const ttl = 4
	g, err := c.Grant(ctx, ttl)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(ctx, "k", "v", clientv3.WithLease(g.ID)); err != nil {
		t.Fatal(err)
	}
	alive, stop := context.WithCancel(ctx)
	defer stop()
	answers, err := c.KeepAlive(alive, g.ID)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for time.Since(began) < 3*ttl*time.Second {
		if a, ok := <-answers; !ok || a.TTL != ttl {
			t.Fatalf("keep-alive after %v: %v", time.Since(began), a)
		}
	}
	if got, err := c.Get(ctx, "k"); err != nil || got.Count != 1 {
		t.Fatalf("the key of a lease that is kept alive: %v, %v", got, err)
	}
	w := c.Watch(ctx, "k", clientv3.WithFilterPut())
	stop()
	if r := <-w; r.Err() != nil || len(r.Events) != 1 || r.Events[0].Type != mvccpb.DELETE {
		t.Errorf("the end: %+v", r)
	}
}

// The recipes of the stock client: sessions, mutexes, elections.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Memory: true})
	ctx := proc.Context(t)
	session := func() *concurrency.Session {
		x, err := concurrency.NewSession(s.Client(), concurrency.WithTTL(5))
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	held := make(chan int, 1)
	done := make(chan error, 4)
	for i := range 4 {
		x := session()
		go func() {
			m := concurrency.NewMutex(x, "mutex/")
			err := m.Lock(ctx)
			if err == nil {
				select {
				case held <- i:
					<-held
				default:
					err = fmt.Errorf("two hold the mutex")
				}
				err = errors.Join(err, m.Unlock(ctx))
			}
			done <- errors.Join(err, x.Close())
		}()
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}

	first, second := session(), session()
	e1, e2 := concurrency.NewElection(first, "election/"),
		concurrency.NewElection(second, "election/")
	if err := e1.Campaign(ctx, "one"); err != nil {
		t.Fatal(err)
	}
	won := make(chan error, 1)
	go func() { won <- e2.Campaign(ctx, "two") }()
	if l, err := e1.Leader(ctx); err != nil || string(l.Kvs[0].Value) != "one" {
		t.Fatalf("leader %v, %v", l, err)
	}
	// The leader dies without a word: its lease ends.
	first.Orphan()
	if err := <-won; err != nil {
		t.Fatal(err)
	}
	if l, err := e2.Leader(ctx); err != nil || string(l.Kvs[0].Value) != "two" {
		t.Errorf("leader %v, %v", l, err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	list, err := s.Client().Leases(ctx)
	if err != nil || slices.ContainsFunc(list.Leases,
		func(l clientv3.LeaseStatus) bool { return l.ID == second.Lease() }) {
		t.Errorf("leases %v, %v", list, err)
	}
}
