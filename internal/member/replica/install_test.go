package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"vigil/internal/kv"
	"vigil/internal/member/replica/transfer"
	"vigil/internal/store/history"
	"vigil/internal/store/stream"
	"vigil/internal/store/watch"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

// parcel is a snapshot, ready to be received by a member that is stopped, and what to expect of it.
type parcel struct {
	image  *memfs.FS // the member's disk
	cfg    Config
	from   uint64
	header transfer.Header
	body   []byte
	before uint64 // the position of the member
	old    kv.HashResult
	new    kv.HashResult
}

// ready returns the directory of a state that is whole.
func ready(c *Config, at history.Applied) string {
	p := c.place()
	return p.ReadyDir(at)
}

// newParcel makes a member lag and packs the data that it lacks, or all.
func newParcel(t *testing.T, full bool) *parcel {
	g := startGroup(t, func(_ int, c *Config) { c.HistorySegmentBytes = 16 << 10 })
	for i := range 150 {
		g.put(fmt.Sprintf("k%d", i%50), junk(300))
	}
	r := g.other()
	g.caughtUp(r) // nothing is on its way to it any more
	g.lag(r, 300)
	lead := g.leader()
	if full {
		if _, err := lead.Compact(t.Context(),
			&kv.CompactRequest{Revision: lead.Status().Revision - 20}); err != nil {
			t.Fatal(err)
		}
	}
	p := &parcel{from: lead.memberID}
	for i, m := range g.list {
		if m == r {
			p.cfg = g.cfg[i]
		}
	}
	rev := r.Status().Revision
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	p.old, err = r.HashKV(t.Context(), rev)
	must(err)
	p.before = r.applied.Load()
	must(r.Stop(t.Context()))
	p.image = copyFS(t, r.cfg.FS, "data/wal", "data/history")

	store := lead.current.Load().Store
	cut, err := store.Cut(t.Context())
	must(err)
	p.header = transfer.Header{Cluster: lead.clusterID, Term: lead.node.Status().Term,
		At: cut.Applied, Revision: cut.Revision, Compact: cut.Compact}
	if !full {
		p.header.Incremental, p.header.Base = true, rev
		p.header.Hash, err = store.HashAt(t.Context(), rev, cut.Compact)
		must(err)
	}
	sc, err := cut.Records(p.header.Base + 1)
	must(err)
	defer sc.Close()
	p.body, err = io.ReadAll(stream.NewEncoder(sc, cut.Meta))
	must(err)
	p.new, err = lead.HashKV(t.Context(), cut.Revision)
	must(err)
	return p
}

// deliver hands the parcel to a member.
func (p *parcel) deliver(r *Replica) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	b, err := r.OfferSnapshot(ctx, p.from,
		transfer.Offer{Index: p.header.At.Index, Compact: p.header.Compact}.Encode())
	if err != nil {
		return err
	}
	a, err := transfer.DecodeAnswer(b)
	if err != nil {
		return err
	}
	if a.Have != p.header.Incremental ||
		a.Have && (a.Revision != p.header.Base || a.Hash != p.header.Hash) {
		return fmt.Errorf("it offers %+v for %+v", a, p.header)
	}
	return r.ReceiveBulk(ctx, p.from, p.header.Encode(), io.NopCloser(bytes.NewReader(p.body)))
}

// check opens the files on a disk: the old state, or the new one.
func (p *parcel) check(disk *memfs.FS, again bool) (installed bool, err error) {
	c := p.cfg
	c.FS = disk
	r, err := Open(c)
	if err != nil {
		return false, fmt.Errorf("open: %w", err)
	}
	defer r.Stop(context.Background())
	r.Start()
	names, err := disk.List(filepath.Dir(c.HistoryDir))
	if err != nil || fmt.Sprint(names) != "[history wal]" {
		return false, fmt.Errorf("left next to the store: %v, %v", names, err)
	}
	want := p.old
	switch index := r.applied.Load(); index {
	case p.before:
	case p.header.At.Index:
		want, installed = p.new, true
	default:
		return false, fmt.Errorf("at index %d, neither %d nor %d", index, p.before,
			p.header.At.Index)
	}
	match := func(want kv.HashResult) error {
		got, err := r.HashKV(context.Background(), want.HashRevision)
		if err != nil || got.Hash != want.Hash || got.Revision != want.HashRevision {
			return fmt.Errorf("hash %+v, %v, want %+v", got, err, want)
		}
		return nil
	}
	if err := match(want); err != nil {
		return installed, err
	}
	if again {
		if err := p.deliver(r); err != nil && !installed {
			return installed, fmt.Errorf("delivered again: %w", err)
		}
		return installed, match(p.new)
	}
	return installed, nil
}

// The receiver crashes, or an operation of its disk fails, at every single operation from the offer
// to the removal of the old store. The next start finds the old state or the new one, whole, and
// nothing next to it; and after the report to the sender that it was installed, it is the new one.
func TestReceiverCrashesAnywhere(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for _, full := range []bool{false, true} {
		p := newParcel(t, full)
		for mode, name := range []string{"power loss", "kill", "fail"} {
			t.Run(fmt.Sprintf("full=%v/%s", full, name), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, uint64(mode)))
				step := int64(1)
				if testing.Short() {
					step = 7
				}
				olds, news := 0, 0
				for n := int64(1); ; n += step {
					disk := copyFS(t, p.image, "data/wal", "data/history")
					var armed atomic.Bool
					var count atomic.Int64
					var once sync.Once
					var after *memfs.FS
					c := p.cfg
					c.FS = faultfs.New(disk, func(op faultfs.Op, _ string) faultfs.Fault {
						if !armed.Load() || !op.Changes() || count.Add(1) != n {
							return faultfs.None
						}
						once.Do(func() {
							switch mode {
							case 0:
								after = disk.Crash(rng)
							case 1:
								after = disk.Kill()
							}
						})
						return faultfs.Fail
					})
					r, err := Open(c)
					if err != nil {
						t.Fatal(err)
					}
					r.Start()
					armed.Store(true)
					told := p.deliver(r)
					// The failure of a disk may raise an alarm, for which a member alone finds no
					// leader.
					atOnce, cancel := context.WithCancel(context.Background())
					cancel()
					stopErr := r.Stop(atOnce)
					once.Do(func() {})
					if after == nil {
						after = disk.Kill()
					}
					installed, err := p.check(after, n%5 == 0)
					if err != nil {
						t.Fatalf("operation %d: %v (told %v, %v)", n, err, told, stopErr)
					}
					if told == nil && !installed {
						t.Fatalf("operation %d: it is reported to the sender as installed, and the old state is there", n)
					}
					if installed {
						news++
					} else {
						olds++
					}
					if count.Load() < n {
						break
					}
				}
				t.Logf("%d old, %d new", olds, news)
				if olds == 0 || news == 0 {
					t.Errorf("%d old, %d new", olds, news)
				}
			})
		}
	}
}

// The receiver lacks file descriptors or memory for a while, from any operation on. The snapshot
// may have to be sent again, but the member continues, and installs it.
func TestReceiverOutOfDescriptors(t *testing.T) {
	step := int64(9)
	if os.Getenv("VIGIL_CRASHES") != "" {
		step = 1
	}
	p := newParcel(t, true)
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENOMEM} {
		for n := int64(1); ; n += step {
			var armed atomic.Bool
			w := faultfs.NewWindow(n, 4, errno,
				func(op faultfs.Op, _ string) bool { return armed.Load() && op.Lacks(errno) })
			disk := copyFS(t, p.image, "data/wal", "data/history")
			synctest.Test(t, func(t *testing.T) {
				c := p.cfg
				c.FS = faultfs.New(disk, w.Decide)
				r, err := Open(c)
				if err != nil {
					t.Fatal(err)
				}
				r.Start()
				armed.Store(true)
				told := p.deliver(r)
				for try := 0; told != nil && try < 20; try++ {
					if errors.Is(told, kv.ErrStopped) || errors.Is(told, kv.ErrCorrupt) {
						break
					}
					time.Sleep(time.Second)
					told = p.deliver(r)
				}
				if told != nil {
					t.Errorf("%s: %v", w.Hit(), told)
				}
				select {
				case err := <-r.Failed():
					t.Errorf("%s: the member failed: %v", w.Hit(), err)
				default:
				}
				if m := r.Metrics(); m.Damaged > 0 {
					t.Errorf("%s: damage was found", w.Hit())
				}
				if err := r.Stop(context.Background()); err != nil {
					t.Errorf("%s: stop: %v", w.Hit(), err)
				}
				if installed, err := p.check(disk.Kill(), false); err != nil || !installed {
					t.Errorf("%s, then: installed %t, %v", w.Hit(), installed, err)
				}
			})
			if w.Hit() == "" || t.Failed() {
				break
			}
		}
	}
}

// decided makes a disk as a crash leaves it between the decision and the swap.
func (p *parcel) decided(t *testing.T) *memfs.FS {
	t.Helper()
	disk := copyFS(t, p.image, "data/wal", "data/history")
	c := p.cfg
	c.FS = faultfs.New(disk, func(op faultfs.Op, name string) faultfs.Fault {
		if op == faultfs.OpRename && name == c.HistoryDir {
			return faultfs.Fail
		}
		return faultfs.None
	})
	r, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	r.Start()
	if err := p.deliver(r); !errors.Is(err, kv.ErrStopped) {
		t.Fatalf("told %v", err)
	}
	if err := <-r.Failed(); !errors.Is(err, faultfs.ErrInjected) {
		t.Fatal(err)
	}
	_ = r.Stop(context.Background())
	return disk.Kill()
}

// Once decided, a snapshot is installed by the next start, however often that crashes.
//
//vigil:norace
func TestStartInstallsWhatWasDecided(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 9))
	for _, full := range []bool{false, true} {
		p := newParcel(t, full)
		image := p.decided(t)
		ready := ready(&p.cfg, p.header.At)
		for n := int64(1); ; n++ {
			disk := copyFS(t, image, "data/wal", "data/history", ready)
			var count atomic.Int64
			var once sync.Once
			var after *memfs.FS
			c := p.cfg
			c.FS = faultfs.New(disk, func(op faultfs.Op, _ string) faultfs.Fault {
				if !op.Changes() || count.Add(1) != n {
					return faultfs.None
				}
				once.Do(func() { after = disk.Crash(rng) })
				return faultfs.Fail
			})
			if r, err := Open(c); err == nil {
				_ = r.Stop(context.Background())
			}
			once.Do(func() {})
			if after == nil {
				after = disk.Kill()
			}
			installed, err := p.check(after, n%7 == 0)
			if err != nil || !installed {
				t.Fatalf("full %v, operation %d: installed %v, %v", full, n, installed, err)
			}
			if count.Load() < n {
				t.Logf("full %v: %d operations", full, n-1)
				break
			}
		}
	}
	// Another raft log, or none, decides nothing, and nothing is removed.
	p := newParcel(t, false)
	disk := copyFS(t, p.decided(t), "data/wal", "data/history", ready(&p.cfg, p.header.At))
	// the step before the last
	if err := disk.Rename("data/history", "data/history.old"); err != nil {
		t.Fatal(err)
	}
	other := memberConfig(disk, 1)
	other.HistoryDir, other.WALDir = "other/history", "other/wal"
	if r, err := Open(other); err != nil || r.Stop(t.Context()) != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"none", "other/wal"} {
		c := p.cfg
		c.FS, c.WALDir = disk, dir
		if _, err := Open(c); err == nil || !strings.Contains(err.Error(), "that it had") {
			t.Errorf("with the raft log in %s: %v", dir, err)
		}
	}
	if installed, err := p.check(disk.Kill(), true); err != nil || !installed {
		t.Errorf("with its own raft log: installed %v, %v", installed, err)
	}
	// One that was not decided on is removed, and the raft log of a damaged disk decides nothing.
	p = newParcel(t, false)
	disk = copyFS(t, p.decided(t), "data/wal", "data/history", ready(&p.cfg, p.header.At))
	aside := ready(&p.cfg, history.Applied{Term: p.header.At.Term, Index: p.header.At.Index + 1})
	if err := disk.Rename(ready(&p.cfg, p.header.At), aside); err != nil {
		t.Fatal(err)
	}
	c := p.cfg
	c.FS = disk
	if _, err := Open(c); !errors.Is(err, kv.ErrCorrupt) {
		t.Errorf("without the snapshot that it needs: %v", err)
	}
}

// killedAt returns the disk of a member that is killed before the first operation for which at
// returns true, among those after the received state is whole.
func (p *parcel) killedAt(t *testing.T,
	at func(disk *memfs.FS, op faultfs.Op, name string) bool) *memfs.FS {
	t.Helper()
	disk := copyFS(t, p.image, "data/wal", "data/history")
	var whole, dead atomic.Bool
	var once sync.Once
	var killed *memfs.FS
	c := p.cfg
	c.FS = faultfs.New(disk, func(op faultfs.Op, name string) faultfs.Fault {
		if op == faultfs.OpSyncDir && !whole.Load() {
			_, err := disk.Stat(ready(&c, p.header.At))
			whole.Store(err == nil)
			return faultfs.None
		}
		if whole.Load() && (dead.Load() || at(disk, op, name)) {
			dead.Store(true)
			once.Do(func() { killed = disk.Kill() })
			return faultfs.Fail
		}
		return faultfs.None
	})
	r, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	r.Start()
	if err := p.deliver(r); !errors.Is(err, kv.ErrStopped) {
		t.Fatalf("told %v", err)
	}
	_ = r.Stop(context.Background())
	once.Do(func() { t.Fatal("it was not killed") })
	return killed
}

// powerLosses returns some of the disks that a loss of power may leave.
func powerLosses(disk *memfs.FS, rng *rand.Rand) iter.Seq[*memfs.FS] {
	return func(yield func(*memfs.FS) bool) {
		for range 24 {
			if !yield(disk.Crash(rng)) {
				return
			}
		}
	}
}

// A member is killed while it installs a snapshot, before it has synced its writes, and the power
// fails while it starts again. Files that the start has found in the page cache must be durable
// before anything rests on them.
func TestPowerLossAfterAKill(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 10))
	p := newParcel(t, false)
	// Raft has accepted the state, and the raft log is not synced.
	logSync := func(_ *memfs.FS, op faultfs.Op, name string) bool {
		return op == faultfs.OpSync && strings.HasPrefix(name, p.cfg.WALDir)
	}
	for n := int64(1); ; n++ {
		disk := p.killedAt(t, logSync)
		var count atomic.Int64
		var crash sync.Once
		c := p.cfg
		c.FS = faultfs.New(disk, func(op faultfs.Op, _ string) faultfs.Fault {
			if !op.Changes() || count.Add(1) != n {
				return faultfs.None
			}
			crash.Do(func() { disk.Crash(rng) })
			return faultfs.Fail
		})
		if r, err := Open(c); err == nil {
			_ = r.Stop(context.Background())
		}
		for after := range powerLosses(disk, rng) {
			if _, err := p.check(after, false); err != nil {
				t.Fatalf("operation %d: %v", n, err)
			}
		}
		if count.Load() < n {
			t.Logf("%d operations", n-1)
			break
		}
	}
	// The state is in the place of the store, and the names are not synced.
	disk := p.killedAt(t, func(disk *memfs.FS, op faultfs.Op, _ string) bool {
		_, err := disk.Stat(ready(&p.cfg, p.header.At))
		return op == faultfs.OpSyncDir && err != nil
	})
	c := p.cfg
	c.FS = disk
	r, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	for after := range powerLosses(disk, rng) {
		// The raft log may begin later by now, so that it does not show any more which store is
		// missing.
		if found, err := history.Exists(after, c.HistoryDir); err != nil || !found {
			t.Fatalf("there is a store: %v, %v", found, err)
		}
		if left, err := after.List(filepath.Dir(c.HistoryDir)); err != nil ||
			slices.Contains(left, filepath.Base(ready(&c, p.header.At))) {
			t.Fatalf("left after a start: %v, %v", left, err)
		}
	}
	_ = r.Stop(context.Background())
}

// The disk is full while a received state replaces the store. The transport, which closes before
// the member stops, does not wait for that.
func TestTransportClosesWhileInstallWaits(t *testing.T) {
	p := newParcel(t, true)
	c := p.cfg
	waits := make(chan struct{})
	var once sync.Once
	disk := copyFS(t, p.image, "data/wal", "data/history")
	c.FS = faultfs.New(disk, func(op faultfs.Op, name string) faultfs.Fault {
		if op == faultfs.OpRename && name == c.HistoryDir {
			once.Do(func() { close(waits) })
			return faultfs.Errno(syscall.ENOSPC)
		}
		return faultfs.None
	})
	r, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	r.Start()
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan error, 1)
	go func() {
		told <- r.ReceiveBulk(ctx, p.from, p.header.Encode(),
			io.NopCloser(bytes.NewReader(p.body)))
	}()
	<-waits
	cancel()
	select {
	case err := <-told:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("told %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the reception does not end")
	}
	if err := r.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if installed, err := p.check(disk.Kill(), false); err != nil || !installed {
		t.Errorf("afterwards: installed %v, %v", installed, err)
	}
}

// A member that is stopped in the middle of receiving stops at once and is as before at its next
// start.
func TestStopWhileReceiving(t *testing.T) {
	for _, full := range []bool{false, true} {
		p := newParcel(t, full)
		disk := copyFS(t, p.image, "data/wal", "data/history")
		c := p.cfg
		c.FS = disk
		r, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		r.Start()
		if _, err := r.OfferSnapshot(t.Context(), p.from,
			transfer.Offer{Index: p.header.At.Index,
				Compact: p.header.Compact}.Encode()); err != nil {
			t.Fatal(err)
		}
		pr, pw := io.Pipe()
		told := make(chan error, 1)
		go func() { told <- r.ReceiveBulk(context.Background(), p.from, p.header.Encode(), pr) }()
		if _, err := pw.Write(p.body[:len(p.body)/2]); err != nil {
			t.Fatal(err)
		}
		if err := r.ReceiveBulk(t.Context(), p.from, p.header.Encode(),
			io.NopCloser(bytes.NewReader(p.body))); err != transfer.ErrReceiving {
			t.Errorf("a second transfer: %v", err)
		}
		if _, err := r.OfferSnapshot(t.Context(), p.from,
			transfer.Offer{}.Encode()); err != transfer.ErrReceiving {
			t.Errorf("an offer at the same time: %v", err)
		}
		if err := r.Stop(t.Context()); err != nil {
			t.Errorf("stop: %v", err)
		}
		after := disk.Kill() // later writes are lost
		go func() {
			_, _ = pw.Write(p.body[len(p.body)/2:])
			pw.Close()
		}()
		if err := <-told; err == nil {
			t.Error("it was received by a member that is gone")
		}
		if installed, err := p.check(after, true); installed || err != nil {
			t.Errorf("installed %v, %v", installed, err)
		}
	}
}

// follow watches everything from a revision on and checks that no revision is missing or twice,
// until it was canceled, has come to the revision in target, or ctx ends.
func follow(ctx context.Context, r *Replica, from int64,
	target *atomic.Int64) (seen map[int64][]change, last watch.Response, err error) {
	seen = map[int64][]change{}
	s := r.Hub().NewStream(watch.StreamInfo{})
	defer s.Close()
	s.Create(watch.CreateRequest{Key: []byte{0}, End: []byte{0}, StartRev: from})
	newest := from - 1
	var buf []watch.Response
	for {
		if to := target.Load(); to > 0 && newest >= to {
			return seen, last, nil
		}
		if buf, err = s.Next(ctx, buf[:0]); err != nil {
			return seen, last, err
		}
		for _, last = range buf {
			if last.Canceled {
				return seen, last, nil
			}
			before := newest
			for _, b := range last.Events {
				var ev mvccpb.Event
				if err := proto.Unmarshal(b, &ev); err != nil {
					return seen, last, err
				}
				rev := ev.Kv.ModRevision
				if rev <= before || rev < newest || rev > newest+1 {
					return seen, last, fmt.Errorf("event of revision %d after one of %d", rev,
						newest)
				}
				newest = rev
				seen[rev] = append(seen[rev], changeOf(ev.Kv, ev.Type == mvccpb.Event_DELETE))
			}
		}
	}
}

// Watchers and readers of a member go on while snapshots replace its store: no event is missing,
// twice or another than at the leader, no read fails, and nothing goes back.
func TestWatchersAndReadersAcrossSnapshots(t *testing.T) {
	for _, full := range []bool{false, true} {
		t.Run(fmt.Sprintf("full=%v", full), func(t *testing.T) {
			g := startGroup(t, func(_ int, c *Config) {
				c.ScrubBytesPerSecond, c.ScrubPause = 1<<30,
					time.Millisecond
			})
			for i := range 50 {
				g.put(fmt.Sprintf("k%d", i), junk(100))
			}
			r := g.other()
			g.caughtUp(r)
			ctx := t.Context()
			var target atomic.Int64
			type result struct {
				from int64
				seen map[int64][]change
			}
			var mu sync.Mutex
			var results []result
			var wg sync.WaitGroup
			observe := func(from int64) {
				wg.Go(func() {
					seen, last, err := follow(ctx, r, from, &target)
					if err != nil || last.Canceled {
						t.Errorf("watcher from %d: %v, %+v", from, err, last)
					}
					mu.Lock()
					defer mu.Unlock()
					results = append(results, result{from, seen})
				})
			}
			for range 4 {
				observe(r.Status().Revision + 1)
				observe(2)
			}
			observe(r.Status().Revision + 150) // in the future
			reading, done := context.WithCancel(ctx)
			defer done()
			var reads, hashes atomic.Int64
			for range 3 {
				wg.Go(func() {
					last := int64(0)
					for reading.Err() == nil {
						res, err := r.Range(ctx,
							&kv.RangeRequest{Key: []byte{0}, End: []byte{0}, Serializable: true})
						if err != nil || res.Revision < last {
							t.Errorf("read: %v, or at %d after %d", err, res.Revision, last)
							return
						}
						if res.Count != int64(res.KVs.Len()) || res.Count < 50 {
							t.Errorf("%d of %d keys", res.KVs.Len(), res.Count)
						}
						last = res.Revision
						reads.Add(1)
						time.Sleep(time.Millisecond)
					}
				})
			}
			wg.Go(func() {
				for i := 0; reading.Err() == nil; i++ {
					if _, err := r.HashKV(ctx, 0); err != nil {
						t.Errorf("hash: %v", err)
						return
					}
					if _, err := r.Checkpoint(ctx, fmt.Sprintf("copy%d", i)); err != nil {
						t.Errorf("checkpoint: %v", err)
						return
					}
					hashes.Add(1)
					time.Sleep(5 * time.Millisecond)
				}
			})
			g.net.mu.Lock()
			if full {
				// As if it had lost its store's hash: it has nothing to offer.
				g.net.noOffer = true
			}
			g.net.mu.Unlock()
			for round := range uint64(3) {
				g.lag(r, 100)
				observe(r.Status().Revision + 1)
				observe(2)
				g.net.setCut(r.memberID, false)
				await(t, "a snapshot", func() bool { return r.receiver.Stats().Installed > round })
				g.caughtUp(r)
				for i := range 20 { // live again
					g.put(fmt.Sprintf("live%d", i), junk(20))
				}
				observe(r.Status().Revision + 1)
			}
			g.caughtUp(r)
			newest := g.put("last", nil)
			target.Store(newest)
			g.put("wake", nil) // who has seen all by now looks at the target
			done()
			wg.Wait()
			model, err := watchFrom(g.leader(), 2, newest)
			if err != nil {
				t.Fatal(err)
			}
			for _, res := range results {
				for _, rev := range slices.Sorted(maps.Keys(model)) {
					if rev >= res.from && rev <= newest &&
						!slices.Equal(res.seen[rev], model[rev]) {
						t.Errorf("the watcher from %d saw %v at %d, want %v", res.from,
							res.seen[rev], rev, model[rev])
						break
					}
				}
			}
			if n := r.Metrics().Damaged; n > 0 {
				t.Errorf("damage was met %d times", n)
			}
			t.Logf("%d watchers to revision %d, %d reads, %d hashes and checkpoints", len(results),
				newest, reads.Load(), hashes.Load())
		})
	}
}

// A live watcher that a compaction has overtaken while the member was away is canceled with the
// reason.
func TestWatcherOvertakenByASnapshot(t *testing.T) {
	g := startGroup(t, nil)
	for i := range 20 {
		g.put(fmt.Sprintf("k%d", i), junk(100))
	}
	r := g.other()
	g.caughtUp(r)
	var never atomic.Int64
	type end struct {
		seen map[int64][]change
		last watch.Response
		err  error
	}
	ended := make(chan end, 1)
	before := r.Status().Revision
	go func() {
		seen, last, err := follow(t.Context(), r, 2, &never)
		ended <- end{seen, last, err}
	}()
	await(t, "the watcher",
		func() bool { m := r.Hub().Metrics(); return m.Watchers > 0 && m.Behind == 0 })
	g.lag(r, 50)
	lead := g.leader()
	compact := lead.Status().Revision - 5
	if _, err := lead.Compact(t.Context(), &kv.CompactRequest{Revision: compact}); err != nil {
		t.Fatal(err)
	}
	g.net.setCut(r.memberID, false)
	e := <-ended
	if e.err != nil || !e.last.Canceled || e.last.CompactRevision != compact {
		t.Errorf("%+v, %v, want canceled at %d", e.last, e.err, compact)
	}
	if len(e.seen) != int(before-1) {
		t.Errorf("%d revisions seen, %d there were", len(e.seen), before-1)
	}
	g.caughtUp(r)
}

// Users and roles that come with a snapshot are a change too: its events wait until the watchers
// were reviewed.
func TestSnapshotWithUsersWithholdsEvents(t *testing.T) {
	g := startGroup(t, func(_ int, c *Config) { c.BcryptCost = 4 })
	g.put("k", nil)
	r := g.other()
	g.caughtUp(r)
	s := r.Hub().NewStream(watch.StreamInfo{})
	defer s.Close()
	s.Create(watch.CreateRequest{Key: []byte{0}, End: []byte{0}, StartRev: 2})
	g.lag(r, 50)
	lead := g.leader()
	secure(t, lead)
	res, err := lead.Put(withToken(t, login(t, lead, "root")), &kv.PutRequest{Key: []byte("k")})
	if err != nil {
		t.Fatal(err)
	}
	g.net.setCut(r.memberID, false)
	await(t, "the snapshot", func() bool {
		// It counts as installed a moment after its data can be read.
		return r.Status().Revision == res.Revision && r.Access.AuthEnabled() &&
			r.Metrics().Received.Installed == 1
	})
	holds := r.Hub().Withheld()
	if matched := r.Hub().Metrics().Matched; holds == 0 || matched >= res.Revision {
		t.Errorf("withheld %d times, watchers have revision %d of %d", holds, matched, res.Revision)
	}
	await(t, "the watchers", func() bool {
		r.Hub().Release(r.Hub().Withheld())
		m := r.Hub().Metrics()
		return m.Matched == res.Revision && m.Behind == 0
	})
}
