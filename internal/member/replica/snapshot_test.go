package replica

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/replica/transfer"
	"vigil/internal/state/auth"
	"vigil/internal/state/cluster"
	"vigil/internal/state/fsm"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
	"vigil/internal/store/wal"
	"vigil/internal/vfs/faultfs"
)

// junk is a value that no two puts share.
func junk(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

// lag cuts a member off and writes until the others have given up the entries that it lacks.
func (g *group3) lag(r *Replica, size int) {
	g.t.Helper()
	g.net.setCut(r.memberID, true)
	last, err := r.raftLog.LastIndex() // what it has and has not applied needs no snapshot
	if err != nil {
		g.t.Fatal(err)
	}
	for i := 0; ; i++ {
		g.put(fmt.Sprintf("lag%d", i%40), junk(size))
		gone := true
		for _, o := range g.list {
			if first, err := o.raftLog.FirstIndex(); o != r && (err != nil || first <= last+1) {
				gone = false
			}
		}
		if gone && i > 100 {
			return
		}
		if i == 3000 {
			g.t.Fatal("the raft log is never shortened")
		}
		// Ever slower: a truncator that stands still makes no large difference.
		time.Sleep(time.Duration(i/100) * time.Millisecond)
	}
}

func TestLaggingMemberIsSentWhatItLacks(t *testing.T) {
	g := startGroup(t, nil)
	for i := range 2000 {
		g.put(fmt.Sprintf("k%d", i), junk(300))
	}
	r := g.other()
	at := func() uint64 { return r.receiver.Stats().Installed }
	for round := range uint64(3) {
		g.lag(r, 50)
		if round == 1 {
			// A compaction that leaves the member all it has.
			if _, err := g.leader().Compact(t.Context(),
				&kv.CompactRequest{Revision: r.Status().Revision - 1}); err != nil {
				t.Fatal(err)
			}
		}
		g.net.setCut(r.memberID, false)
		await(t, "a snapshot", func() bool { return at() > round })
		g.caughtUp(r)
	}
	for _, o := range g.list {
		if s := o.sender.Stats(); s.Full > 0 {
			t.Errorf("member %s sent everything: %+v", o.cfg.Name, s)
		}
	}
	for _, n := range g.net.transfers() {
		// All the history has 600 kB and more.
		if n > 200_000 {
			t.Errorf("transfers of %v bytes", g.net.transfers())
		}
	}
	tidy(t, r.cfg.FS, r.cfg)
	// What was received is there after a restart.
	r = g.restart(r, nil)
	g.ready(r)
	g.put("after", nil)
	g.caughtUp(r)
}

func TestMemberBelowTheCompactionIsSentEverything(t *testing.T) {
	g := startGroup(t, nil)
	for i := range 300 {
		g.put(fmt.Sprintf("k%d", i), junk(10_000)) // several batches and segments
	}
	r := g.other()
	g.lag(r, 50)
	lead := g.leader()
	if _, err := lead.Compact(t.Context(),
		&kv.CompactRequest{Revision: lead.Status().Revision - 5}); err != nil {
		t.Fatal(err)
	}
	g.net.setCut(r.memberID, false)
	await(t, "a snapshot", func() bool { return r.receiver.Stats().Installed > 0 })
	g.caughtUp(r)
	// It counts when the receiver has said that it serves.
	await(t, "someone to have sent everything", func() bool {
		full := uint64(0)
		for _, o := range g.list {
			full += o.sender.Stats().Full
		}
		return full > 0
	})
	tidy(t, r.cfg.FS, r.cfg)
}

// A member whose history differs from the leader's is sent everything.
func TestMemberWithAnotherHistoryIsSentEverything(t *testing.T) {
	g := startGroup(t, nil)
	for i := range 100 {
		g.put(fmt.Sprintf("k%d", i), junk(100))
	}
	r := g.other()
	g.lag(r, 50)
	// As if apply had gone astray there.
	r = g.restart(r, func(c *Config) {
		o := c.historyOptions(wal.Identity{ClusterID: r.clusterID, MemberID: r.memberID})
		log, err := history.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		store, err := mvcc.Open(log, mvcc.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = store.Writer().Put(&kv.PutRequest{Key: []byte("k1"), Value: []byte("astray")},
			nil); err == nil {
			_, err = store.Writer().Commit(log.Applied())
		}
		store.Close()
		if err := errors.Join(err, log.Close()); err != nil {
			t.Fatal(err)
		}
	})
	g.net.setCut(r.memberID, false)
	await(t, "a snapshot", func() bool { return r.receiver.Stats().Installed > 0 })
	g.caughtUp(r)
	await(t, "the leader to have sent everything",
		func() bool { return g.leader().sender.Stats().Full > 0 })
}

func TestEmptyMemberJoins(t *testing.T) {
	g := startGroup(t, nil)
	for i := range 500 {
		g.put(fmt.Sprintf("k%d", i), junk(200))
	}
	lead := g.leader()
	m := cluster.Member{ID: 0x4444, PeerURLs: []string{"http://127.0.0.1:20004"}}
	cc, err := fsm.ConfChange(fsm.GroupHeader{Proposer: lead.memberID, Sequence: 1},
		cluster.Change{Op: cluster.Add, Member: m}, auth.Identity{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lead.node.ProposeConfChange(cc); err != nil {
		t.Fatal(err)
	}
	await(t, "the member is known",
		func() bool { _, ok := lead.Membership().Member(m.ID); return ok })
	members, err := lead.Members.List(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	disk := newDisk()
	c := memberConfig(disk, 4)
	c.InitialMembers = nil
	c.Joining = &Joining{ClusterID: lead.clusterID, MemberID: m.ID, Members: members}
	r := g.add(disk, c)
	g.ready(r)
	g.caughtUp(r)
	await(t, "a snapshot", func() bool { return r.receiver.Stats().Installed > 0 })
	if s := r.receiver.Stats(); s.Installed != 1 {
		t.Errorf("%+v", s)
	}
	if err := r.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.list = g.list[:3]
	r = g.add(disk, c)
	g.ready(r)
	g.put("after", nil)
	g.caughtUp(r)
}

// A member that has joined and received nothing is not made a cluster of its own: it would be an
// empty one under the id of the cluster that it was added to.
func TestForcedJoinerWithoutData(t *testing.T) {
	c := memberConfig(newDisk(), 4)
	c.InitialMembers = nil
	c.Joining = &Joining{ClusterID: 7, MemberID: 4, Members: []cluster.Member{
		{ID: 3, PeerURLs: []string{"http://127.0.0.1:20003"}},
		{ID: 4, PeerURLs: []string{"http://127.0.0.1:20004"}}}}
	r, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Joining, c.ForceNewCluster = nil, true
	if r, err := Open(c); err == nil ||
		!strings.Contains(err.Error(),
			"--force-new-cluster: member 4 was added to cluster 7 and has received no data") {
		if err == nil {
			r.Stop(t.Context())
		}
		t.Errorf("forced: %v", err)
	}
	c.ForceNewCluster = false
	if r, err = Open(c); err != nil {
		t.Fatal(err)
	}
	r.Stop(t.Context())
}

// flip is a reader one of whose bits is wrong.
type flip struct {
	r       io.Reader
	at, off int64
}

func (f *flip) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if f.off <= f.at && f.at < f.off+int64(n) {
		p[f.at-f.off] ^= 4
	}
	f.off += int64(n)
	return n, err
}

// A transfer with a wrong bit, one that ends early and one whose sender dies are refused, leave
// nothing, and are tried again.
func TestSpoiledTransfersAreTriedAgain(t *testing.T) {
	g := startGroup(t, nil)
	for i := range 300 {
		g.put(fmt.Sprintf("k%d", i), junk(200))
	}
	r := g.other()
	tries := 0
	g.net.spoil = func(s io.Reader) io.Reader { // the mesh calls it once for each transfer
		tries++
		switch {
		case tries <= 8:
			return &flip{r: s, at: int64(tries-1) * 600}
		case tries == 9:
			return io.LimitReader(s, 2000)
		case tries == 10:
			return io.MultiReader(io.LimitReader(s, 3000), broken{})
		case tries == 11:
			return io.MultiReader(s, bytes.NewReader([]byte{0}))
		}
		return s
	}
	g.lag(r, 50)
	g.net.setCut(r.memberID, false)
	await(t, "a snapshot", func() bool { return r.receiver.Stats().Installed > 0 })
	g.caughtUp(r)
	if s := r.receiver.Stats(); s.Failures < 11 {
		t.Errorf("%+v", s)
	}
	tidy(t, r.cfg.FS, r.cfg)
}

// TestUnsyncedCopyIsNoDamage: a member whose disk cannot sync the copy of its history that it
// offers to the sender of a snapshot is sent everything, and does not take its own history for
// damaged: that alarm would end its service.
func TestUnsyncedCopyIsNoDamage(t *testing.T) {
	var failed atomic.Int64
	g := startGroup(t, func(_ int, c *Config) {
		c.FS = faultfs.New(c.FS, func(op faultfs.Op, name string) faultfs.Fault {
			if op == faultfs.OpSync && strings.Contains(name, "history.incoming.checkpoint.tmp") {
				failed.Add(1)
				return faultfs.Fail
			}
			return faultfs.None
		})
	})
	for i := range 300 {
		g.put(fmt.Sprintf("k%d", i), junk(200))
	}
	r := g.other()
	g.lag(r, 50)
	g.net.setCut(r.memberID, false)
	await(t, "a snapshot", func() bool { return r.receiver.Stats().Installed > 0 })
	g.caughtUp(r)
	if failed.Load() == 0 {
		t.Error("no sync of the copy failed")
	}
	if m := r.Metrics(); m.Damaged != 0 || len(r.Alarms.Active()) != 0 {
		t.Errorf("damage was found %d times, alarms %v", m.Damaged, r.Alarms.Active())
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errCut }

// A request that waits for the outcome of an entry that a snapshot skips gets the error that it is
// unknown, and a read that waits for the position continues.
func TestWaitersAcrossASnapshot(t *testing.T) {
	g := startGroup(t, nil)
	for i := range 50 {
		g.put(fmt.Sprintf("k%d", i), junk(100))
	}
	r := g.other()
	g.net.mu.Lock()
	g.net.drop = deaf(r.memberID)
	g.net.mu.Unlock()
	waiting := make(chan error, 1)
	go func() {
		_, err := r.Put(context.Background(),
			&kv.PutRequest{Key: []byte("lost"), Value: []byte("answer")})
		waiting <- err
	}()
	lead := g.leader()
	await(t, "the put at the leader", func() bool {
		res, err := lead.Range(t.Context(),
			&kv.RangeRequest{Key: []byte("lost"), Serializable: true})
		return err == nil && res.Count == 1
	})
	reading := make(chan error, 1)
	go func() {
		res, err := r.Range(context.Background(), &kv.RangeRequest{Key: []byte("lost")})
		if err == nil && res.Count != 1 {
			err = fmt.Errorf("a linearizable read found %d", res.Count)
		}
		reading <- err
	}()
	await(t, "the reader waits for the index", func() bool {
		return r.applied.Len() > 0
	})
	g.lag(r, 50) // cuts it off altogether
	select {
	case err := <-waiting:
		t.Fatalf("the put ended: %v", err)
	default:
	}
	g.net.mu.Lock()
	g.net.drop = nil
	g.net.mu.Unlock()
	g.net.setCut(r.memberID, false)
	await(t, "a snapshot", func() bool { return r.receiver.Stats().Installed > 0 })
	// The patience of requests is a minute, that of the test less.
	await(t, "the answers", func() bool { return len(waiting) == 1 && len(reading) == 1 })
	if err := <-waiting; err != kv.ErrTimeout && err != kv.ErrTimeoutLeaderFailure {
		t.Errorf("the put: %v", err)
	}
	if err := <-reading; err != nil {
		t.Errorf("the read: %v", err)
	}
	g.caughtUp(r)
}

// A leader that is gone without a word, in the middle of a snapshot, does not keep the next one
// from sending its own.
func TestSnapshotOfAFormerLeader(t *testing.T) {
	// the first leader stays until it is cut off
	g := startGroup(t, func(_ int, c *Config) { c.ElectionTicks = 100 })
	g.put("k", []byte("v"))
	former := g.leader()
	st := former.node.Status()
	h := transfer.Header{Cluster: former.clusterID, Term: st.Term,
		At: history.Applied{Term: st.Term, Index: st.Committed + 100}, Revision: 2}
	offered := func(to, from *Replica) error {
		_, err := to.OfferSnapshot(t.Context(), from.memberID,
			transfer.Offer{Index: h.At.Index}.Encode())
		return err
	}
	// To both others: one of them is the next leader.
	told := map[*Replica]chan error{}
	for _, r := range g.list {
		if r == former {
			continue
		}
		pr, pw := io.Pipe()
		end := make(chan error, 1)
		told[r] = end
		go func() { end <- r.ReceiveBulk(t.Context(), former.memberID, h.Encode(), pr) }()
		if _, err := pw.Write([]byte{0}); err != nil { // it is being read
			t.Fatal(err)
		}
		t.Cleanup(func() { pw.Close() })
		if err := offered(r, former); err != transfer.ErrReceiving {
			t.Errorf("another snapshot of the same leader: %v", err)
		}
	}
	g.net.setCut(former.memberID, true)
	next := g.leader()
	for r, end := range told {
		if r == next {
			continue
		}
		if err := offered(r, former); err != transfer.ErrReceiving {
			t.Errorf("another snapshot of the former leader: %v", err)
		}
		if err := offered(r, next); err != nil {
			t.Errorf("a snapshot of the new leader: %v", err)
		}
		if err := <-end; err == nil {
			t.Error("the former leader's snapshot was taken")
		}
	}
}
