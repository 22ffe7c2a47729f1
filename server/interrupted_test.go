package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vigil/internal/kv"
	"vigil/internal/offline/restore"
	"vigil/internal/state/cluster"
	"vigil/internal/vfs"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

// trio is the configuration of three members on loopback, each with a file system of its own.
type trio struct {
	t    *testing.T
	urls [3]string
	fs   [3]vfs.FS
}

func newTrio(t *testing.T) *trio {
	t.Helper()
	c := &trio{t: t}
	for i := range c.urls {
		c.urls[i] = vacantURL(t)
		c.fs[i] = memfs.New()
	}
	return c
}

func (c *trio) config(i int, fsys vfs.FS) Config {
	var list []string
	for j, u := range c.urls {
		list = append(list, fmt.Sprintf("m%d=%s", j, u))
	}
	return Config{
		Name: fmt.Sprintf("m%d", i), DataDir: "m.vigil", FS: fsys,
		ListenClientURLs:    []string{"http://127.0.0.1:0"},
		AdvertiseClientURLs: []string{DefaultClientURL},
		ListenPeerURLs:      []string{c.urls[i]}, InitialAdvertisePeerURLs: []string{c.urls[i]},
		InitialCluster:    strings.Join(list, ","),
		HeartbeatInterval: 20 * time.Millisecond, ElectionTimeout: 200 * time.Millisecond,
		SnapshotCount: 100, SnapshotCatchUpEntries: 10,
		Logger: slog.New(slog.DiscardHandler),
	}
}

// start starts a member, and stops it at the end of the test.
func (c *trio) start(i int) *Member {
	c.t.Helper()
	m, err := Start(c.config(i, c.fs[i]))
	if err != nil {
		c.t.Fatalf("m%d: %v", i, err)
	}
	c.t.Cleanup(func() { stop(c.t, m) })
	return m
}

// waitingLog ends a start that waits for another cluster, and keeps why it waits.
type waitingLog struct {
	slog.Handler
	end    context.CancelFunc
	reason atomic.Pointer[string]
}

func (l *waitingLog) Enabled(context.Context, slog.Level) bool { return true }
func (l *waitingLog) WithAttrs([]slog.Attr) slog.Handler       { return l }

func (l *waitingLog) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "waiting before the start") {
		l.reason.Store(&r.Message)
		l.end()
	}
	return nil
}

// startOrReason starts a member. If it does not begin with what it has, the error is why: it was
// refused, or waits.
func startOrReason(c Config) (*Member, error) {
	ctx, cancel := context.WithCancel(context.Background())
	log := &waitingLog{Handler: slog.DiscardHandler, end: cancel}
	c.Logger = slog.New(log)
	m, err := StartContext(ctx, c)
	if reason := log.reason.Load(); err != nil && reason != nil {
		err = errors.New(*reason)
	}
	return m, err
}

// restore builds the data directory of a member out of a backup.
func (c *trio) restore(i int, fsys vfs.FS, backup []byte) error {
	if _, err := fsys.Stat("backup.db"); err != nil {
		if err := place(fsys, "backup.db", backup); err != nil {
			return err
		}
	}
	o := restore.Options{FS: fsys, Source: "backup.db", DataDir: "m.vigil",
		Name: fmt.Sprintf("m%d", i), Token: "etcd-cluster", SkipHash: true}
	for j, u := range c.urls {
		o.Members = append(o.Members,
			cluster.Member{Name: fmt.Sprintf("m%d", j), PeerURLs: []string{u}})
	}
	_, err := restore.Run(context.Background(), o)
	return err
}

// place writes a file, durably.
func place(fsys vfs.FS, name string, content []byte) error {
	f, err := fsys.Create(name)
	if err == nil {
		_, err = f.WriteAt(content, 0)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = fsys.SyncDir(".")
	}
	return err
}

// aBackup is the file of a member with some keys, and the revision that it ends at.
func aBackup(t *testing.T) (file []byte, revision int64) {
	t.Helper()
	m, _ := member(t, Config{FS: memfs.New(), DataDir: "m"})
	for i := range 50 {
		if _, err := m.replica.Put(t.Context(),
			&kv.PutRequest{Key: fmt.Appendf(nil, "k%d", i), Value: []byte("v")}); err != nil {
			t.Fatal(err)
		}
	}
	b, err := m.replica.Backup(t.Context(), "3.7.0", "3.7.0")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	var out bytes.Buffer
	if err := b.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), b.Revision()
}

// cutter ends a file system at its nth change: by a loss of power, the death of the process, or an
// error.
type cutter struct {
	*faultfs.FS
	changes atomic.Int64
	once    sync.Once
	after   *memfs.FS
}

// The ways in which a file system ends.
const (
	powerLoss = iota
	killed
)

func cutAt(disk *memfs.FS, n int64, how int, rng *rand.Rand) *cutter {
	c := &cutter{}
	c.FS = faultfs.New(disk, func(op faultfs.Op, _ string) faultfs.Fault {
		if !op.Changes() || c.changes.Add(1) < n {
			return faultfs.None
		}
		c.once.Do(func() {
			if how == powerLoss {
				c.after = disk.Crash(rng)
			} else {
				c.after = disk.Kill()
			}
		})
		return faultfs.Fail
	})
	return c
}

// left returns what is on the disk afterwards, and whether it was cut.
func (c *cutter) left(disk *memfs.FS) (*memfs.FS, bool) {
	c.once.Do(func() {})
	if c.after == nil {
		return disk.Kill(), false
	}
	return c.after, true
}

// A restore of one of three members ends at each of its steps. The member that is started there has
// what was restored, or refuses with the advice to restore; it never begins empty, and the other
// two serve the restored keys.
//
//vigil:norace
func TestInterruptedRestore(t *testing.T) {
	backup, revision := aBackup(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 41))
	// others begins a cluster whose third member was not started yet: its data directory comes back
	// as it was, which a member that has voted must not.
	others := func() *trio {
		c := newTrio(t)
		for i := range 2 {
			if err := c.restore(i, c.fs[i], backup); err != nil {
				t.Fatal(err)
			}
		}
		for _, m := range []*Member{c.start(0), c.start(1)} {
			<-m.replica.Ready()
		}
		return c
	}
	for _, how := range []int{powerLoss, killed} {
		refused, served := 0, 0
		c := others()
		for n := int64(1); ; n++ {
			disk := memfs.New()
			cut := cutAt(disk, n, how, rng)
			cut.changes.Store(-3) // placing the backup: create, write, two syncs
			err := c.restore(2, cut, backup)
			after, was := cut.left(disk)
			if !was && err != nil {
				t.Fatal(err)
			}
			m, err := startOrReason(c.config(2, after))
			switch {
			case err != nil:
				refused++
				if !strings.Contains(err.Error(), "restore") ||
					strings.Contains(err.Error(), "member remove") {
					t.Errorf("step %d: refused with the advice %q", n, err)
				}
				if !was {
					t.Fatalf("a complete restore: %v", err)
				}
				if err := c.restore(2, after, backup); err != nil {
					t.Errorf("step %d: the advice does not help: %v", n, err)
				}
			default:
				served++
				select {
				case <-m.replica.Ready():
					if got := m.replica.Status().Revision; got < revision {
						t.Errorf("step %d: it serves revision %d, the backup has %d",
							n, got, revision)
					}
				case <-time.After(time.Minute):
					t.Errorf("step %d: it started and does not serve", n)
				}
				stop(t, m)
				c = others()
			}
			if !was {
				break
			}
		}
		t.Logf("%d refused, %d served", refused, served)
		if refused < 5 || served == 0 {
			t.Errorf("%d refused, %d served", refused, served)
		}
	}
}

// A member without data cannot become part of a restored cluster, and cannot lead it, also when it
// starts first.
func TestEmptyMemberIsNoPartOfARestoredCluster(t *testing.T) {
	backup, revision := aBackup(t)
	c := newTrio(t)
	empty := c.start(2)
	for i := range 2 {
		if err := c.restore(i, c.fs[i], backup); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		m := c.start(i)
		defer func() {
			<-m.replica.Ready()
			if got := m.replica.Status().Revision; got < revision {
				t.Errorf("revision %d, the backup has %d", got, revision)
			}
			if a, b := m.replica.Header().ClusterID, empty.replica.Header().ClusterID; a == b {
				t.Errorf("the restored member and the empty one are of the same cluster %x", a)
			}
			if empty.replica.Status().Leader != 0 {
				t.Error("the empty member has a leader")
			}
		}()
	}
}

// A member of a restored cluster that has lost its data, and with them what it acknowledged, is
// refused, also if it was restored again.
func TestMemberOfARestoredClusterThatLostItsData(t *testing.T) {
	backup, _ := aBackup(t)
	c := newTrio(t)
	var members []*Member
	for i := range 3 {
		if err := c.restore(i, c.fs[i], backup); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		members = append(members, c.start(i))
	}
	lost, err := Start(c.config(2, c.fs[2]))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range append(members, lost) {
		<-m.replica.Ready()
	}
	// The others refuse it once they have applied what it published.
	for _, m := range members {
		published := func() bool {
			self, _ := m.replica.Membership().Member(lost.replica.Header().MemberID)
			return len(self.ClientURLs) > 0
		}
		for end := time.Now().Add(time.Minute); !published(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("another member does not know it as started")
			}
		}
	}
	stop(t, lost)
	for _, again := range []bool{false, true} {
		c.fs[2] = memfs.New()
		if again {
			if err := c.restore(2, c.fs[2], backup); err != nil {
				t.Fatal(err)
			}
		}
		m, err := Start(c.config(2, c.fs[2]))
		if err == nil {
			stop(t, m)
			t.Fatalf("restored again: %t: it starts", again)
		}
		if !strings.Contains(err.Error(), "member remove") ||
			strings.Contains(err.Error(), "restore this member") {
			t.Errorf("restored again: %t: %v", again, err)
		}
	}
}

// A member replaces one of the same name and URL, and ends when it has made its store and not yet
// its raft log. The next start joins.
func TestInterruptedReplacement(t *testing.T) {
	c := newTrio(t)
	config := func(i int) Config {
		g := c.config(i, c.fs[i])
		g.LaxReconfig = true
		return g
	}
	var members [3]*Member
	for i := range members {
		m, err := Start(config(i))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { stop(t, m) })
		members[i] = m
	}
	for _, m := range members {
		<-m.replica.Ready()
	}
	if _, err := members[0].replica.Members.RemoveMember(t.Context(),
		members[2].replica.Header().MemberID); err != nil {
		t.Fatal(err)
	}
	stop(t, members[2])
	if _, _, err := members[0].replica.Members.AddMember(t.Context(), []string{c.urls[2]},
		false); err != nil {
		t.Fatal(err)
	}
	c.fs[2] = memfs.New()
	g := config(2)
	g.InitialClusterState = "existing"
	g.FS = faultfs.New(c.fs[2], func(op faultfs.Op, name string) faultfs.Fault {
		if op == faultfs.OpCreate && strings.Contains(name, "wal") {
			return faultfs.Fail
		}
		return faultfs.None
	})
	if m, err := Start(g); err == nil {
		stop(t, m)
		t.Fatal("it starts without a raft log")
	}
	g.FS = c.fs[2]
	m, err := Start(g)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, m) })
	<-m.replica.Ready()
}

// A member ends at each step of its first start and of its first write. If it came far enough to
// vote, a start with another directory for the raft log is refused and names both. The next start
// succeeds, and what was acknowledged is there.
//
//vigil:norace
func TestInterruptedFirstStart(t *testing.T) {
	backup, _ := aBackup(t)
	for _, restored := range []bool{false, true} {
		t.Run(fmt.Sprintf("restored=%t", restored), func(t *testing.T) {
			var before func(fsys vfs.FS)
			if restored {
				before = func(fsys vfs.FS) {
					const name, url = "default", "http://127.0.0.1:2380"
					err := place(fsys, "backup.db", backup)
					if err != nil {
						t.Fatal(err)
					}
					_, err = restore.Run(t.Context(),
						restore.Options{FS: fsys, Source: "backup.db", DataDir: "m.vigil",
							Name: name, Token: "etcd-cluster",
							Members:  []cluster.Member{{Name: name, PeerURLs: []string{url}}},
							SkipHash: true})
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			testInterruptedFirstStart(t, before)
		})
	}
}

func testInterruptedFirstStart(t *testing.T, before func(vfs.FS)) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 33))
	beginWith := func(fsys vfs.FS, wal string) (*Member, error) {
		return Start(Config{DataDir: "m.vigil", WALDir: wal, FS: fsys,
			ListenClientURLs:    []string{"http://127.0.0.1:0"},
			AdvertiseClientURLs: []string{DefaultClientURL},
			ListenPeerURLs:      []string{"http://127.0.0.1:0"},
			Logger:              slog.New(slog.DiscardHandler)})
	}
	begin := func(fsys vfs.FS) (*Member, error) { return beginWith(fsys, "") }
	put := func(m *Member, key string) bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := m.replica.Put(ctx, &kv.PutRequest{Key: []byte(key)})
		return err == nil
	}
	for _, how := range []int{powerLoss, killed} {
		steps, refused := int64(0), 0
		for n := int64(1); ; n++ {
			disk := memfs.New()
			if before != nil {
				before(disk)
			}
			cut := cutAt(disk, n, how, rng)
			acknowledged := false
			m, err := begin(cut)
			voted := err == nil
			if err == nil {
				select {
				case <-m.replica.Ready():
					acknowledged = put(m, "a")
				case <-m.Failed():
				}
			}
			after, was := cut.left(disk)
			if m != nil {
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				_ = m.Close(ctx)
			}
			if voted {
				refused++
				w, err := beginWith(after, "elsewhere")
				if err == nil {
					t.Errorf("step %d: it had started, and starts with another raft log", n)
					stop(t, w)
					break
				}
				for _, part := range []string{"m.vigil/history", "elsewhere",
					"--wal-dir that it had"} {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("step %d: %q does not say %q", n, err, part)
					}
				}
			}
			if m, err = begin(after); err != nil {
				t.Fatalf("step %d: %v", n, err)
			}
			<-m.replica.Ready()
			res, err := m.replica.Range(t.Context(), &kv.RangeRequest{Key: []byte("a")})
			if err != nil || acknowledged && res.Count == 0 {
				t.Errorf("step %d: acknowledged %t, found %+v, %v", n, acknowledged, res, err)
			}
			stop(t, m)
			if !was {
				break
			}
			steps = n
		}
		if steps < 10 || refused < 3 {
			t.Errorf("only %d steps, %d of them refused", steps, refused)
		}
	}
}

// A member ends at each change of a name while it receives and installs a snapshot. The next start
// goes on, and it catches up: nothing of an intact voter has to be thrown away.
func TestInterruptedInstall(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 34))
	c := newTrio(t)
	lead, _ := c.start(0), c.start(1)
	begin := func(fsys vfs.FS) *Member {
		m, err := Start(c.config(2, fsys))
		if err != nil {
			t.Fatalf("the third member does not start: %v", err)
		}
		return m
	}
	disk := memfs.New()
	m := begin(disk)
	<-m.replica.Ready()
	<-lead.replica.Ready()
	revision := int64(0)
	write := func() {
		for range 250 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			res, err := lead.replica.Put(ctx,
				&kv.PutRequest{Key: []byte("k"), Value: make([]byte, 200)})
			cancel()
			if err != nil {
				t.Fatal(err)
			}
			revision = res.Revision
		}
	}
	await := func(what string, m *Member, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s; revision %d of %d, %+v", what, m.replica.Status().Revision, revision,
					m.replica.Metrics().Received)
			}
		}
	}
	write()
	await("it does not keep up", m, func() bool { return m.replica.Status().Revision >= revision })
	stop(t, m)
	moves := func(op faultfs.Op, name string) bool {
		return op == faultfs.OpRename && strings.HasPrefix(filepath.Base(name), "history")
	}
	for _, how := range []int{killed, powerLoss} {
		// before the change of the name, or at the change after it
		for _, late := range []bool{false, true} {
			for n := int64(1); ; n++ {
				write()
				var renames atomic.Int64
				var armed atomic.Bool
				cut := &cutter{}
				decide := func(op faultfs.Op, name string) faultfs.Fault {
					if !op.Changes() {
						return faultfs.None
					}
					due := armed.Load()
					if moves(op, name) && renames.Add(1) == n {
						due = !late
						armed.Store(true)
					}
					if due {
						cut.once.Do(func() {
							if how == powerLoss {
								cut.after = disk.Crash(rng)
							} else {
								cut.after = disk.Kill()
							}
						})
						return faultfs.Fail
					}
					return faultfs.None
				}
				cut.FS = faultfs.New(disk, decide)
				m := begin(cut)
				installed := func() bool { return m.replica.Metrics().Received.Installed > 0 }
				failed := false
				await("it is neither cut nor brought up", m, func() bool {
					select {
					case <-m.Failed():
						failed = true
					default:
					}
					return failed || armed.Load() ||
						installed() && m.replica.Status().Revision >= revision
				})
				if armed.Load() && late { // the change after it may take a moment
					for end := time.Now().Add(time.Second); !failed && !installed() &&
						time.Now().Before(end); time.Sleep(time.Millisecond) {
						select {
						case <-m.Failed():
							failed = true
						default:
						}
					}
				}
				after, was := cut.left(disk)
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				_ = m.Close(ctx)
				disk = after
				m = begin(disk)
				await("it does not catch up", m,
					func() bool { return m.replica.Status().Revision >= revision })
				stop(t, m)
				if !was {
					if n < 3 {
						t.Errorf("only %d changes of names", n-1)
					}
					break
				}
			}
		}
	}
}
