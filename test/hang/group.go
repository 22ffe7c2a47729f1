package hang

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/proc"
)

// patience bounds the wait for what must come.
const patience = 60 * time.Second

// member is a member with a disk of its own.
type member struct {
	*proc.Server
	disk   *disk
	client *clientv3.Client
	id     uint64
}

// group is a cluster of three.
type group struct {
	t       testing.TB
	members []*member
}

// start runs a cluster of a program. args returns more arguments of a member.
func start(t testing.TB, program proc.Program, args func(n int) []string) *group {
	t.Helper()
	g := &group{t: t}
	var peers []int
	var list []string
	for n := range 3 {
		peers = append(peers, proc.FreePort(t))
		list = append(list, fmt.Sprintf("m%d=http://127.0.0.1:%d", n, peers[n]))
	}
	for n := range 3 {
		d := newDisk(t)
		s := proc.New(t, proc.Config{Program: program, Name: fmt.Sprintf("m%d", n),
			DataDir: filepath.Join(d.dir, "data"), PeerPort: peers[n],
			InitialCluster: strings.Join(list, ","), Args: args(n)})
		t.Cleanup(d.Thaw) // a process that waits for the disk cannot be killed
		s.Launch()
		g.members = append(g.members, &member{Server: s, disk: d})
	}
	for _, m := range g.members {
		m.Ready()
		m.client = m.Client()
		await(t, "identity", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			st, err := m.client.Status(ctx, m.Addr())
			if err == nil {
				m.id = st.Header.MemberId
			}
			return err == nil
		})
	}
	return g
}

func await(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// leads returns the leader that a member knows, 0 if it knows none or does not answer.
func (m *member) leads(ctx context.Context) uint64 {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	st, err := m.client.Status(ctx, m.Addr())
	if err != nil {
		return 0
	}
	return st.Leader
}

// leader waits until all members agree on a leader and take writes, and returns it and the others.
func (g *group) leader() (lead *member, others []*member) {
	g.t.Helper()
	await(g.t, "all members agree on a leader", func() bool {
		lead, others = nil, nil
		known := map[uint64]bool{}
		for _, m := range g.members {
			ctx, cancel := context.WithTimeout(g.t.Context(), time.Second)
			_, err := m.client.Put(ctx, "check", "")
			cancel()
			if err != nil {
				return false
			}
			id := m.leads(g.t.Context())
			known[id] = true
			if id == m.id {
				lead = m
			} else {
				others = append(others, m)
			}
		}
		return len(known) == 1 && lead != nil
	})
	// What earlier faults have left takes no more space.
	ctx, cancel := context.WithTimeout(g.t.Context(), patience)
	defer cancel()
	r, err := lead.client.Put(ctx, "check", "")
	if err == nil {
		_, err = lead.client.Compact(ctx, r.Header.Revision)
	}
	if err != nil {
		g.t.Fatal(err)
	}
	return lead, others
}

const (
	// ttl is that of the leases, in seconds. Those that are kept alive are renewed each renewal,
	// and an answer may take keepAliveTimeout.
	ttl              = 4
	renewal          = 500 * time.Millisecond
	keepAliveTimeout = 2 * time.Second
	// kept are the leases that are kept alive, left those that are not.
	kept, left = 6, 3
	// putTimeout bounds a put.
	putTimeout = time.Second
)

// figures are what clients at the other members see of a fault of the leader.
type figures struct {
	// newLeader is when both others knew another leader, 0 if they never did; changes is how often
	// the first of them learned of one.
	newLeader time.Duration
	changes   int
	// outage is the longest time without a successful put, outageKeepAlives without an answer to a
	// keep-alive of a lease.
	outage, keepAliveOutage time.Duration
	// asked and lost are keep-alives, ended the leases that ended although they were kept alive.
	asked, lost, ended int64
	// leftEnded are the other leases that ended during the fault, and late how long after their TTL
	// the last one of all did.
	leftEnded int
	late      time.Duration
}

// watchFault lets clients work at the others while a fault of the leader lasts.
func (g *group) watchFault(lead *member, others []*member, valueBytes int, lasts time.Duration,
	fault func() (end func())) (f figures) {
	g.t.Helper()
	ctx, stop := context.WithCancel(g.t.Context())
	defer stop()
	var clients sync.WaitGroup
	var asked, lost, ended atomic.Int64
	keepAlive := &gaps{}
	var leases []clientv3.LeaseID
	for n := range kept + left {
		m := others[n%len(others)]
		l, err := m.client.Grant(proc.Context(g.t), ttl)
		if err != nil {
			g.t.Fatal(err)
		}
		if _, err := m.client.Put(proc.Context(g.t), fmt.Sprintf("lease/%d", n), "",
			clientv3.WithLease(l.ID)); err != nil {
			g.t.Fatal(err)
		}
		leases = append(leases, l.ID)
	}
	granted := time.Now()
	for n, id := range leases[:kept] {
		m := others[n%len(others)]
		clients.Go(func() {
			mine := &gaps{}
			defer func() { keepAlive.merge(mine) }()
			for ctx.Err() == nil {
				begun := time.Now()
				limited, cancel := context.WithTimeout(ctx, keepAliveTimeout)
				_, err := m.client.KeepAliveOnce(limited, id)
				cancel()
				if ctx.Err() != nil {
					return
				}
				asked.Add(1)
				if errors.Is(err, rpctypes.ErrLeaseNotFound) {
					ended.Add(1)
					return
				}
				if err != nil {
					lost.Add(1)
				} else {
					mine.success(time.Now())
				}
				pause(ctx, renewal-time.Since(begun))
			}
		})
	}
	puts := &gaps{}
	value := strings.Repeat("v", valueBytes)
	for w, m := range others {
		clients.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				limited, cancel := context.WithTimeout(ctx, putTimeout)
				_, err := m.client.Put(limited, fmt.Sprintf("put/%d/%d", w, i%50), value)
				cancel()
				if err == nil {
					puts.success(time.Now())
				}
				pause(ctx, 20*time.Millisecond)
			}
		})
	}
	pause(ctx, time.Second)
	begun := time.Now()
	end := fault()
	leaders := make(chan time.Duration, len(others))
	var changes atomic.Int64
	for n, m := range others {
		clients.Go(func() {
			known := lead.id
			for found := false; ctx.Err() == nil; pause(ctx, 10*time.Millisecond) {
				id := m.leads(ctx)
				if id == 0 || id == known {
					continue
				}
				if known = id; !found {
					leaders <- time.Since(begun)
					found = true
				}
				if n == 0 {
					changes.Add(1)
				}
			}
		})
	}
	gone := make([]time.Duration, left)
	for n := range left {
		m := others[n%len(others)]
		clients.Go(func() {
			for ctx.Err() == nil {
				limited, cancel := context.WithTimeout(ctx, time.Second)
				r, err := m.client.Get(limited, fmt.Sprintf("lease/%d", kept+n),
					clientv3.WithSerializable())
				cancel()
				if err == nil && len(r.Kvs) == 0 {
					gone[n] = time.Since(granted)
					return
				}
				pause(ctx, 20*time.Millisecond)
			}
		})
	}
	pause(ctx, lasts)
	for n := range gone {
		if gone[n] > 0 {
			f.leftEnded++
		}
	}
	end()
	pause(ctx, 3*time.Second)
	f.outage, f.keepAliveOutage = puts.longest(begun), time.Duration(0)
	stop()
	clients.Wait()
	f.keepAliveOutage = keepAlive.longest(begun)
	for len(leaders) > 0 {
		f.newLeader = max(f.newLeader, <-leaders)
	}
	for _, d := range gone {
		if d == 0 {
			d = time.Since(granted)
		}
		f.late = max(f.late, d-ttl*time.Second)
	}
	f.changes, f.asked, f.lost, f.ended = int(changes.Load()), asked.Load(),
		lost.Load(), ended.Load()
	return f
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(max(d, 0)):
	}
}

// gaps remembers the longest times between successes.
type gaps struct {
	mu    sync.Mutex
	last  time.Time
	found []gapped
}

type gapped struct{ from, to time.Time }

func (g *gaps) success(at time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.last.IsZero() && at.Sub(g.last) > 100*time.Millisecond {
		g.found = append(g.found, gapped{g.last, at})
	}
	g.last = at
}

// merge adds the gaps of another one.
func (g *gaps) merge(o *gaps) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.found = append(g.found, o.found...)
	if !o.last.IsZero() {
		g.found = append(g.found, gapped{o.last, time.Now()})
	}
}

// longest returns the longest gap that ended after a time.
func (g *gaps) longest(after time.Time) (d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, x := range append(g.found, gapped{g.last, time.Now()}) {
		if x.to.After(after) && !x.from.IsZero() {
			d = max(d, x.to.Sub(x.from))
		}
	}
	return d
}
