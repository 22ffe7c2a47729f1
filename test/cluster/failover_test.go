package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/test/proc"
)

func trials(t *testing.T) int {
	n := 2
	if s := os.Getenv("VIGIL_TRIALS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// recovery returns how long it takes from now until one of the members acknowledges a write that
// began after now.
func (g *group) recovery(members []*member) time.Duration {
	g.t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(g.t.Context(), patience)
	defer cancel()
	done := make(chan time.Duration, len(members))
	for _, m := range members {
		go func() {
			// A write that was sent to the former leader gets no answer. The next one has more
			// time, for slow machines.
			for wait := 250 * time.Millisecond; ctx.Err() == nil; wait = min(2*wait,
				5*time.Second) {
				one, cancel := context.WithTimeout(ctx, wait)
				_, err := m.client.Put(one, "recovery", m.name)
				cancel()
				if err == nil {
					done <- time.Since(began)
					return
				}
			}
		}()
	}
	select {
	case d := <-done:
		return d
	case <-ctx.Done():
		g.t.Fatal("no write is acknowledged any more")
		return 0
	}
}

func report(t *testing.T, what string, all []time.Duration) {
	slices.Sort(all)
	t.Logf("%s: %s: median %v, least %v, most %v of %d", proc.Subject(), what,
		all[len(all)/2].Round(time.Millisecond), all[0].Round(time.Millisecond),
		all[len(all)-1].Round(time.Millisecond), len(all))
}

// The leader is killed under load: another one takes over, and nothing that was acknowledged is
// lost.
func TestKilledLeader(t *testing.T) {
	t.Parallel()
	g := start(t, 3)
	w := g.write()
	var all []time.Duration
	for range trials(t) {
		w.more(100)
		lead := g.leader()
		lead.Kill()
		all = append(all, g.recovery(g.others(lead)))
		w.more(100)
		lead.Restart()
	}
	w.check()
	g.agree()
	report(t, "writes again after a kill of the leader", all)
}

// The leader is stopped under load: it hands over, and the others go on with hardly a pause.
func TestStoppedLeader(t *testing.T) {
	t.Parallel()
	g := start(t, 3, steady)
	w := g.write()
	var all []time.Duration
	for range trials(t) {
		w.more(100)
		lead := g.leader()
		gone := make(chan int)
		before := time.Now()
		go func() { gone <- lead.Stop() }()
		// The longest time in which no member but the leader acknowledges a write.
		pause, last, acked := time.Duration(0), before, int64(-1)
		for time.Since(before) < 700*time.Millisecond {
			n := int64(0)
			for i, m := range g.list {
				if m != lead {
					n += w.acked[i].Load()
				}
			}
			if now := time.Now(); n != acked {
				pause, last, acked = max(pause, now.Sub(last)), now, n
			}
			time.Sleep(time.Millisecond)
		}
		all = append(all, max(pause, time.Since(last)))
		if code := <-gone; code != 0 && proc.Subject() == proc.Vigil {
			t.Errorf("exit code %d", code)
		}
		if log := lead.Log().String(); proc.Subject() == proc.Vigil &&
			!strings.Contains(log, "leadership transfer finished") {
			t.Errorf("no handing over:\n%s", lead.Log().Tail(10))
		}
		w.more(100)
		lead.Restart()
	}
	w.check()
	g.agree()
	report(t, "longest pause of writes at a stop of the leader", all)
}

// Every member is restarted in turn while clients write.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	g := start(t, 3)
	w := g.write()
	for _, m := range g.list {
		w.more(100)
		if code := m.Stop(); code != 0 && proc.Subject() == proc.Vigil {
			t.Errorf("exit code %d of %s", code, m.name)
		}
		w.more(100)
		m.Restart()
	}
	w.more(100)
	w.check()
	g.agree()
}

// All members are killed at once and started again.
func TestKilledCluster(t *testing.T) {
	t.Parallel()
	g := start(t, 3)
	w := g.write()
	w.more(200)
	for _, m := range g.list {
		m.Kill()
	}
	for _, m := range g.list {
		m.Launch()
	}
	for _, m := range g.list {
		m.Ready()
	}
	w.more(100)
	w.check()
	g.agree()
}

// A leader that was paused until another one leads serves nothing stale when it goes on, and
// acknowledges no write that is lost.
func TestPausedLeader(t *testing.T) {
	t.Parallel()
	g := start(t, 3)
	lead := g.leader()
	g.put(lead, "k", "before")
	lead.Pause()
	rest := g.others(lead)
	g.recovery(rest)
	g.put(rest[0], "k", "after")
	type answer struct {
		value string
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		// It arrives while the leader is paused, and is the first thing it reads.
		res, err := lead.client.Get(proc.Context(t), "k")
		if err != nil {
			answers <- answer{err: err}
			return
		}
		answers <- answer{value: string(res.Kvs[0].Value)}
	}()
	time.Sleep(50 * time.Millisecond)
	lead.Resume()
	if a := <-answers; a.err == nil && a.value != "after" {
		t.Errorf("a stale read: %q", a.value)
	}
	// What a member forwards in the moment before its connections are made again is lost, like with
	// etcd.
	g.recovery([]*member{lead})
	for i := range 20 {
		g.put(lead, fmt.Sprintf("n%d", i), "x")
	}
	g.agree()
}

// A member without the others answers what it can answer alone, and the rest with the error that
// says why, and goes on by itself when one comes back.
func TestNoQuorum(t *testing.T) {
	t.Parallel()
	g := start(t, 3)
	alone := g.list[0]
	g.put(alone, "k", "v")
	for _, m := range g.list[1:] {
		m.Kill()
	}
	g.until("member without a leader", func() bool {
		st := g.status(alone)
		return st != nil && st.Leader == 0
	})
	ctx := clientv3.WithRequireLeader(proc.Context(t))
	if _, err := alone.client.Get(ctx, "k"); err == nil ||
		!strings.Contains(err.Error(), "etcdserver: no leader") {
		t.Errorf("a read that requires a leader: %v", err)
	}
	if res, err := alone.client.Get(proc.Context(t), "k",
		clientv3.WithSerializable()); err != nil || len(res.Kvs) != 1 {
		t.Errorf("a serializable read: %v, %v", res, err)
	}
	// Side by side: each takes as long as requests may.
	kv := pb.NewKVClient(alone.Dial())
	puts, reads, promotions := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := kv.Put(proc.Context(t), &pb.PutRequest{Key: []byte("k"), Value: []byte("w")})
		puts <- err
	}()
	go func() {
		_, err := kv.Range(proc.Context(t), &pb.RangeRequest{Key: []byte("k")})
		reads <- err
	}()
	go func() {
		_, err := alone.client.MemberPromote(proc.Context(t), 99)
		promotions <- err
	}()
	// The write was never proposed; then the client receives the member's own deadline.
	if err := <-puts; status.Code(err) != codes.DeadlineExceeded ||
		!strings.Contains(err.Error(), "desc = context deadline exceeded") {
		t.Errorf("a write without a quorum: %v", err)
	}
	if err := <-reads; status.Code(err) != codes.Unavailable ||
		!strings.Contains(err.Error(), "etcdserver: request timed out") {
		t.Errorf("a read without a quorum: %v", err)
	}
	if err := <-promotions; !errors.Is(err, rpctypes.ErrNoLeader) {
		t.Errorf("a promotion without a quorum: %v", err)
	}
	g.list[1].Restart()
	g.put(alone, "k", "x")
	g.list[2].Restart()
	g.agree()
}
