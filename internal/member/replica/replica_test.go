package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vigil/internal/kv"
	"vigil/internal/offline/datadir"
	"vigil/internal/state/cluster"
	"vigil/internal/store/wal"
	"vigil/internal/store/watch"
	"vigil/internal/vfs"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

// patience is how long a test waits for something that must come, on a machine that is busy with
// other things.
const patience = time.Minute

// config is that of the only member of a cluster, with small segments so that a short test seals
// and recycles many.
func config(fs vfs.FS) Config {
	return Config{
		FS: fs, WALDir: "data/wal", HistoryDir: "data/history",
		Name:       "default",
		ClientURLs: []string{"http://localhost:2379"},
		InitialMembers: []cluster.Member{{Name: "default",
			PeerURLs: []string{"http://localhost:2380"}}},
		Token:                  "etcd-cluster",
		TickInterval:           10 * time.Millisecond,
		RequestTimeout:         patience, // tests of timeouts set another
		WALSegmentBytes:        64 << 10,
		HistorySegmentBytes:    64 << 10,
		SnapshotCount:          200,
		SnapshotCatchUpEntries: 50,
	}
}

// start opens and starts a member and waits until it is ready. The test stops it if need be.
func start(t testing.TB, c Config) *Replica {
	t.Helper()
	r, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	r.Start()
	select {
	case <-r.Ready():
	case err := <-r.Failed():
		r.Stop(t.Context())
		t.Fatalf("the member failed: %v", err)
	case <-time.After(patience):
		t.Fatalf("the member is not ready after %v", patience)
	}
	t.Cleanup(func() { r.Stop(context.Background()) })
	return r
}

func mustPut(t testing.TB, r *Replica, key, value string) int64 {
	t.Helper()
	res, err := r.Put(t.Context(), &kv.PutRequest{Key: []byte(key), Value: []byte(value)})
	if err != nil {
		t.Fatal(err)
	}
	return res.Revision
}

func mustRange(t testing.TB, r *Replica, req *kv.RangeRequest) *kv.RangeResult {
	t.Helper()
	res, err := r.Range(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// strict is a logger that fails the test on a line at error.
func strict(t testing.TB) *slog.Logger { return strictUntil(t, new(atomic.Bool)) }

// strictUntil is a strict logger until ended is true: what a member says whose disk is gone is no
// failure.
func strictUntil(t testing.TB, ended *atomic.Bool) *slog.Logger {
	return slog.New(failing{t, ended})
}

type failing struct {
	t     testing.TB
	ended *atomic.Bool
}

func (f failing) Enabled(_ context.Context, l slog.Level) bool {
	return l >= slog.LevelError && !f.ended.Load()
}

func (f failing) Handle(_ context.Context, r slog.Record) error {
	var attrs []string
	r.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, a.String())
		return true
	})
	f.t.Errorf("logged at error: %s %s", r.Message, strings.Join(attrs, " "))
	return nil
}

func (f failing) WithAttrs([]slog.Attr) slog.Handler { return f }
func (f failing) WithGroup(string) slog.Handler      { return f }

func TestFirstStartThenRestart(t *testing.T) {
	fs := memfs.New()
	c := config(fs)
	c.Logger = strict(t)
	r := start(t, c)
	st := r.Status()
	if st.MemberID != 0x8e9e05c52164694d || st.ClusterID != 0xcdf818194e3a8c32 ||
		st.Leader != st.MemberID || st.Revision != 1 {
		t.Errorf("status %+v", st)
	}
	if got := mustPut(t, r, "k1", "v1"); got != 2 {
		t.Errorf("revision %d of the first put", got)
	}
	mustPut(t, r, "k2", "v2")
	res, err := r.Txn(t.Context(), &kv.TxnRequest{
		Compare: []kv.Compare{{Key: []byte("k1"), Target: kv.CompareMod, Number: 2}},
		Success: []kv.Op{{Delete: &kv.DeleteRangeRequest{Key: []byte("k1")}},
			{Put: &kv.PutRequest{Key: []byte("k3")}}},
	})
	if err != nil || !res.Succeeded || res.Revision != 4 {
		t.Errorf("txn: %+v, %v", res, err)
	}
	if err := r.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, op := range []func() error{
		func() error { _, err := r.Put(t.Context(), &kv.PutRequest{Key: []byte("x")}); return err },
		func() error {
			_, err := r.Range(t.Context(),
				&kv.RangeRequest{Key: []byte("x")})
			return err
		},
		func() error {
			_, err := r.Range(t.Context(), &kv.RangeRequest{Key: []byte("x"), Serializable: true})
			return err
		},
	} {
		if err := op(); !errors.Is(err, kv.ErrStopped) {
			t.Errorf("a stopped member says %v", err)
		}
	}

	c.InitialMembers, c.Token = nil, "" // not needed any more
	c.Name = "renamed"
	r = start(t, c)
	if got := mustRange(t, r, &kv.RangeRequest{Key: []byte{0}, End: []byte{0}}); got.Count != 2 ||
		got.Revision != 4 {
		t.Errorf("after the restart %d keys at revision %d", got.Count, got.Revision)
	}
	members, err := r.Members.List(t.Context(), true)
	if err != nil || len(members) != 1 || members[0].Name != "renamed" ||
		len(members[0].ClientURLs) != 1 {
		t.Errorf("members %+v, %v", members, err)
	}
	if got := mustPut(t, r, "k1", "again"); got != 5 {
		t.Errorf("revision %d: publishing attributes must not make one", got)
	}
}

func TestRequestsOfOneGroupHaveTheirOwnOutcome(t *testing.T) {
	const requests = 200
	// The log is held up until all requests are under way: only then they must share entries.
	var held atomic.Bool
	release := make(chan struct{})
	r := start(t, config(faultfs.New(memfs.New(), func(op faultfs.Op, name string) faultfs.Fault {
		if op == faultfs.OpSync && strings.HasPrefix(name, "data/wal/") && held.Load() {
			<-release
		}
		return faultfs.None
	})))
	before := r.Status().Applied
	held.Store(true)
	var wg sync.WaitGroup
	for i := range requests {
		wg.Go(func() {
			key := fmt.Appendf(nil, "k%d", i)
			if i%2 == 0 {
				if _, err := r.Put(t.Context(),
					&kv.PutRequest{Key: key, Lease: 99}); !errors.Is(err, kv.ErrLeaseNotFound) {
					t.Errorf("a put with an unknown lease: %v", err)
				}
			} else if res, err := r.Put(t.Context(),
				&kv.PutRequest{Key: key, PrevKV: true}); err != nil || res.PrevKV != nil {
				t.Errorf("put: %+v, %v", res, err)
			}
		})
	}
	await(t, "all requests under way", func() bool { return r.queue.Pending() == requests })
	held.Store(false)
	close(release)
	wg.Wait()
	if got := mustRange(t, r,
		&kv.RangeRequest{Key: []byte("k"), End: []byte("l")}); got.Count != 100 ||
		got.Revision != 101 {
		t.Errorf("%d keys at revision %d", got.Count, got.Revision)
	}
	if entries := r.Status().Applied - before; entries > requests/2 {
		t.Errorf("%d entries for %d requests at once: nothing was grouped", entries, requests)
	}
}

func TestErrorsOfRequests(t *testing.T) {
	c := config(memfs.New())
	c.MaxRequestBytes = 1000
	r := start(t, c)
	mustPut(t, r, "a", "1")
	mustPut(t, r, "a", "2")
	ctx := t.Context()
	if _, err := r.Put(ctx,
		&kv.PutRequest{Key: []byte("k"), Value: make([]byte, 1000)}); !errors.Is(err,
		kv.ErrRequestTooLarge) {
		t.Errorf("too large: %v", err)
	}
	if _, err := r.Compact(ctx, &kv.CompactRequest{Revision: 9}); !errors.Is(err, kv.ErrFutureRev) {
		t.Errorf("compaction of the future: %v", err)
	}
	if _, err := r.Compact(ctx, &kv.CompactRequest{Revision: 3, Physical: true}); err != nil {
		t.Errorf("compaction: %v", err)
	}
	var compacted *kv.CompactedError
	if _, err := r.Compact(ctx, &kv.CompactRequest{Revision: 3}); !errors.As(err, &compacted) ||
		compacted.CompactRevision != 3 {
		t.Errorf("compaction of the compacted: %v", err)
	}
	if _, err := r.Range(ctx, &kv.RangeRequest{Key: []byte("a"), Revision: 2}); !errors.Is(err,
		kv.ErrCompacted) {
		t.Errorf("range of the compacted: %v", err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := r.Put(gone, &kv.PutRequest{Key: []byte("k")}); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled put: %v", err)
	}
	late, cancel := context.WithTimeout(ctx, -1)
	cancel()
	if _, err := r.Range(late,
		&kv.RangeRequest{Key: []byte("k"), Serializable: true}); !errors.Is(err,
		context.DeadlineExceeded) {
		t.Errorf("a late range: %v", err)
	}
}

func TestReadOnlyTxn(t *testing.T) {
	rng := func(serializable bool) kv.Op {
		return kv.Op{Range: &kv.RangeRequest{Key: []byte("k"), Serializable: serializable}}
	}
	for _, c := range []struct {
		name                string
		req                 kv.TxnRequest
		reads, serializable bool
	}{
		{"nothing", kv.TxnRequest{}, true, true},
		{"one range", kv.TxnRequest{Success: []kv.Op{rng(false)}}, true, false},
		{"serializable", kv.TxnRequest{Success: []kv.Op{rng(true)},
			Failure: []kv.Op{rng(true)}}, true, true},
		{"one linearizable branch",
			kv.TxnRequest{Success: []kv.Op{rng(true)}, Failure: []kv.Op{rng(false)}}, true, false},
		{"a put", kv.TxnRequest{Success: []kv.Op{rng(true)},
			Failure: []kv.Op{{Put: &kv.PutRequest{}}}}, false, false},
		{"nested", kv.TxnRequest{Success: []kv.Op{{Txn: &kv.TxnRequest{Success: []kv.Op{rng(true)}}}}}, false, false},
		{"an empty operation", kv.TxnRequest{Success: []kv.Op{{}}}, false, false},
	} {
		if reads, serializable := c.req.ReadOnly(); reads != c.reads ||
			serializable != c.serializable {
			t.Errorf("%s: reads %v, serializable %v", c.name, reads, serializable)
		}
	}
	r := start(t, config(memfs.New()))
	mustPut(t, r, "k", "v")
	before := r.Status().Applied
	res, err := r.Txn(t.Context(), &kv.TxnRequest{Success: []kv.Op{rng(false)}})
	if err != nil || len(res.Responses) != 1 || res.Responses[0].Range.Count != 1 {
		t.Errorf("txn %+v, %v", res, err)
	}
	if after := r.Status().Applied; after != before {
		t.Errorf("a read-only transaction went through the log: %d to %d", before, after)
	}
}

// What is missing, foreign or contradictory on disk is refused with a reason.
func TestOpenRefuses(t *testing.T) {
	fs := memfs.New()
	c := config(fs)
	r := start(t, c)
	for i := range 50 {
		mustPut(t, r, fmt.Sprint("k", i), "v")
	}
	if err := r.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused := func(name string, c Config, parts ...string) {
		t.Helper()
		r, err := Open(c)
		if err == nil {
			r.Stop(t.Context())
			t.Errorf("%s: opened", name)
			return
		}
		for _, p := range parts {
			if !strings.Contains(err.Error(), p) {
				t.Errorf("%s: %q does not say %q", name, err, p)
			}
		}
	}
	with := func(change func(*Config)) Config {
		c := c
		change(&c)
		return c
	}
	refused("no log", with(func(c *Config) { c.WALDir = "other" }),
		"no raft log in other", "is at index")
	refused("no store", with(func(c *Config) { c.HistoryDir = "other" }), "no store in other")
	refused("no name", with(func(c *Config) { c.Name = "" }), "no member name")

	// Another member's log.
	other := with(func(c *Config) {
		c.Token = "another"
		c.WALDir, c.HistoryDir = "b/wal", "b/history"
	})
	b := start(t, other)
	b.Stop(t.Context())
	refused("foreign log", with(func(c *Config) { c.WALDir = "b/wal" }),
		"belongs to another member")

	// A log that ends before the store, and one that begins behind it.
	id := wal.Identity{ClusterID: 0xcdf818194e3a8c32, MemberID: 0x8e9e05c52164694d}
	for dir, start := range map[string]wal.Start{"short": first2, "late": {Index: 900, Term: 1}} {
		w, err := wal.Create(wal.Options{FS: fs, Dir: dir, ID: id}, start)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	refused("log too short", with(func(c *Config) { c.WALDir = "short" }),
		"the store is at index", "ends at 1")
	refused("log too late", with(func(c *Config) { c.WALDir = "late" }), "the store is at index",
		"begins at 901")

	// The cluster to begin with.
	fresh := with(func(c *Config) { c.WALDir, c.HistoryDir = "x/wal", "x/history" })
	fresh.InitialMembers = []cluster.Member{{Name: "a", PeerURLs: []string{"http://a:1"}}}
	refused("not a member", fresh, `no member of the initial cluster is called "default"`)
	fresh.InitialMembers = nil
	refused("no cluster", fresh, "no members")

	r = start(t, c)
	if got := mustRange(t, r,
		&kv.RangeRequest{Key: []byte("k"), End: []byte("l")}).Count; got != 50 {
		t.Errorf("%d keys after all that", got)
	}
}

// A new store, of a member that begins or joins, that has had a raft log is refused without it; one
// that has not is taken up, and so is one with its log that an older version has left without the
// mark.
func TestTheRaftLogOfANewStore(t *testing.T) {
	members := []cluster.Member{{ID: 1, Name: "a", PeerURLs: []string{"http://a:1"}},
		{ID: 2, PeerURLs: []string{"http://b:1"}}}
	for name, joining := range map[string]*Joining{"begin": nil,
		"join": {ClusterID: 7, MemberID: 2, Members: members}} {
		t.Run(name, func(t *testing.T) {
			c := config(memfs.New())
			c.Joining = joining
			mark := datadir.StartedName(c.HistoryDir)
			open := func(c Config) error {
				d, err := openDisk(&c)
				return errors.Join(err, d.close())
			}
			marked := func() bool {
				_, err := c.FS.Stat(mark)
				return err == nil
			}
			if err := open(c); err != nil || !marked() {
				t.Fatalf("marked %t, %v", marked(), err)
			}
			other := c
			other.WALDir = "elsewhere"
			if err := open(other); err == nil ||
				!strings.Contains(err.Error(), "no raft log in elsewhere") ||
				!strings.Contains(err.Error(), c.HistoryDir) {
				t.Errorf("with another raft log: %v", err)
			}
			if err := open(c); err != nil {
				t.Error(err)
			}
			if err := c.FS.Remove(mark); err != nil { // an older version
				t.Fatal(err)
			}
			if err := open(c); err != nil || !marked() {
				t.Errorf("marked %t, %v", marked(), err)
			}
			// Without the store the mark begins nothing new.
			if err := c.FS.Rename(c.HistoryDir, "away"); err != nil {
				t.Fatal(err)
			}
			if err := open(other); err == nil || !strings.Contains(err.Error(), mark) {
				t.Errorf("without a store: %v", err)
			}
			if err := c.FS.Rename("away", c.HistoryDir); err != nil {
				t.Fatal(err)
			}
			if err := c.FS.Remove(mark); err != nil {
				t.Fatal(err)
			}
			if err := open(other); err != nil {
				t.Errorf("a first start that was cut short: %v", err)
			}
		})
	}
}

var first2 = wal.Start{Index: first.Index, Term: first.Term}

// The raft log is shortened as the store becomes durable, by entries and by bytes.
func TestLogIsShortened(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"by requests": func(c *Config) { c.SnapshotCount, c.SnapshotCatchUpEntries = 20, 10 },
		"by bytes": func(c *Config) {
			c.SnapshotCount, c.SnapshotBytes, c.CatchUpBytes = 1<<40,
				20000, 10000
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := config(memfs.New())
			change(&c)
			r := start(t, c)
			for i := range 400 {
				mustPut(t, r, fmt.Sprint("k", i%10), strings.Repeat("v", 1000))
			}
			deadline := time.Now().Add(patience)
			for r.Status().LogSize > 100<<10 {
				if time.Now().After(deadline) {
					t.Fatalf("the log holds %d bytes", r.Status().LogSize)
				}
				mustPut(t, r, "k", "v")
			}
			if err := r.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			r = start(t, c)
			if got := mustRange(t, r,
				&kv.RangeRequest{Key: []byte("k"), End: []byte("l"),
					KeysOnly: true}).Count; got < 10 {
				t.Errorf("%d keys", got)
			}
		})
	}
}

func TestManyRestarts(t *testing.T) {
	c := config(memfs.New())
	c.Logger = strict(t)
	rev := int64(1)
	for i := range 30 {
		r := start(t, c)
		for k := range 7 {
			rev++
			if got := mustPut(t, r, fmt.Sprint("k", k), fmt.Sprint(i)); got != rev {
				t.Fatalf("start %d: revision %d, want %d", i, got, rev)
			}
		}
		if err := r.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// A watcher gets every event once and in order while writers write.
func TestWatchSeesEveryRevision(t *testing.T) {
	r := start(t, config(memfs.New()))
	s := r.Hub().NewStream(watch.StreamInfo{})
	defer s.Close()
	s.Create(watch.CreateRequest{Key: []byte("k"), End: []byte("l"), StartRev: 1})
	var wg sync.WaitGroup
	const writers, each = 8, 50
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				mustPut(t, r, fmt.Sprintf("k%d", w), fmt.Sprint(i))
			}
		})
	}
	next := int64(2)
	var buf []watch.Response
	for next < 2+writers*each {
		var err error
		if buf, err = s.Next(t.Context(), buf[:0]); err != nil {
			t.Fatal(err)
		}
		for _, resp := range buf {
			for range resp.Events {
				next++
			}
			if len(resp.Events) > 0 && resp.Revision < next-1 {
				t.Errorf("header revision %d below the event %d", resp.Revision, next-1)
			}
		}
	}
	wg.Wait()
}

func TestStopGivesThoseUnderWayTheirOutcome(t *testing.T) {
	c := config(memfs.New())
	r := start(t, c)
	var wg sync.WaitGroup
	var mu sync.Mutex
	acked := map[string]bool{}
	for w := range 20 {
		wg.Go(func() {
			for i := 0; ; i++ {
				key := fmt.Sprintf("k%d/%d", w, i)
				_, err := r.Put(t.Context(), &kv.PutRequest{Key: []byte(key)})
				if err != nil {
					if !errors.Is(err, kv.ErrStopped) {
						t.Errorf("put: %v", err)
					}
					return
				}
				mu.Lock()
				acked[key] = true
				mu.Unlock()
			}
		})
	}
	for r.Status().Revision < 500 {
		mustPut(t, r, "x", "")
	}
	if err := r.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	r = start(t, c)
	for key := range acked {
		if mustRange(t, r, &kv.RangeRequest{Key: []byte(key)}).Count != 1 {
			t.Errorf("%s was acknowledged and is gone", key)
		}
	}
}
