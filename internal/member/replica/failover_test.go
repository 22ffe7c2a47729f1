package replica

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"vigil/internal/kv"
)

// Writes that are under way when the leader is cut off, at whichever member, take effect once:
// those that got lost with it are proposed again, and none twice.
func TestWritesSurviveTheLeader(t *testing.T) {
	g := startGroup(t, func(_ int, c *Config) {
		c.SnapshotCount,
			c.SnapshotCatchUpEntries = 1<<30, 1<<30
	})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	written := map[string]bool{}
	for i, r := range g.list {
		for w := range 4 {
			wg.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					key := fmt.Sprintf("%d/%d/%d", i, w, n)
					if _, err := r.Put(t.Context(), &kv.PutRequest{Key: []byte(key)}); err != nil {
						t.Errorf("put of %s: %v", key, err)
						return
					}
					mu.Lock()
					written[key] = true
					mu.Unlock()
				}
			})
		}
	}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(written)
	}
	for range 4 {
		lead := g.leader()
		before := count()
		await(t, "writes", func() bool { return count() > before+200 })
		g.net.setCut(lead.memberID, true)
		next := g.leader()
		if next == lead {
			t.Fatal("the member that is cut off is the leader")
		}
		g.net.setCut(lead.memberID, false)
	}
	before := count()
	await(t, "writes", func() bool { return count() > before+200 })
	close(stop)
	wg.Wait()
	res := mustRange(t, g.leader(),
		&kv.RangeRequest{Key: []byte{0}, End: []byte{0}, CountOnly: true})
	if n := int64(len(written)); res.Count != n || res.Revision != 1+n {
		t.Errorf("%d writes made %d keys and %d revisions", n, res.Count, res.Revision-1)
	}
	t.Logf("%d writes", len(written))
	for _, r := range g.list {
		g.caughtUp(r)
	}
}

// The leader hands over before it stops, and the next one completes its requests under way.
func TestHandOver(t *testing.T) {
	g := startGroup(t, steady)
	lead := g.leader()
	begun := time.Now()
	lead.Leadership.HandOver(t.Context())
	if now := g.leader(); now == lead {
		t.Errorf("it leads after %v", time.Since(begun))
	}
	if _, err := lead.Put(t.Context(), &kv.PutRequest{Key: []byte("k")}); err != nil {
		t.Error(err)
	}
	if err := lead.Leadership.MoveLeader(t.Context(), lead.memberID); err != kv.ErrNotLeader {
		t.Errorf("moved by one that does not lead: %v", err)
	}
	now := g.leader()
	if err := now.Leadership.MoveLeader(t.Context(), 0x77); err != kv.ErrBadTransferee {
		t.Errorf("moved to a stranger: %v", err)
	}
	if err := now.Leadership.MoveLeader(t.Context(), lead.memberID); err != nil ||
		g.leader() != lead {
		t.Errorf("moved back: %v", err)
	}
}

// The log is cut as short as may be after each entry while leadership goes round: an election that
// comes between an entry and its acknowledgment finds the entry.
func TestElectionsWhileTheLogIsCut(t *testing.T) {
	g := startGroup(t, func(_ int, c *Config) {
		c.MaxBatchBytes = 1
		c.SnapshotCount, c.SnapshotCatchUpEntries, c.CatchUpBytes = 1, 1, 1
	})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for _, r := range g.list {
		for i := range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					_, _ = r.Put(ctx, &kv.PutRequest{Key: fmt.Appendf(nil, "%s/%d", r.cfg.Name, i),
						Value: make([]byte, 100)})
				}
			})
		}
	}
	for range 40 {
		for _, r := range g.list {
			select {
			case err := <-r.Failed():
				t.Fatalf("member %s failed: %v", r.cfg.Name, err)
			default:
			}
			if err := r.node.TakeLeadership(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond) // the pace of the elections
		}
	}
}

// With a negative limit no learner is added, and a voter is.
func TestNoLearners(t *testing.T) {
	g := startGroup(t, func(_ int, c *Config) {
		c.ElectionTicks, c.MaxLearners, c.LaxReconfig = 100, -1, true
	})
	r := g.other()
	if _, _, err := r.Members.AddMember(t.Context(), []string{"http://127.0.0.1:20004"},
		true); err != kv.ErrTooManyLearners {
		t.Errorf("a learner: %v, want %v", err, kv.ErrTooManyLearners)
	}
	if _, all, err := r.Members.AddMember(t.Context(), []string{"http://127.0.0.1:20005"},
		false); err != nil || len(all) != 4 {
		t.Errorf("a voter: %v, %v", all, err)
	}
}

func TestMembershipChanges(t *testing.T) {
	g := startGroup(t, func(_ int, c *Config) { // no election disturbs it
		c.ElectionTicks = 100
		c.SnapshotCount, c.SnapshotCatchUpEntries = 1<<30, 1<<30
	})
	ctx := t.Context()
	r := g.other()
	urls := func(n int) []string { return []string{fmt.Sprintf("http://127.0.0.1:%d", 20000+n)} }
	if _, _, err := r.Members.AddMember(ctx, urls(1), false); err != kv.ErrPeerURLExists {
		t.Errorf("a URL that is taken: %v", err)
	}
	if _, err := r.Members.RemoveMember(ctx, 0x77); err != kv.ErrMemberNotFound {
		t.Errorf("removal of a stranger: %v", err)
	}
	if _, err := r.Members.UpdateMember(ctx, 0x77, urls(7)); err != kv.ErrMemberNotFound {
		t.Errorf("update of a stranger: %v", err)
	}
	if _, err := r.Members.UpdateMember(ctx, r.memberID,
		g.leader().Membership().Members()[0].PeerURLs); err != kv.ErrPeerURLExists &&
		r.memberID != g.leader().Membership().Members()[0].ID {
		t.Errorf("update to a URL that is taken: %v", err)
	}
	m, all, err := r.Members.AddMember(ctx, urls(4), true)
	if err != nil || len(all) != 4 || !m.Learner {
		t.Fatalf("%+v, %d members, %v", m, len(all), err)
	}
	if _, _, err := r.Members.AddMember(ctx, urls(5), true); err != kv.ErrTooManyLearners {
		t.Errorf("a second learner: %v", err)
	}
	if _, err := r.Members.PromoteMember(ctx, m.ID); err != kv.ErrNotLeader {
		t.Errorf("promoted by a follower: %v", err)
	}
	for i := range 50 {
		g.put(fmt.Sprintf("k%d", i), nil)
	}
	if _, err := g.leader().Members.PromoteMember(ctx, m.ID); err != kv.ErrLearnerNotReady {
		t.Errorf("promoted although it never started: %v", err)
	}
	if _, err := g.leader().Members.PromoteMember(ctx, r.memberID); err != kv.ErrNotLearner {
		t.Errorf("promoted although it is a voter: %v", err)
	}
	disk := newDisk()
	c := memberConfig(disk, 4)
	c.ElectionTicks = 100
	c.Joining = &Joining{ClusterID: r.clusterID, MemberID: m.ID, Members: all}
	four := g.add(disk, c)
	g.ready(four)
	if !four.Status().Learner {
		t.Error("it is not a learner")
	}
	if _, err := g.leader().Members.PromoteMember(ctx, m.ID); err != nil {
		t.Errorf("promotion: %v", err)
	}
	g.caughtUp(four)
	if four.Status().Learner {
		t.Error("it is a learner after its promotion")
	}
	// Changes one after the other from different members.
	for i := range 3 {
		if _, err := g.list[i].Members.UpdateMember(ctx, m.ID, urls(40+i)); err != nil {
			t.Errorf("update %d: %v", i, err)
		}
	}
	// A member that removes itself stays until it knows.
	if rest, err := g.leader().Members.RemoveMember(ctx, m.ID); err != nil || len(rest) != 3 {
		t.Errorf("removal: %d members, %v", len(rest), err)
	}
	if _, err := g.leader().Members.RemoveMember(ctx, m.ID); err != kv.ErrMemberNotFound {
		t.Errorf("removal of one that is gone: %v", err)
	}
	lead := g.leader()
	by := g.other()
	g.caughtUp(by)
	term := by.node.Status().Term
	// A member gets no report here that it was removed: it knows if its own answer was needed to
	// commit that.
	third := g.list[slices.IndexFunc(g.list,
		func(r *Replica) bool { return r != by && r != lead && r.memberID != m.ID })]
	g.net.setCut(third.memberID, true)
	if _, err := by.Members.RemoveMember(ctx, lead.memberID); err != nil {
		t.Errorf("removal of the leader: %v", err)
	}
	if st := by.node.Status(); st.Lead != by.memberID || st.Term != term+1 {
		t.Errorf("the member that was asked to remove the leader did not take over: %+v", st)
	}
	select {
	case <-lead.Members.Removed():
	case <-time.After(patience):
		t.Error("the leader does not know that it was removed")
	}
	g.net.setCut(third.memberID, false)
	g.net.setCut(lead.memberID, true)
	g.net.setCut(m.ID, true)
	g.put("after", nil)
	if got := g.leader().Membership(); len(got.Members()) != 2 || !got.Removed(lead.memberID) {
		t.Errorf("members %+v", got.Members())
	}
}
