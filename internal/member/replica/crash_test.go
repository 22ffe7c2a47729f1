package replica

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"vigil/internal/kv"
	"vigil/internal/store/watch"
	"vigil/internal/vfs/memfs"
)

var crashSeed = flag.Uint64("crash.seed", 0, "run the one crash sequence of this seed")

// crashes is how many crashes a run goes through, spread over sequences of a few each.
func crashes(t testing.TB) int {
	n := 150
	if v := os.Getenv("VIGIL_CRASHES"); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil {
			t.Fatalf("VIGIL_CRASHES: %v", err)
		}
	}
	return n
}

const crashesPerSequence = 6

// The whole member crashes under concurrent writers, as deep as the disk: of the data that were not
// synced an arbitrary part is there afterwards, torn at sectors. After reopening, every
// acknowledged write is present, revisions are contiguous, no transaction is there by half, and a
// watch that resumes after the last revision it saw gets every event since, once and in order.
//
//vigil:norace
func TestCrashes(t *testing.T) {
	if *crashSeed != 0 {
		newCrasher(t, *crashSeed).sequence()
		return
	}
	base := uint64(time.Now().UnixNano())
	n := crashes(t)
	var wg sync.WaitGroup
	seeds := make(chan uint64)
	for range 4 {
		wg.Go(func() {
			for seed := range seeds {
				newCrasher(t, seed).sequence()
			}
		})
	}
	for i := 0; i*crashesPerSequence < n && !t.Failed(); i++ {
		seeds <- base + uint64(i)
	}
	close(seeds)
	wg.Wait()
}

// crasher runs one sequence of crashes of one member.
type crasher struct {
	t    *testing.T
	seed uint64
	rng  *rand.Rand
	fs   *memfs.FS
	cfg  Config
	// killed is set if the last life has ended without a loss of power.
	killed bool

	// history has the revisions that the member was seen to hold; it may only grow.
	history map[int64][]change
	last    int64 // the newest revision of history

	mu struct {
		sync.Mutex
		acked map[int64]string // revision of an acknowledged write to its text
		tried map[string]bool  // texts of all writes
		seq   int
	}
}

// change is one event as a watcher saw it.
type change struct {
	Key, Value                     string
	Delete                         bool
	Create, Mod, Version, EventRev int64
}

func newCrasher(t *testing.T, seed uint64) *crasher {
	c := &crasher{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 7)), fs: memfs.New(),
		history: map[int64][]change{}, last: 1}
	c.mu.acked = map[int64]string{}
	c.mu.tried = map[string]bool{}
	return c
}

func (c *crasher) fatal(format string, args ...any) bool {
	c.t.Errorf("-crash.seed=%d: %s", c.seed, fmt.Sprintf(format, args...))
	return false
}

func (c *crasher) sequence() {
	c.cfg = config(c.fs)
	// Small enough that segments are sealed, recycled and truncated all the time.
	c.cfg.WALSegmentBytes = 8 << 10 << c.rng.IntN(3)
	c.cfg.HistorySegmentBytes = 4 << 10 << c.rng.IntN(4)
	c.cfg.SnapshotCount = uint64(10 + c.rng.IntN(100))
	c.cfg.SnapshotCatchUpEntries = uint64(c.rng.IntN(20))
	c.cfg.MaxInFlight = 1 + c.rng.IntN(4)
	c.cfg.MaxBatchBytes = 1 << c.rng.IntN(16)
	for range crashesPerSequence {
		if !c.life() {
			return
		}
	}
	// The last life is only looked at.
	r, ok := c.open()
	if !ok {
		return
	}
	c.check(r)
	if err := r.Stop(context.Background()); err != nil {
		c.fatal("stop: %v", err)
	}
}

// open starts the member after a crash.
func (c *crasher) open() (*Replica, bool) {
	c.cfg.FS = c.fs
	r, err := Open(c.cfg)
	if err != nil {
		return nil, c.fatal("open: %v", err)
	}
	r.Start()
	return r, true
}

func (c *crasher) ready(r *Replica) bool {
	select {
	case <-r.Ready():
		return true
	case err := <-r.Failed():
		r.Stop(context.Background())
		return c.fatal("failed after opening: %v", err)
	case <-time.After(60 * time.Second):
		return c.fatal("not ready after 60 s")
	}
}

// life is one run of the member up to a crash.
func (c *crasher) life() bool {
	if c.rng.IntN(8) == 0 || c.killed && c.rng.IntN(2) == 0 {
		// A crash while it starts: the disk is in any state of creation or recovery.
		// After a kill that is the page cache too.
		c.cfg.FS = c.fs
		r, err := Open(c.cfg)
		if err != nil {
			return c.fatal("open: %v", err)
		}
		r.Start()
		time.Sleep(time.Duration(c.rng.IntN(2000)) * time.Microsecond)
		c.crash()
		r.Stop(context.Background())
		return true
	}
	r, ok := c.open()
	if !ok {
		return false
	}
	if !c.check(r) {
		r.Stop(context.Background())
		return false
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	writers := 1 + c.rng.IntN(6)
	for w := range writers {
		rng := rand.New(rand.NewPCG(c.seed, c.rng.Uint64()))
		wg.Go(func() { c.write(ctx, r, w, rng) })
	}
	time.Sleep(time.Duration(500+c.rng.IntN(15000)) * time.Microsecond)
	crash := c.rng.IntN(10) > 0
	if crash {
		c.crash()
	}
	// Without a crash this is an orderly stop under load.
	err := r.Stop(context.Background())
	cancel()
	wg.Wait()
	if !crash && err != nil {
		return c.fatal("stop: %v", err)
	}
	return true
}

// crash ends the life of the file system by a loss of power, or the life of the process.
func (c *crasher) crash() {
	if c.killed = c.rng.IntN(4) == 0; c.killed {
		c.fs = c.fs.Kill()
	} else {
		c.fs = c.fs.Crash(c.rng)
	}
}

// write writes until the member is gone. Every write has a text of its own as value. A transaction
// writes the same text to several keys, and deletes some.
func (c *crasher) write(ctx context.Context, r *Replica, w int, rng *rand.Rand) {
	for {
		c.mu.Lock()
		c.mu.seq++
		text := fmt.Sprintf("%d.%d %s", w, c.mu.seq,
			strings.Repeat("x", rng.IntN(1+rng.IntN(1500))))
		c.mu.tried[text] = true
		c.mu.Unlock()
		var rev int64
		var err error
		if n := rng.IntN(6); n > 1 {
			var res *kv.PutResult
			if res, err = r.Put(ctx,
				&kv.PutRequest{Key: fmt.Appendf(nil, "p%d", rng.IntN(10)),
					Value: []byte(text)}); err == nil {
				rev = res.Revision
			}
		} else {
			txn := &kv.TxnRequest{Success: []kv.Op{
				{Put: &kv.PutRequest{Key: []byte("ta"), Value: []byte(text)}},
				{Put: &kv.PutRequest{Key: []byte("tb"), Value: []byte(text)}},
				{Put: &kv.PutRequest{Key: []byte("tc"), Value: []byte(text)}},
				{Delete: &kv.DeleteRangeRequest{Key: []byte("p0"), End: []byte("p3")}},
			}}
			var res *kv.TxnResult
			if res, err = r.Txn(ctx, txn); err == nil {
				rev = res.Revision
			}
		}
		if err != nil {
			return
		}
		c.mu.Lock()
		if old, ok := c.mu.acked[rev]; ok {
			c.fatal("revision %d was acknowledged for %.20q and %.20q", rev, old, text)
		}
		c.mu.acked[rev] = text
		c.mu.Unlock()
	}
}

// check compares the state of the member with the expected one.
func (c *crasher) check(r *Replica) bool {
	if !c.ready(r) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := r.Status().Revision
	// Resume after the last revision seen; now and then from the beginning, which must show the
	// same history again.
	from := c.last + 1
	if c.rng.IntN(3) == 0 {
		from = 2
	}
	seen, err := watchFrom(r, from, now)
	if err != nil {
		return c.fatal("watch from %d to %d: %v", from, now, err)
	}
	for rev := from; rev <= now; rev++ {
		got := seen[rev]
		if old, ok := c.history[rev]; ok && !slices.Equal(old, got) {
			return c.fatal("revision %d was %v and is %v", rev, old, got)
		}
		c.history[rev] = got
		if ok := c.checkRevision(rev, got); !ok {
			return false
		}
	}
	if now < c.last {
		return c.fatal("the member was seen at revision %d and is at %d", c.last, now)
	}
	c.last = now
	for rev, text := range c.mu.acked {
		got := c.history[rev]
		if rev > now || !slices.ContainsFunc(got,
			func(ch change) bool { return ch.Value == text }) {
			return c.fatal("revision %d was acknowledged for %.20q and holds %.200v; the store is at %d", rev, text, got, now)
		}
	}
	return c.checkState(r)
}

// checkRevision checks that a revision is one whole write.
func (c *crasher) checkRevision(rev int64, got []change) bool {
	if len(got) == 0 {
		return c.fatal("revision %d has no event", rev)
	}
	var texts, keys []string
	for _, ch := range got {
		if ch.EventRev != rev {
			return c.fatal("event %v at revision %d", ch, rev)
		}
		if !ch.Delete {
			texts, keys = append(texts, ch.Value), append(keys, ch.Key)
		}
	}
	if !c.mu.tried[texts[0]] || len(slices.Compact(texts)) != 1 {
		return c.fatal("revision %d is not one write: %.200v", rev, got)
	}
	if strings.HasPrefix(keys[0], "t") && !slices.Equal(keys, []string{"ta", "tb", "tc"}) {
		return c.fatal("revision %d is half a transaction: %.200v", rev, got)
	}
	return true
}

// checkState checks that the keys follow from the history.
func (c *crasher) checkState(r *Replica) bool {
	want := map[string]change{}
	for rev := int64(2); rev <= c.last; rev++ {
		for _, ch := range c.history[rev] {
			if ch.Delete {
				delete(want, ch.Key)
				continue
			}
			old, exists := want[ch.Key]
			create, version := rev, int64(1)
			if exists {
				create, version = old.Create, old.Version+1
			}
			if ch.Create != create || ch.Version != version || ch.Mod != rev {
				return c.fatal("revision %d: %.200v, want create %d and version %d", rev, ch,
					create, version)
			}
			want[ch.Key] = ch
		}
	}
	res, err := r.Range(context.Background(), &kv.RangeRequest{Key: []byte{0}, End: []byte{0}})
	if err != nil {
		return c.fatal("range: %v", err)
	}
	got := map[string]change{}
	for i := range res.KVs.Len() {
		var pair mvccpb.KeyValue
		if err := proto.Unmarshal(res.KVs.At(i), &pair); err != nil {
			return c.fatal("%v", err)
		}
		ch := changeOf(&pair, false)
		got[ch.Key] = ch
	}
	if !maps.Equal(got, want) {
		return c.fatal("the keys are %.300v and should be %.300v", got, want)
	}
	return true
}

func changeOf(p *mvccpb.KeyValue, del bool) change {
	return change{Key: string(p.Key), Value: string(p.Value), Delete: del,
		Create: p.CreateRevision, Mod: p.ModRevision, Version: p.Version, EventRev: p.ModRevision}
}

// watchFrom returns the events of the revisions from one to another, by revision, as one watcher
// gets them, and checks their order on the way.
func watchFrom(r *Replica, from, to int64) (map[int64][]change, error) {
	out := map[int64][]change{}
	if from > to {
		return out, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	s := r.Hub().NewStream(watch.StreamInfo{})
	defer s.Close()
	s.Create(watch.CreateRequest{Key: []byte{0}, End: []byte{0}, StartRev: from})
	newest := from - 1
	var buf []watch.Response
	for newest < to {
		var err error
		if buf, err = s.Next(ctx, buf[:0]); err != nil {
			return nil, err
		}
		for _, resp := range buf {
			if resp.Canceled {
				return nil, fmt.Errorf("canceled: %s", resp.Reason)
			}
			// A revision is never split over responses without fragments.
			before := newest
			for _, b := range resp.Events {
				var ev mvccpb.Event
				if err := proto.Unmarshal(b, &ev); err != nil {
					return nil, err
				}
				rev := ev.Kv.ModRevision
				if rev <= before || rev < newest || rev > newest+1 {
					return nil, fmt.Errorf("event of revision %d after one of %d", rev, newest)
				}
				newest = rev
				out[rev] = append(out[rev], changeOf(ev.Kv, ev.Type == mvccpb.Event_DELETE))
			}
		}
	}
	return out, nil
}

// A crash at any operation of the very first start: the next start finds nothing or everything.
func TestCrashWhileCreating(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 8))
	for n := int64(1); ; n++ {
		inner := memfs.New()
		var after *memfs.FS
		ffs, fired := crashAt(n, func() { after = inner.Crash(rng) }, inner)
		c := config(ffs)
		r, err := Open(c)
		if err == nil {
			r.Stop(context.Background())
		}
		if !fired() {
			if n < 10 {
				t.Fatalf("the first start has only %d operations", n)
			}
			return
		}
		if err == nil && after == nil {
			t.Fatal("no crash")
		}
		c.FS = after
		r, err = Open(c)
		if err != nil {
			t.Errorf("seed %d, crash at operation %d of creation: %v", seed, n, err)
			continue
		}
		r.Start()
		select {
		case <-r.Ready():
		case err := <-r.Failed():
			t.Errorf("seed %d, crash at operation %d of creation: %v", seed, n, err)
		}
		if _, err := r.Put(t.Context(), &kv.PutRequest{Key: []byte("k")}); err != nil {
			t.Errorf("seed %d, crash at operation %d of creation: %v", seed, n, err)
		}
		if err := r.Stop(context.Background()); err != nil {
			t.Errorf("seed %d, crash at operation %d of creation: %v", seed, n, err)
		}
	}
}
