package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/proc"
)

// deleted returns when a key is gone, as a member sees it.
func (g *group) deleted(m *member, key string) time.Time {
	g.t.Helper()
	g.until("end of the lease of "+key, func() bool {
		res, err := m.client.Get(proc.Context(g.t), key, clientv3.WithSerializable())
		return err == nil && len(res.Kvs) == 0
	})
	return time.Now()
}

// Leases on every member, over the death of the leader: one that is kept alive lives on, and one that is not
// ends, though not early.
func TestLeasesSurviveTheLeader(t *testing.T) {
	g := start(t, 3)
	ctx := proc.Context(t)
	lead := g.leader()
	rest := g.others(lead)
	kept, err := rest[0].client.Grant(ctx, 3)
	if err != nil {
		t.Fatal(err)
	}
	left, err := rest[1].client.Grant(ctx, 5)
	if err != nil {
		t.Fatal(err)
	}
	for key, id := range map[string]clientv3.LeaseID{"kept": kept.ID, "left": left.ID} {
		if _, err := lead.client.Put(ctx, key, "", clientv3.WithLease(id)); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range g.list {
		s, err := m.client.TimeToLive(ctx, left.ID, clientv3.WithAttachedKeys())
		if err != nil || s.GrantedTTL != 5 || s.TTL > 5 || len(s.Keys) != 1 {
			t.Errorf("%s: time to live: %+v, %v", m.name, s, err)
		}
		if list, err := m.client.Leases(ctx); err != nil || len(list.Leases) != 2 {
			t.Errorf("%s: leases: %+v, %v", m.name, list, err)
		}
		if _, err := m.client.KeepAliveOnce(ctx, 77); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			t.Errorf("%s: keep-alive of a lease that is none: %v", m.name, err)
		}
	}
	alive, stop := context.WithCancel(ctx)
	defer stop()
	answers, err := rest[1].client.KeepAlive(alive, kept.ID)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if s, err := rest[0].client.KeepAliveOnce(ctx, left.ID); err != nil || s.TTL != 5 {
		t.Fatalf("keep-alive: %+v, %v", s, err)
	}
	lead.Kill()
	if took := g.deleted(rest[0], "left").Sub(began); took < 5*time.Second {
		t.Errorf("a lease of 5 s ended %v after it was kept alive", took)
	}
	for range 3 {
		if a, ok := <-answers; !ok || a.TTL != 3 {
			t.Fatalf("the keep-alive ended: %v", a)
		}
	}
	for _, m := range rest {
		if res, err := m.client.Get(ctx, "kept"); err != nil || len(res.Kvs) != 1 {
			t.Errorf("%s: the key that is kept: %v, %v", m.name, res, err)
		}
	}
	lead.Restart()
	g.agree()
	if list, err := lead.client.Leases(ctx); err != nil || !slices.Equal(list.Leases, []clientv3.LeaseStatus{{ID: kept.ID}}) {
		t.Errorf("leases after the restart: %+v, %v", list, err)
	}
}

// A leader that was paused beyond the TTL of leases, with another one leading meanwhile, ends none of them
// when it goes on, and promises nothing about those that have ended.
func TestLeasesOfPausedLeader(t *testing.T) {
	g := start(t, 3)
	ctx := proc.Context(t)
	lead := g.leader()
	rest := g.others(lead)
	var ids []clientv3.LeaseID
	for i := range 20 {
		l, err := lead.client.Grant(ctx, 3)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := lead.client.Put(ctx, fmt.Sprintf("k%02d", i), "", clientv3.WithLease(l.ID)); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, l.ID)
	}
	alive, stop := context.WithCancel(ctx)
	defer stop()
	for _, id := range ids[1:] {
		if _, err := rest[0].client.KeepAlive(alive, id); err != nil {
			t.Fatal(err)
		}
	}
	lead.Pause()
	g.recovery(rest)
	g.deleted(rest[0], "k00")
	answer := make(chan error, 1)
	go func() {
		_, err := lead.client.KeepAliveOnce(proc.Context(t), ids[0])
		answer <- err
	}()
	// So that the question is likely to be there when it goes on; the answer must be the same if it is not.
	time.Sleep(50 * time.Millisecond)
	lead.Resume()
	if err := <-answer; err == nil {
		t.Error("a lease that has ended was kept alive")
	}
	// What a member forwards in the moment before its connections are made again is lost, like with etcd.
	g.recovery([]*member{lead})
	for i := range 30 {
		g.put(lead, fmt.Sprintf("n%02d", i), "x")
	}
	for _, m := range g.list {
		if res, err := m.client.Get(ctx, "k", clientv3.WithPrefix(), clientv3.WithCountOnly()); err != nil || res.Count != int64(len(ids)-1) {
			t.Errorf("%s: %v, %v", m.name, res, err)
		}
	}
	g.agree()
}
