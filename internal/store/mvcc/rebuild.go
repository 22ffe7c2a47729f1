package mvcc

import (
	"fmt"
	"hash/maphash"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"vigil/internal/kv"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc/keytree"
	"vigil/internal/store/mvcc/record"
)

// partsPerWorker is the number of parts that the records are cut into for each worker. Parts are
// held in memory in a form of their own while they wait for their turn, and so must not be large.
const partsPerWorker = 16

// change is a record as the index needs it.
type change struct {
	key           string
	rec           rec
	create, lease int64
	// version is that of rec in full.
	version int64
}

// shard builds the entries of the keys of one hash class.
type shard struct {
	entries map[string]*entry
	live    int64
	sorted  []item
	// dead are the records that the compaction has made needless, those of a key in their order.
	dead []history.DeadRecord
}

// item is a key of a shard that is done.
type item struct {
	key string
	e   *entry
}

// rebuild makes the index of the records of a view, as a compaction at compact leaves it. live is
// the newest revision that made or deleted a key, as far as that can still be seen. dead are the
// records below the compact revision that have no place in it, largest is the size of the largest record.
//
// Workers decode parts of the log side by side and deal the changes out by key; each shard takes
// its share part by part, in order. Then the shards are sorted side by side and merged.
func rebuild(view *history.View, compact int64, workers int) (tree *keytree.Tree[*entry], live, largest int64, dead [][]history.DeadRecord, err error) {
	if workers == 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	parts := view.Split(workers * partsPerWorker)
	defer func() {
		for _, sc := range parts {
			sc.Close()
		}
	}()
	shards := make([]shard, workers)
	dealt := make([][][]change, len(parts))
	ready := make([]chan struct{}, len(parts))
	for i := range ready {
		ready[i] = make(chan struct{})
	}
	// window bounds the parts that are decoded and not yet taken by every shard.
	window := make(chan struct{}, 2*workers)
	taken := make([]atomic.Int32, len(parts))
	var failed atomic.Pointer[error]
	var turn, most atomic.Int64
	hash := maphash.MakeSeed()

	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				// The window is entered in the order of the parts, or else the shards could wait
				// for a part that waits for the window.
				window <- struct{}{}
				i := int(turn.Add(1)) - 1
				if i >= len(parts) {
					<-window
					return
				}
				if failed.Load() == nil {
					d, err := deal(parts[i], workers, hash, &most)
					if err != nil {
						failed.CompareAndSwap(nil, &err)
					}
					dealt[i] = d
				}
				close(ready[i])
			}
		})
	}
	for n := range shards {
		wg.Go(func() {
			sh := &shards[n]
			sh.entries = make(map[string]*entry)
			for i := range parts {
				<-ready[i]
				if d := dealt[i]; d != nil {
					for j := range d[n] {
						sh.add(&d[n][j], compact)
					}
				}
				if int(taken[i].Add(1)) == len(shards) {
					dealt[i] = nil
					<-window
				}
			}
			sh.finish()
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return nil, 0, 0, nil, *err
	}
	for i := range shards {
		live = max(live, shards[i].live)
		dead = append(dead, shards[i].dead)
	}
	return merge(shards), live, most.Load(), dead, nil
}

// deal decodes a part and deals its changes out to n shards. It raises most to the size of the largest
// record.
func deal(sc *history.Scanner, n int, seed maphash.Seed, most *atomic.Int64) ([][]change, error) {
	out := make([][]change, n)
	var arena []byte
	largest := int64(0)
	defer func() {
		for was := most.Load(); was < largest && !most.CompareAndSwap(was, largest); was = most.Load() {
		}
	}()
	for sc.Next() {
		var r record.KeyValue
		rev := sc.Rev()
		largest = max(largest, int64(len(sc.Data())))
		if err := r.Decode(sc.Data()); err != nil {
			return nil, fmt.Errorf("%w at revision %d.%d: %w", err, rev.Main, rev.Sub, kv.ErrCorrupt)
		}
		if rev.Sub > maxSub {
			return nil, fmt.Errorf("revision %d.%d: %w", rev.Main, rev.Sub, kv.ErrCorrupt)
		}
		if len(r.Key) > cap(arena)-len(arena) {
			arena = make([]byte, 0, max(len(r.Key), 64<<10))
		}
		start := len(arena)
		arena = append(arena, r.Key...)
		c := change{key: str(arena[start:]), create: r.Create, lease: r.Lease, version: r.Version}
		if sc.Tombstone() {
			c.rec, c.version, c.lease, c.create = newTombstone(rev), 0, 0, 0
		} else {
			if r.Version <= 0 {
				return nil, fmt.Errorf("version %d at revision %d.%d: %w", r.Version, rev.Main, rev.Sub, kv.ErrCorrupt)
			}
			c.rec = newRec(rev, r.Version)
		}
		s := maphash.String(seed, c.key) % uint64(n)
		out[s] = append(out[s], c)
	}
	return out, sc.Err()
}

// add appends a change to its key.
func (sh *shard) add(c *change, compact int64) {
	if c.version <= 1 {
		sh.live = max(sh.live, c.rec.main)
	}
	e, ok := sh.entries[c.key]
	if !ok {
		if c.version == 0 && c.rec.main <= compact {
			sh.bury(c.rec, compact)
			return
		}
		e = newEntry()
		sh.entries[strings.Clone(c.key)] = e
	}
	e.create, e.version, e.lease = c.create, c.version, c.lease
	if c.rec.main <= compact {
		// It is the newest change at or below the compact revision so far: nothing before it counts.
		b := &e.first
		if b.n.Load() > 0 {
			sh.bury(b.recs[0], compact)
		}
		b.n.Store(0)
		if c.version == 0 {
			sh.bury(c.rec, compact)
		} else {
			b.base = c.create
			b.recs[0] = c.rec
			b.n.Store(1)
		}
		return
	}
	e.append(c.rec)
	if b := e.block.Load(); b.n.Load() == 1 {
		b.base = c.create
	}
}

// bury notes that r is needless, unless one may still watch from where it is.
func (sh *shard) bury(r rec, compact int64) {
	if r.main < compact {
		sh.dead = append(sh.dead, history.DeadRecord{Rev: r.rev(), Tombstone: r.tombstone()})
	}
}

// finish drops the keys that do not exist any more and sorts the others.
func (sh *shard) finish() {
	sh.sorted = make([]item, 0, len(sh.entries))
	for key, e := range sh.entries {
		if e.block.Load().n.Load() > 0 {
			sh.sorted = append(sh.sorted, item{key, e})
		}
	}
	sh.entries = nil
	slices.SortFunc(sh.sorted, func(a, b item) int { return strings.Compare(a.key, b.key) })
}

// merge makes one tree of the shards.
func merge(shards []shard) *keytree.Tree[*entry] {
	var b keytree.Builder[*entry]
	for {
		least := -1
		for i := range shards {
			sorted := shards[i].sorted
			if len(sorted) > 0 && (least < 0 || sorted[0].key < shards[least].sorted[0].key) {
				least = i
			}
		}
		if least < 0 {
			return b.Tree()
		}
		sh := &shards[least]
		it := sh.sorted[0]
		sh.sorted = sh.sorted[1:]
		b.Add(it.key, it.e, it.e.version > 0)
	}
}
