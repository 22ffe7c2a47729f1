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

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/state/cluster"
	"vigil/internal/state/fsm"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
)

// stored opens the store of a member that is stopped and returns its membership and raft's
// configuration.
func stored(t *testing.T, c Config) (*cluster.State, *raftpb.ConfState) {
	t.Helper()
	log, err := history.Open(history.Options{FS: c.FS, Dir: c.HistoryDir})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	store, err := mvcc.Open(log, mvcc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	m, err := fsm.New(log, store)
	if err != nil {
		t.Fatal(err)
	}
	return m.Members(), m.ConfState()
}

// sameConfiguration checks that raft's configuration is what the membership says.
func sameConfiguration(t *testing.T, members *cluster.State, conf *raftpb.ConfState) {
	t.Helper()
	var voters, learners []uint64
	for _, m := range members.Members() {
		if m.Learner {
			learners = append(learners, m.ID)
		} else {
			voters = append(voters, m.ID)
		}
	}
	if len(voters) == 0 || !slices.Equal(voters, conf.GetVoters()) ||
		!slices.Equal(learners, conf.GetLearners()) ||
		len(conf.GetVotersOutgoing())+len(conf.GetLearnersNext()) > 0 {
		t.Errorf("the members say voters %x and learners %x, raft's configuration is %v", voters,
			learners, conf)
	}
}

// Every member changes the membership at the same time as the others, without regard to what they
// do; then every member removes itself. No member fails, a voter stays, and all that are left have
// the same configuration after they were started again.
func TestMembershipChangesFromAllMembersAtOnce(t *testing.T) {
	for _, lax := range []bool{false, true} {
		t.Run(fmt.Sprintf("lax=%v", lax), func(t *testing.T) { changesFromAll(t, lax) })
	}
}

func changesFromAll(t *testing.T, lax bool) {
	const mostLearners = 3
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	settings := func(i int, c *Config) {
		c.LaxReconfig = lax
		c.MaxLearners = mostLearners - i%2 // members need not agree on their flags
		c.SnapshotCount, c.SnapshotCatchUpEntries = 1<<30, 1<<30
		c.RequestTimeout = 20 * time.Second
	}
	g := startGroup(t, settings)
	urls := func(n int) []string { return []string{fmt.Sprintf("http://127.0.0.1:%d", 20000+n)} }
	learner, all, err := g.leader().Members.AddMember(t.Context(), urls(4), true)
	if err != nil {
		t.Fatal(err)
	}
	disk := newDisk()
	c := memberConfig(disk, 4)
	settings(4, &c)
	c.InitialMembers, c.Joining = nil,
		&Joining{ClusterID: g.list[0].clusterID, MemberID: learner.ID, Members: all}
	g.ready(g.add(disk, c))

	refusals := []error{kv.ErrMemberExists, kv.ErrPeerURLExists, kv.ErrTooManyLearners,
		kv.ErrNotEnoughStarted, kv.ErrUnhealthy,
		kv.ErrMemberNotFound, kv.ErrNotLearner, kv.ErrNotLeader, kv.ErrLearnerNotReady}
	check := func(what string, err error) {
		if err != nil && !slices.ContainsFunc(refusals,
			func(r error) bool { return errors.Is(err, r) }) {
			t.Errorf("%s: %v", what, err)
		}
	}
	var wg sync.WaitGroup
	for i, r := range g.list {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		wg.Go(func() {
			for range 12 {
				var strangers []uint64 // learners that never start
				members := r.Membership().Members()
				learners := 0
				for _, m := range members {
					if m.Learner && m.ID != learner.ID {
						strangers = append(strangers, m.ID)
					}
					if m.Learner {
						learners++
					}
				}
				if learners > mostLearners {
					t.Errorf("%d learners, at most %d are allowed", learners, mostLearners)
				}
				switch rng.IntN(4) {
				case 0:
					_, _, err := r.Members.AddMember(t.Context(), urls(10+rng.IntN(6)), true)
					check("add", err)
				case 1:
					if len(strangers) > 0 {
						_, err := r.Members.RemoveMember(t.Context(),
							strangers[rng.IntN(len(strangers))])
						check("remove", err)
					}
				case 2:
					_, err := r.Members.UpdateMember(t.Context(),
						members[rng.IntN(len(members))].ID, urls(10+rng.IntN(6)))
					check("update", err)
				case 3:
					_, err := r.Members.PromoteMember(t.Context(), learner.ID)
					check("promote", err)
				}
			}
		})
	}
	wg.Wait()
	for _, r := range g.list {
		g.caughtUp(r)
	}
	// One voter more that may remove itself.
	await(t, "promotion", func() bool {
		_, err := g.leader().Members.PromoteMember(t.Context(), learner.ID)
		check("promote", err)
		return err == nil || errors.Is(err, kv.ErrNotLearner)
	})

	removed := make([]error, len(g.list))
	stop, stopped := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	for i, r := range g.list {
		wg.Go(func() {
			_, removed[i] = r.Members.RemoveMember(t.Context(), r.memberID)
			check("remove itself", removed[i])
		})
		watching.Go(func() {
			// As a server does: it stops when others say that it was removed, and a while after it
			// knows by itself, so that the others hear what is committed.
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			known := time.Time{}
			for {
				select {
				case <-tick.C:
				case <-stop.Done():
					return
				}
				told := slices.ContainsFunc(g.list, func(o *Replica) bool {
					return o != r && o.Membership().Removed(r.memberID) &&
						r.Members.NoteRemoved(o.memberID)
				})
				if known.IsZero() && r.Membership().Removed(r.memberID) {
					known = time.Now()
				}
				if told || !known.IsZero() && time.Since(known) > 10*time.Second {
					g.net.setCut(r.memberID, true)
					return
				}
			}
		})
	}
	wg.Wait()
	stopped()
	watching.Wait()
	var left []*Replica
	for i, r := range g.list {
		select {
		case err := <-r.Failed():
			t.Fatalf("member %s failed: %v", r.cfg.Name, err)
		default:
		}
		if removed[i] != nil {
			left = append(left, r)
		} else {
			g.net.setCut(r.memberID, true)
		}
	}
	if len(left) == 0 {
		t.Fatal("every member removed itself")
	}
	if lax && len(left) != 1 {
		t.Errorf("%d members could not remove themselves, want the last one", len(left))
	}
	g.put("after", nil)
	for _, r := range left {
		g.caughtUp(r)
	}
	configs := map[string]bool{}
	for _, r := range left {
		r = g.restart(r, func(c *Config) {
			members, conf := stored(t, *c)
			sameConfiguration(t, members, conf)
			configs[fmt.Sprint(members, conf)] = true
		})
		g.ready(r)
	}
	if len(configs) != 1 {
		t.Errorf("configurations after a restart: %v", configs)
	}
	g.put("restarted", nil)
}

// The only voter is asked to remove itself, and an entry that would do so is in the log.
func TestTheLastVoterStays(t *testing.T) {
	g := startGroup(t, func(_ int, c *Config) {
		c.LaxReconfig = true
		c.SnapshotCount, c.SnapshotCatchUpEntries = 1<<30, 1<<30
	})
	last := g.leader()
	for _, r := range slices.Clone(g.list) {
		if r != last {
			if _, err := last.Members.RemoveMember(t.Context(), r.memberID); err != nil {
				t.Fatal(err)
			}
			g.net.setCut(r.memberID, true)
		}
	}
	if _, err := last.Members.RemoveMember(t.Context(),
		last.memberID); err != kv.ErrNotEnoughStarted {
		t.Errorf("the last voter was removed: %v", err)
	}
	g.put("a", nil)
	last = g.restart(last, nil)
	g.ready(last)
	g.put("b", nil)
	if n := len(last.Membership().Members()); n != 1 {
		t.Errorf("%d members, want 1", n)
	}
}
