package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/proc"
)

// A leader whose followers do not answer acknowledges nothing and answers no linearizable read,
// neither while it still takes itself for the leader nor later; what it knows it still tells to
// those who ask for that only.
func TestLeaderWithoutQuorum(t *testing.T) {
	t.Parallel()
	g := start(t, 3)
	lead := g.leader()
	g.put(lead, "k", "v")
	rest := g.others(lead)
	for _, m := range rest {
		m.Pause()
	}
	// Both asked before it can have noticed.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		if res, err := lead.client.Get(ctx, "k"); err == nil {
			t.Errorf("a read without a quorum: %v", res)
		}
	})
	wg.Go(func() {
		if _, err := lead.client.Put(ctx, "k", "w"); err == nil {
			t.Error("a write without a quorum")
		}
	})
	wg.Wait()
	g.until("the leader to step down",
		func() bool { st := g.status(lead); return st != nil && st.Leader == 0 })
	if res, err := lead.client.Get(proc.Context(t), "k", clientv3.WithSerializable()); err != nil ||
		string(res.Kvs[0].Value) != "v" {
		t.Errorf("a serializable read: %v, %v", res, err)
	}
	short, cancel2 := context.WithTimeout(t.Context(), time.Second)
	defer cancel2()
	if res, err := lead.client.Get(short, "k"); err == nil {
		t.Errorf("a read after stepping down: %v", res)
	}
	for _, m := range rest {
		m.Resume()
	}
	g.put(lead, "k", "x")
	g.agree()
}

// A leader is paused with SIGSTOP again and again while clients read and write at all members, it
// among them. No read returns less than what was acknowledged before it began, and no acknowledged
// write is lost.
func TestPausedLeaderUnderLoad(t *testing.T) {
	t.Parallel()
	g := start(t, 3)
	w := g.write()
	g.put(g.list[0], "counter", "0")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	// Counts up at all members in turn; an attempt whose outcome is unknown cannot count later.
	var acked atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			m := g.list[i%len(g.list)]
			one, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
			res, err := m.client.Get(one, "counter")
			if err == nil {
				now, _ := strconv.ParseInt(string(res.Kvs[0].Value), 10, 64)
				if floor := acked.Load(); now < floor {
					t.Errorf("the writer reads %d at %s, %d was acknowledged", now, m.name, floor)
				}
				txn, err := m.client.Txn(one).If(clientv3.Compare(clientv3.ModRevision("counter"),
					"=", res.Kvs[0].ModRevision)).
					Then(clientv3.OpPut("counter", fmt.Sprint(now+1))).Commit()
				if err == nil && txn.Succeeded {
					acked.Store(now + 1)
				}
			}
			cancel()
			time.Sleep(time.Millisecond)
		}
	})
	reads := make([]atomic.Int64, len(g.list))
	for i, m := range g.list {
		for range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					floor := acked.Load()
					res, err := m.client.Get(ctx, "counter")
					if err != nil {
						continue
					}
					reads[i].Add(1)
					time.Sleep(pause)
					if now, _ := strconv.ParseInt(string(res.Kvs[0].Value), 10, 64); now < floor {
						t.Errorf("a stale read at %s: %d, %d was acknowledged before",
							m.name, now, floor)
						return
					}
				}
			})
		}
	}
	for range 2 * trials(t) {
		lead := g.leader()
		lead.Pause()
		rest := g.others(lead)
		g.recovery(rest)
		from := acked.Load()
		g.until("the counter to go on", func() bool { return acked.Load() > from+3 })
		lead.Resume()
		at := 0
		for i, m := range g.list {
			if m == lead {
				at = i
			}
		}
		before := reads[at].Load()
		g.until("reads at the leader that was paused",
			func() bool { return reads[at].Load() > before+20 })
	}
	stop()
	wg.Wait()
	w.check()
	g.agree()
	t.Logf("counted to %d; reads by member: %d, %d, %d", acked.Load(), reads[0].Load(),
		reads[1].Load(), reads[2].Load())
}

// A leader without a quorum lets no lease expire, and the time without one is not counted: who
// keeps a lease alive as soon as that is possible again has not lost it.
func TestNoLeaseExpiresWithoutQuorum(t *testing.T) {
	t.Parallel()
	g := start(t, 3)
	ctx := proc.Context(t)
	const ttl = 4 * time.Second
	lead := g.leader()
	lease, err := lead.client.Grant(ctx, int64(ttl/time.Second))
	if err != nil {
		t.Fatal(err)
	}
	alive, stop := context.WithCancel(ctx) // until there is no quorum
	defer stop()
	if _, err := lead.client.KeepAlive(alive, lease.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := lead.client.Put(ctx, "leased", "v", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	there := func(m *member) bool {
		res, err := m.client.Get(ctx, "leased", clientv3.WithSerializable())
		if err != nil {
			t.Fatal(err)
		}
		return len(res.Kvs) == 1
	}
	rest := g.others(lead)
	for _, m := range rest {
		m.Pause()
	}
	stop()
	for over := time.Now().Add(ttl * 3 / 2); time.Now().Before(over); time.Sleep(20 * time.Millisecond) {
		if !there(lead) {
			t.Fatal("a lease has expired without a quorum")
		}
	}
	for _, m := range rest {
		m.Resume()
	}
	g.until("the lease to be kept alive", func() bool {
		one, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := lead.client.KeepAliveOnce(one, lease.ID)
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			t.Fatal("the lease is gone")
		}
		return err == nil
	})
	g.until("the end of the lease",
		func() bool { return !there(g.list[0]) && !there(g.list[1]) && !there(g.list[2]) })
	g.agree()
}
