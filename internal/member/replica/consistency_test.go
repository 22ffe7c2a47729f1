package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/replica/audit"
	"vigil/internal/vfs/memfs"
)

// comparing is a cluster that compares often.
func comparing(t *testing.T, change func(i int, c *Config)) *group3 {
	t.Helper()
	g := startGroup(t, func(i int, c *Config) {
		c.CorruptCheckInterval, c.CompactHashCheckInterval = 50*time.Millisecond, -1
		c.NoInitialCorruptCheck = true
		if change != nil {
			change(i, c)
		}
	})
	for i := range 50 {
		g.put(fmt.Sprintf("k%d", i), junk(100))
	}
	return g
}

// astray writes to one member's store as if apply had gone astray there.
func (g *group3) astray(r *Replica, value string) {
	g.t.Helper()
	g.net.setCut(r.memberID, true)
	index := r.applied.Load()
	w := r.current.Load().Store.Writer()
	if _, err := w.Put(&kv.PutRequest{Key: []byte("k1"), Value: []byte(value)}, nil); err != nil {
		g.t.Fatal(err)
	}
	if _, err := w.Commit(r.current.Load().Log.Applied()); err != nil {
		g.t.Fatal(err)
	}
	if r.applied.Load() != index {
		g.t.Fatal("entries were applied during the comparison")
	}
	g.net.setCut(r.memberID, false)
}

// quiet waits until all have applied the same, so that nothing is applied while nothing is written.
func (g *group3) quiet() {
	g.t.Helper()
	await(g.t, "all at one index", func() bool {
		lead := g.leader()
		for _, r := range g.list {
			if st := lead.node.Status(); r.applied.Load() != st.Committed {
				return false
			}
		}
		return true
	})
}

func corrupt(id uint64) kv.Alarm { return kv.Alarm{MemberID: id, Type: kv.AlarmCorrupt} }

func (g *group3) alarms(r *Replica, want ...kv.Alarm) {
	g.t.Helper()
	await(g.t, fmt.Sprintf("alarms %v", want),
		func() bool { return slices.Equal(r.Alarms.Active(), want) })
}

// rounds waits until the cluster was compared more often.
func (g *group3) rounds(n uint64) {
	g.t.Helper()
	total := func() (sum uint64) {
		for _, r := range g.list {
			sum += r.audit.Stats().Rounds
		}
		return sum
	}
	before := total()
	await(g.t, "comparisons", func() bool { return total() >= before+n })
}

// A member that does not answer makes a comparison last longer; the pause after it is not for that.
func TestComparingGoesOnWithoutOne(t *testing.T) {
	g := comparing(t, nil)
	r := g.other()
	g.net.mu.Lock()
	g.net.unheard = r.memberID
	g.net.mu.Unlock()
	g.rounds(4)
}

// A member that differs from the two others is named, stops serving, and alone.
func TestMemberThatDiffersIsNamed(t *testing.T) {
	for _, leads := range []bool{false, true} {
		t.Run(fmt.Sprintf("leader=%t", leads), func(t *testing.T) {
			g := comparing(t, nil)
			g.rounds(2)
			if list := g.leader().Alarms.Active(); len(list) != 0 {
				t.Fatalf("alarms %v", list)
			}
			g.quiet()
			r := g.other()
			if leads {
				r = g.leader()
			}
			g.astray(r, "astray")
			g.put("k2", []byte("more"))
			for _, o := range g.list {
				g.alarms(o, corrupt(r.memberID))
			}
			await(t, "the end of its service",
				func() bool { wrong, _ := r.Untrusted(); return wrong })
			for _, serializable := range []bool{false, true} {
				if _, err := r.Range(t.Context(),
					&kv.RangeRequest{Key: []byte("k3"),
						Serializable: serializable}); !errors.Is(err, kv.ErrCorrupt) {
					t.Errorf("read: %v", err)
				}
			}
			if _, err := r.Txn(t.Context(),
				&kv.TxnRequest{Success: []kv.Op{{Range: &kv.RangeRequest{Key: []byte("k3")}}}}); !errors.Is(err, kv.ErrCorrupt) {
				t.Errorf("transaction: %v", err)
			}
			if _, err := r.Put(t.Context(), &kv.PutRequest{Key: []byte("k3")}); !errors.Is(err,
				kv.ErrCorrupt) {
				t.Errorf("put: %v", err)
			}
			for _, o := range g.list {
				if o == r {
					continue
				}
				if wrong, _ := o.Untrusted(); wrong {
					t.Error("another member stopped")
				}
				if _, err := o.Put(t.Context(), &kv.PutRequest{Key: []byte("k4")}); err != nil {
					t.Error(err)
				}
				if _, err := o.Range(t.Context(), &kv.RangeRequest{Key: []byte("k4")}); err != nil {
					t.Error(err)
				}
			}
			// It does not stay leader; and it is named once, a round more changes nothing.
			await(t, "another leader", func() bool { l := g.leader(); return l != r })
			g.rounds(2)
			g.alarms(r, corrupt(r.memberID))
			// Cleared without a repair the alarm comes back.
			if _, err := g.leader().Alarms.ChangeAlarm(t.Context(),
				kv.AlarmChange{Alarm: corrupt(r.memberID), Clear: true}); err != nil {
				t.Fatal(err)
			}
			g.alarms(r, corrupt(r.memberID))
		})
	}
}

// Three different members, and two: no member is named and none stops.
func TestWithoutMajorityOnlyTheAlarmIsRaised(t *testing.T) {
	t.Run("three", func(t *testing.T) {
		g := comparing(t, nil)
		g.quiet()
		lead := g.leader()
		for i, r := range g.list {
			if r != lead {
				g.astray(r, fmt.Sprint("astray", i))
			}
		}
		g.put("k2", []byte("more"))
		g.goOn(corrupt(0))
	})
	t.Run("two answer", func(t *testing.T) {
		g := comparing(t, nil)
		g.quiet()
		lead, r := g.leader(), g.other()
		g.astray(r, "astray")
		for _, o := range g.list {
			if o != lead && o != r {
				g.net.setCut(o.memberID, true)
			}
		}
		g.put("k2", []byte("more"))
		g.alarms(lead, corrupt(0))
		// With the third one there is a majority.
		for _, o := range g.list {
			g.net.setCut(o.memberID, false)
		}
		g.alarms(lead, corrupt(r.memberID))
	})
}

// goOn expects alarms that stop no member.
func (g *group3) goOn(want ...kv.Alarm) {
	g.t.Helper()
	for _, r := range g.list {
		g.alarms(r, want...)
		if wrong, _ := r.Untrusted(); wrong {
			g.t.Error("a member stopped")
		}
		if _, err := r.Put(g.t.Context(), &kv.PutRequest{Key: []byte("k4")}); err != nil {
			g.t.Error(err)
		}
		if _, err := r.Range(g.t.Context(), &kv.RangeRequest{Key: []byte("k4")}); err != nil {
			g.t.Error(err)
		}
	}
}

// Not a difference: a member that lags, one that was sent a snapshot, one that has not been
// compacted as far, and writes and compactions all the while.
func TestNoFalseAlarm(t *testing.T) {
	g := comparing(t, func(i int, c *Config) {
		c.CorruptCheckInterval, c.CompactHashCheckInterval = time.Millisecond, time.Millisecond
	})
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			lead := g.leader()
			_, _ = lead.Put(t.Context(),
				&kv.PutRequest{Key: fmt.Appendf(nil, "k%d", i%50), Value: junk(50)})
			if i%7 == 0 {
				_, _ = lead.Compact(t.Context(),
					&kv.CompactRequest{Revision: lead.Status().Revision - 3})
			}
		}
	}()
	r := g.other()
	for range 3 {
		g.rounds(5)
		g.net.setCut(r.memberID, true)
		g.rounds(1)
		g.net.setCut(r.memberID, false)
		await(t, "catching up",
			func() bool { return r.applied.Load()+20 > g.leader().applied.Load() })
	}
	g.rounds(5)
	close(stop)
	<-done
	g.quiet()
	g.rounds(2)
	for _, o := range g.list {
		if list := o.Alarms.Active(); len(list) != 0 || o.audit.Stats().Differences != 0 {
			t.Errorf("alarms %v", list)
		}
	}
}

// The hashes that compactions leave show a difference without a comparison of everything.
func TestCompactionsTellOfADifference(t *testing.T) {
	g := comparing(t, func(i int, c *Config) {
		c.CorruptCheckInterval, c.CompactHashCheckInterval = -1, 20*time.Millisecond
	})
	g.quiet()
	r := g.other()
	g.astray(r, "astray")
	rev := g.put("k2", []byte("more"))
	if _, err := g.leader().Compact(t.Context(), &kv.CompactRequest{Revision: rev}); err != nil {
		t.Fatal(err)
	}
	g.alarms(g.leader(), corrupt(r.memberID))
}

// A member that starts with other data than a majority has does not serve; nor do members that
// start together wait for each other.
func TestInitialCheck(t *testing.T) {
	// all at once, and every one checks
	g := startGroup(t, func(i int, c *Config) { c.CorruptCheckInterval = -1 })
	for i := range 50 {
		g.put(fmt.Sprintf("k%d", i), junk(100))
	}
	g.quiet()
	r := g.other()
	g.astray(r, "astray")
	g.put("k2", []byte("more"))
	g.quiet()
	i := slices.Index(g.list, r)
	if err := r.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	again := g.again(i)
	select {
	case err := <-again.Failed():
		if !errors.Is(err, audit.ErrInconsistent) {
			t.Fatal(err)
		}
		t.Log(err)
	case <-again.Ready():
		t.Fatal("it serves")
	case <-time.After(patience):
		t.Fatal("nothing happens")
	}
	g.alarms(g.leader(), corrupt(r.memberID))
	again.Stop(context.Background())
	// One that is like the others does serve, while that one is away.
	for i, o := range g.list {
		if o.memberID == r.memberID || o == g.leader() {
			continue
		}
		if err := o.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
		g.ready(g.again(i))
		break
	}
}

// again starts a stopped member in its place.
func (g *group3) again(i int) *Replica {
	g.t.Helper()
	r := g.add(g.fs[i], g.cfg[i])
	n := len(g.list) - 1
	g.list[i], g.ends[i] = r, g.ends[n]
	g.list, g.fs, g.cfg, g.ends = g.list[:n], g.fs[:n], g.cfg[:n], g.ends[:n]
	return r
}

// Alarms about removed members, and about none, end with a comparison that finds all alike.
func TestStaleAlarmsAreCleared(t *testing.T) {
	g := comparing(t, nil)
	for _, id := range []uint64{0, 77} {
		if _, err := g.leader().Alarms.ChangeAlarm(t.Context(),
			kv.AlarmChange{Alarm: corrupt(id)}); err != nil {
			t.Fatal(err)
		}
	}
	g.alarms(g.leader())
}

// A leader that is cut off answers no linearizable read, neither while it takes itself for the
// leader nor after, and has not missed anything when it is back.
func TestLeaderThatIsCutOffAnswersNoReads(t *testing.T) {
	g := startGroup(t, nil)
	g.put("k", []byte("before"))
	old := g.leader()
	g.net.setCut(old.memberID, true)
	ctx, cancel := context.WithCancel(t.Context())
	read := make(chan error, 1)
	go func() {
		_, err := old.Range(ctx, &kv.RangeRequest{Key: []byte("k")})
		read <- err
	}()
	rev := g.put("k", []byte("after")) // by another leader
	select {
	case err := <-read:
		t.Fatalf("a read of the leader that is cut off returned: %v", err)
	default:
	}
	await(t, "the old leader to step down", func() bool { return old.node.Status().Lead == 0 })
	if res, err := old.Range(t.Context(),
		&kv.RangeRequest{Key: []byte("k"), Serializable: true}); err != nil ||
		old.Status().Revision >= rev {
		t.Errorf("a serializable read: %v, %v", res, err)
	}
	select {
	case err := <-read:
		t.Fatalf("a read without a leader returned: %v", err)
	default:
	}
	g.net.setCut(old.memberID, false)
	if err := <-read; err != nil {
		t.Errorf("the read that waited: %v", err)
	}
	cancel()
	if got := old.Status().Revision; got < rev {
		t.Errorf("the read that waited saw revision %d, %d had been acknowledged", got, rev)
	}
}

// emptyThird makes three members that begin at the same position, of which the third has an empty
// store.
func emptyThird(t *testing.T, change func(c *Config)) (g *group3, start func(i int) *Replica) {
	t.Helper()
	g = &group3{t: t, net: newMesh()}
	var disks []*memfs.FS
	var configs []Config
	for i := 1; i <= 3; i++ {
		disk := memfs.New()
		c := memberConfig(disk, i)
		if change != nil {
			change(&c)
		}
		disks, configs = append(disks, disk), append(configs, c)
		if i == 3 {
			continue
		}
		r, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		w := r.current.Load().Store.Writer()
		for k := range 50 {
			if _, err := w.Put(&kv.PutRequest{Key: fmt.Appendf(nil, "k%d", k), Value: []byte("v")},
				nil); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Commit(first); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return g, func(i int) *Replica { return g.add(disks[i], configs[i]) }
}

// A member that is empty where the majority has data does not serve: what it has is the beginning
// of what the others have, and yet it lacks the rest.
func TestEmptyMemberDoesNotServe(t *testing.T) {
	g, start := emptyThird(t, nil)
	start(0)
	start(1)
	for _, r := range g.list {
		g.ready(r)
	}
	lead := g.leader()
	r := start(2)
	select {
	case err := <-r.Failed():
		if !errors.Is(err, audit.ErrInconsistent) {
			t.Fatal(err)
		}
	case <-r.Ready():
		t.Fatal("it serves")
	case <-time.After(patience):
		t.Fatal("nothing happens")
	}
	await(t, "the alarm",
		func() bool { return slices.Contains(lead.Alarms.Active(), corrupt(r.memberID)) })
}

// An empty member that leads, because it started before the others could contradict it, is named
// soon.
func TestEmptyLeaderIsNamed(t *testing.T) {
	g, start := emptyThird(t, func(c *Config) { c.NoInitialCorruptCheck = true })
	for i := range 3 {
		start(i)
	}
	for _, r := range g.list {
		g.ready(r)
	}
	empty := g.list[2]
	if lead := g.leader(); lead != empty {
		if err := lead.Leadership.MoveLeader(t.Context(), empty.memberID); err != nil &&
			!errors.Is(err, kv.ErrTimeout) {
			t.Log(err) // it has given leadership away already
		}
	}
	for _, r := range g.list {
		await(t, "the alarm",
			func() bool { return slices.Contains(r.Alarms.Active(), corrupt(empty.memberID)) })
	}
	for _, r := range g.list[:2] {
		if list := r.Alarms.Active(); len(list) != 1 {
			t.Errorf("alarms %v", list)
		}
	}
	await(t, "a leader with data", func() bool { return g.leader() != empty })
}
