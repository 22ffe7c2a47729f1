package replica

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"vigil/internal/kv"
	"vigil/internal/state/fsm"
	"vigil/internal/vfs/memfs"
)

func mustGrant(t testing.TB, r *Replica, id, ttl int64) {
	t.Helper()
	if res, err := r.Leases.GrantLease(t.Context(),
		kv.LeaseGrantRequest{ID: id, TTL: ttl}); err != nil || res.ID != id ||
		res.TTL != max(ttl, r.lessor.MinTTL()) {
		t.Fatalf("grant of %d: %+v, %v", id, res, err)
	}
}

func mustAttach(t testing.TB, r *Replica, key string, id int64) {
	t.Helper()
	if _, err := r.Put(t.Context(), &kv.PutRequest{Key: []byte(key), Lease: id}); err != nil {
		t.Fatal(err)
	}
}

// has reports whether a member has applied the grant of a lease, and not its end.
func has(r *Replica, id int64) bool {
	_, ok := r.LeaseState().Lookup(id)
	return ok
}

func count(t testing.TB, r *Replica) int64 {
	t.Helper()
	return mustRange(t, r,
		&kv.RangeRequest{Key: []byte{0}, End: []byte{0}, CountOnly: true, Serializable: true}).Count
}

func TestLeaseExpiresAndSurvivesCrashes(t *testing.T) {
	fs := memfs.New()
	c := config(fs)
	c.LeaseCheckpointInterval = 300 * time.Millisecond
	r := start(t, c)
	mustGrant(t, r, 2, 100)
	txn := &kv.TxnRequest{}
	for i := range 5 {
		mustAttach(t, r, fmt.Sprintf("b%d", i), 2)
		txn.Success = append(txn.Success,
			kv.Op{Put: &kv.PutRequest{Key: fmt.Append(nil, "a", i), Lease: 1}})
	}
	var began time.Time
	await(t, "a lease of a second that has not ended before it has its keys", func() bool {
		began = time.Now()
		mustGrant(t, r, 1, 1)
		got, _ := r.Leases.LeaseIDs(t.Context())
		_, err := r.Txn(t.Context(), txn)
		if errors.Is(err, kv.ErrLeaseNotFound) && time.Since(began) >= time.Second {
			return false // the machine is busy
		}
		if err != nil || !slices.Equal(got, []int64{1, 2}) {
			t.Fatalf("leases %d, %v", got, err)
		}
		return true
	})
	await(t, "end of a lease", func() bool { return count(t, r) == 5 })
	if took := time.Since(began); took < time.Second {
		t.Errorf("a lease of a second ended after %v", took)
	}
	if _, err := r.Leases.KeepAlive(t.Context(), 1); !errors.Is(err, kv.ErrLeaseNotFound) {
		t.Errorf("keep-alive: %v", err)
	}
	await(t, "checkpoint",
		func() bool {
			l, _ := r.LeaseState().Lookup(2)
			return l.Remaining > 0 &&
				l.Remaining < 100
		})

	crashed := fs.Crash(rand.New(rand.NewPCG(1, 2)))
	r.Stop(t.Context())
	c.FS = crashed
	r = start(t, c)
	s, err := r.Leases.TimeToLive(t.Context(), 2, true)
	if err != nil || s.Granted != 100 || s.TTL > 99 || s.TTL < 90 || len(s.Keys) != 5 {
		t.Errorf("after a crash: %+v, %v", s, err)
	}
	if got, _ := r.Leases.LeaseIDs(t.Context()); !slices.Equal(got, []int64{2}) {
		t.Errorf("leases %d", got)
	}
	// The keep-alive takes the checkpoint back before its answer.
	if ttl, err := r.Leases.KeepAlive(t.Context(), 2); err != nil || ttl != 100 {
		t.Errorf("keep-alive: %d, %v", ttl, err)
	}
	if l, _ := r.LeaseState().Lookup(2); l.Remaining != 0 {
		t.Errorf("after a keep-alive: %+v", l)
	}
}

func TestLeasesOfSeveralMembers(t *testing.T) {
	g := startGroup(t, func(_ int, c *Config) { c.RequestTimeout = 20 * time.Second })
	lead := g.leader()
	var others []*Replica
	for _, r := range g.list {
		if r != lead {
			others = append(others, r)
		}
	}
	mustGrant(t, others[1], 2, 1000)
	mustAttach(t, others[0], "b", 2)
	for _, r := range g.list {
		if ttl, err := r.Leases.KeepAlive(t.Context(), 2); err != nil || ttl != 1000 {
			t.Errorf("keep-alive: %d, %v", ttl, err)
		}
		if s, err := r.Leases.TimeToLive(t.Context(), 2, true); err != nil || s.Granted != 1000 ||
			s.TTL < 990 || !slices.Equal(s.Keys, []string{"b"}) {
			t.Errorf("time to live: %+v, %v", s, err)
		}
		if _, err := r.Leases.KeepAlive(t.Context(), 77); !errors.Is(err, kv.ErrLeaseNotFound) {
			t.Errorf("keep-alive of a stranger: %v", err)
		}
	}

	// The leader is cut off. Its last promise holds under the next one, and the old one ends
	// nothing.
	l, _ := lead.LeaseState().Lookup(2)
	left := kv.LeaseCheckpoint{LeaseRef: l.LeaseRef, Remaining: 500, Since: l.Since}
	if _, err := lead.Propose(t.Context(),
		&fsm.Request{LeaseCheckpoint: &kv.LeaseCheckpointRequest{Term: lead.node.LeadTerm(),
			Checkpoints: []kv.LeaseCheckpoint{left}}}); err != nil {
		t.Fatal(err)
	}
	// On a busy machine the lease may end too early, and is granted again.
	const ttl = 3
	var began time.Time
	await(t, "a lease that has not ended when the leader is cut off", func() bool {
		g.net.setCut(lead.memberID, false)
		if _, err := others[0].Leases.RevokeLease(t.Context(), 1); err != nil &&
			!errors.Is(err, kv.ErrLeaseNotFound) {
			t.Fatal(err)
		}
		granted := time.Now()
		mustGrant(t, others[0], 1, ttl)
		_, err := others[0].Put(t.Context(), &kv.PutRequest{Key: []byte("a"), Lease: 1})
		if err == nil {
			err = lead.Linearize(t.Context())
		}
		got, _ := lead.Leases.LeaseIDs(t.Context())
		began = time.Now()
		if err == nil {
			_, err = others[0].Leases.KeepAlive(t.Context(), 1)
		}
		g.net.setCut(lead.memberID, true)
		if time.Since(granted) >= ttl*time.Second {
			return false
		}
		if err != nil || !slices.Equal(got, []int64{1, 2}) {
			t.Fatalf("leases %d, %v", got, err)
		}
		return true
	})
	next := g.leader()
	if next == lead {
		t.Fatal("the same leader")
	}
	// It counts on from the replicated TTL, until the lease is kept alive.
	if s, err := others[0].Leases.TimeToLive(t.Context(), 2, false); err != nil ||
		s.TTL > 501 || s.TTL < 490 {
		t.Errorf("time to live of 500 s under the next leader: %+v, %v", s, err)
	}
	await(t, "end of a lease under the next leader", func() bool { return !has(next, 1) })
	if took := time.Since(began); took < ttl*time.Second {
		t.Errorf("a lease of %d s ended %v after it was kept alive", ttl, took)
	}
	if !has(lead, 1) {
		t.Error("a leader that is cut off has ended a lease")
	}
	short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if ttl, err := lead.Leases.KeepAlive(short, 2); err == nil {
		t.Errorf("a leader that is cut off has promised %d s", ttl)
	}
	for _, r := range others {
		if ttl, err := r.Leases.KeepAlive(t.Context(), 2); err != nil || ttl != 1000 {
			t.Errorf("keep-alive under the next leader: %d, %v", ttl, err)
		}
	}
	for _, r := range others {
		await(t, "the checkpoint to be taken back",
			func() bool { l, _ := r.LeaseState().Lookup(2); return l.Remaining == 0 })
	}
	// It comes back by a snapshot, with the leases and the keys that are attached to them.
	g.lag(lead, 2000)
	g.net.setCut(lead.memberID, false)
	await(t, "the old leader to know", func() bool { return !has(lead, 1) })
	if ttl, err := lead.Leases.KeepAlive(t.Context(), 2); err != nil || ttl != 1000 {
		t.Errorf("keep-alive on the old leader: %d, %v", ttl, err)
	}
	// The state can be read a moment before the snapshot is counted.
	await(t, "a snapshot", func() bool { return lead.receiver.Stats().Installed > 0 })
	if got := lead.LeaseState().Keys(2); !slices.Equal(got, []string{"b"}) {
		t.Errorf("the keys are %q", got)
	}
}

// An expiry that a leader proposed and a later one carries out is one of another term.
func TestExpiryOfAnotherTerm(t *testing.T) {
	r := start(t, config(memfs.New()))
	mustGrant(t, r, 1, 50)
	l, _ := r.LeaseState().Lookup(1)
	term := r.node.LeadTerm()
	for _, other := range []uint64{term - 1, term + 1} {
		_, err := r.Propose(t.Context(),
			&fsm.Request{LeaseExpire: &kv.LeaseExpireRequest{Term: other,
				Leases: []kv.LeaseRef{l.LeaseRef}}})
		if !errors.Is(err, kv.ErrLeaderChanged) || !has(r, 1) {
			t.Errorf("expiry of term %d in term %d: %v", other, term, err)
		}
	}
	_, err := r.Propose(t.Context(),
		&fsm.Request{LeaseExpire: &kv.LeaseExpireRequest{Term: term,
			Leases: []kv.LeaseRef{l.LeaseRef}}})
	if err != nil || has(r, 1) {
		t.Errorf("expiry of term %d: %v", term, err)
	}
}

// Thousands of leases end at once: they do, and writes go on between them.
func TestStorm(t *testing.T) {
	n := 50_000
	if testing.Short() {
		n = 5_000
	}
	c := config(memfs.New())
	c.HistorySegmentBytes, c.WALSegmentBytes, c.SnapshotCount = 16<<20, 16<<20, 10_000
	r := start(t, c)
	var all sync.WaitGroup
	for w := range 50 {
		all.Go(func() {
			for i := w; i < n; i += 50 {
				id := int64(i + 1)
				mustGrant(t, r, id, 3600)
				mustAttach(t, r, fmt.Sprintf("k%06d", i), id)
			}
		})
	}
	all.Wait()
	if s := r.Leases.Stats(); s.Granted != uint64(n) {
		t.Errorf("after the grants: %+v", s)
	}
	// They have a second left under the next leader.
	for leases := range slices.Chunk(r.LeaseState().All(), 1000) {
		var left []kv.LeaseCheckpoint
		for _, l := range leases {
			left = append(left, kv.LeaseCheckpoint{LeaseRef: l.LeaseRef, Remaining: 1,
				Since: l.Since})
		}
		if _, err := r.Propose(t.Context(),
			&fsm.Request{LeaseCheckpoint: &kv.LeaseCheckpointRequest{Term: r.node.LeadTerm(),
				Checkpoints: left}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	r = start(t, c)
	await(t, "the first lease to expire", func() bool { return r.LeaseState().Len() < n })
	began := time.Now()
	var took []time.Duration
	for r.LeaseState().Len() > 0 {
		at := time.Now()
		mustPut(t, r, "live", "x")
		took = append(took, time.Since(at))
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("%d leases left", r.LeaseState().Len())
		}
	}
	slices.Sort(took)
	t.Logf("%d leases ended in %v; %d puts at the same time: median %v, 99%% %v, longest %v", n,
		time.Since(began).Round(time.Millisecond),
		len(took), took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
	if len(took) < 100 {
		t.Errorf("only %d puts at the same time", len(took))
	}
	await(t, "count of the leases that ended",
		func() bool { return r.Leases.Stats().Expired == uint64(n) })
	if s := r.Leases.Stats(); count(t, r) != 1 || s.Revoked != uint64(n) {
		t.Errorf("%d keys, %+v", count(t, r), s)
	}
}

// A keep-alive that finds the leader cut off from the others, before it knows that itself, ends
// like one that finds no leader: clients close the channels of callers that require a leader on
// that error only.
func TestKeepAliveWithoutALeader(t *testing.T) {
	g := startGroup(t, func(_ int, c *Config) { c.RequestTimeout = 3 * time.Second })
	lead := g.leader()
	await(t, "a lease", func() bool { // the patience of requests is short here
		_, err := lead.Leases.GrantLease(t.Context(), kv.LeaseGrantRequest{ID: 5, TTL: 60})
		return err == nil || errors.Is(err, kv.ErrLeaseExists)
	})
	for _, r := range g.list {
		g.caughtUp(r)
	}
	for _, r := range g.list {
		g.net.setCut(r.memberID, true)
	}
	var wg sync.WaitGroup
	for _, r := range g.list {
		wg.Go(func() {
			if r == lead {
				time.Sleep(r.cfg.TickInterval) // as long as the word of a quorum may be good
			}
			if _, err := r.Leases.KeepAlive(t.Context(), 5); !errors.Is(err, kv.ErrNoLeader) {
				t.Errorf("member %s: %v, want %v", r.cfg.Name, err, kv.ErrNoLeader)
			}
		})
	}
	wg.Wait()
}
