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

// grant grants a lease at a member.
func (g *group) grant(m *member, ttl int64) (l *clientv3.LeaseGrantResponse) {
	g.t.Helper()
	err := g.elected(func() (err error) {
		l,
			err = m.client.Grant(proc.Context(g.t), ttl)
		return err
	})
	if err != nil {
		g.t.Fatalf("grant at %s: %v", m.name, err)
	}
	return l
}

// deleted returns when a key is gone, as a member sees it.
func (g *group) deleted(m *member, key string) time.Time {
	g.t.Helper()
	g.until("end of the lease of "+key, func() bool {
		res, err := m.client.Get(proc.Context(g.t), key, clientv3.WithSerializable())
		return err == nil && len(res.Kvs) == 0
	})
	return time.Now()
}

// Leases on every member, over the death of the leader: one that is kept alive lives on, and one
// that is not ends, though not early.
func TestLeasesSurviveTheLeader(t *testing.T) {
	t.Parallel()
	g := start(t, 3)
	ctx := proc.Context(t)
	lead := g.leader()
	rest := g.others(lead)
	kept := g.grant(rest[0], 5)
	alive, stop := context.WithCancel(ctx)
	defer stop()
	answers, err := rest[1].client.KeepAlive(alive, kept.ID)
	if err != nil {
		t.Fatal(err)
	}
	left := g.grant(rest[1], 5)
	for key, id := range map[string]clientv3.LeaseID{"kept": kept.ID, "left": left.ID} {
		g.put(lead, key, "", clientv3.WithLease(id))
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
	began := time.Now()
	if s, err := rest[0].client.KeepAliveOnce(ctx, left.ID); err != nil || s.TTL != 5 {
		t.Fatalf("keep-alive: %+v, %v", s, err)
	}
	lead.Kill()
	if took := g.deleted(rest[0], "left").Sub(began); took < 5*time.Second {
		t.Errorf("a lease of 5 s ended %v after it was kept alive", took)
	}
	for range 3 {
		if a, ok := <-answers; !ok || a.TTL != 5 {
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
	if list, err := lead.client.Leases(ctx); err != nil ||
		!slices.Equal(list.Leases, []clientv3.LeaseStatus{{ID: kept.ID}}) {
		t.Errorf("leases after the restart: %+v, %v", list, err)
	}
}

// A leader that was paused beyond the TTL of leases, while another one led, ends none
// of them when it goes on, and promises nothing about those that have ended.
func TestLeasesOfPausedLeader(t *testing.T) {
	t.Parallel()
	g := start(t, 3)
	ctx := proc.Context(t)
	lead := g.leader()
	rest := g.others(lead)
	const leases = 20
	alive, stop := context.WithCancel(ctx)
	defer stop()
	var left clientv3.LeaseID // is not kept alive; it comes last, so that it does not end meanwhile
	for i := leases - 1; i >= 0; i-- {
		l := g.grant(lead, 5)
		if left = l.ID; i > 0 {
			if _, err := rest[0].client.KeepAlive(alive, l.ID); err != nil {
				t.Fatal(err)
			}
		}
		g.put(lead, fmt.Sprintf("k%02d", i), "", clientv3.WithLease(l.ID))
	}
	lead.Pause()
	g.recovery(rest)
	g.deleted(rest[0], "k00")
	answer := make(chan error, 1)
	go func() {
		_, err := lead.client.KeepAliveOnce(proc.Context(t), left)
		answer <- err
	}()
	// So that the question is likely to be there when it goes on; the answer must be the same if it
	// is not.
	time.Sleep(50 * time.Millisecond)
	lead.Resume()
	if err := <-answer; err == nil {
		t.Error("a lease that has ended was kept alive")
	}
	// What a member forwards in the moment before its connections are made again is lost, like with
	// etcd.
	g.recovery([]*member{lead})
	for i := range 30 {
		g.put(lead, fmt.Sprintf("n%02d", i), "x")
	}
	for _, m := range g.list {
		if res, err := m.client.Get(ctx, "k", clientv3.WithPrefix(),
			clientv3.WithCountOnly()); err != nil || res.Count != leases-1 {
			t.Errorf("%s: %v, %v", m.name, res, err)
		}
	}
	g.agree()
}
