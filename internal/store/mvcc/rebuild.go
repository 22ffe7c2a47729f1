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
	"vigil/internal/store/mvcc/index"
	"vigil/internal/store/mvcc/record"
)

// partsPerWorker is the number of parts that the records are cut into for each worker. Decoded
// parts stay in memory until their turn comes, so they must not be large.
const partsPerWorker = 16

// change is a record as the index needs it.
type change struct {
	key           string
	rec           index.Change
	create, lease int64
	// version is the full version of rec.
	version int64
}

// shard builds the entries of the keys of one hash class.
type shard struct {
	section *index.Section
	// places are the positions of keys in list.
	places map[string]int
	list   []draft
	// chain holds the changes of all keys.
	chain []link
	text  []byte
	live  int64
	// sorted holds the finished keys, in key order.
	sorted []item
	// dead holds the records that the compaction made needless, in order for each key.
	dead []history.DeadRecord
}

// draft is a key whose changes are being collected.
type draft struct {
	key         string
	base, lease int64
	// last is the newest change in chain, n the number of changes.
	last, n int
	live    bool
}

// link is a change and the position in chain of the key's previous change. So a shard keeps the
// changes of a key without guessing their number, and makes the entry with room for exactly these.
type link struct {
	rec    index.Change
	before int
}

// item is a finished key of a shard.
type item struct {
	key  string
	ref  index.Ref
	live bool
}

// rebuild makes the index of the records of a view, as a compaction at compact leaves it. live is
// the newest revision that the records still show to have made or deleted a key. dead holds the
// records below the compact revision that the index does not need, largest is the size of the
// largest record.
//
// Workers decode parts of the log side by side and deal the changes out by key; each shard takes
// its share part by part, in order. Then the shards are sorted side by side and merged.
func rebuild(view *history.View, compact int64, workers int) (x *index.Index, live, largest int64,
	dead [][]history.DeadRecord, err error) {
	if workers == 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	parts := view.Split(workers * partsPerWorker)
	defer func() {
		for _, sc := range parts {
			sc.Close()
		}
	}()
	builder := index.NewBuilder()
	shards := make([]shard, workers)
	dealt := make([][][]change, len(parts))
	ready := make([]chan struct{}, len(parts))
	for i := range ready {
		ready[i] = make(chan struct{})
	}
	// window bounds the parts that are decoded and that not every shard has taken yet.
	window := make(chan struct{}, 2*workers)
	taken := make([]atomic.Int32, len(parts))
	var failed atomic.Pointer[error]
	var turn, most atomic.Int64
	hash := maphash.MakeSeed()

	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				// Parts enter the window in order. Otherwise the shards could wait for a part that
				// waits for the window.
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
			sh.section = builder.NewSection()
			sh.places = make(map[string]int)
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
	return merge(builder, shards), live, most.Load(), dead, nil
}

// deal decodes a part and deals its changes out to n shards. It raises most to the size of the
// largest record.
func deal(sc *history.Scanner, n int, seed maphash.Seed, most *atomic.Int64) ([][]change, error) {
	out := make([][]change, n)
	var arena []byte
	largest := int64(0)
	defer func() {
		for was := most.Load(); was < largest &&
			!most.CompareAndSwap(was, largest); was = most.Load() {
		}
	}()
	for sc.Next() {
		var r record.KeyValue
		rev := sc.Rev()
		largest = max(largest, int64(len(sc.Data())))
		if err := r.Decode(sc.Data()); err != nil {
			return nil, fmt.Errorf("%w at revision %d.%d: %w", err, rev.Main,
				rev.Sub, kv.ErrCorrupt)
		}
		if rev.Sub > index.MaxSub {
			return nil, fmt.Errorf("revision %d.%d: %w", rev.Main, rev.Sub, kv.ErrCorrupt)
		}
		if len(r.Key) > cap(arena)-len(arena) {
			arena = make([]byte, 0, max(len(r.Key), 64<<10))
		}
		start := len(arena)
		arena = append(arena, r.Key...)
		c := change{key: str(arena[start:]), create: r.Create, lease: r.Lease, version: r.Version}
		if sc.Tombstone() {
			c.rec, c.version, c.lease, c.create = index.NewTombstone(rev), 0, 0, 0
		} else {
			if r.Version <= 0 {
				return nil, fmt.Errorf("version %d at revision %d.%d: %w", r.Version, rev.Main,
					rev.Sub, kv.ErrCorrupt)
			}
			c.rec = index.NewPut(rev, r.Version)
		}
		s := maphash.String(seed, c.key) % uint64(n)
		out[s] = append(out[s], c)
	}
	return out, sc.Err()
}

// add appends a change to its key.
func (sh *shard) add(c *change, compact int64) {
	if c.version <= 1 {
		sh.live = max(sh.live, c.rec.Main)
	}
	at, ok := sh.places[c.key]
	if !ok {
		if c.version == 0 && c.rec.Main <= compact {
			sh.bury(c.rec, compact)
			return
		}
		at = len(sh.list)
		sh.list = append(sh.list, draft{key: sh.keep(c.key)})
		sh.places[sh.list[at].key] = at
	}
	d := &sh.list[at]
	d.live, d.lease = c.version > 0, c.lease
	if c.rec.Main <= compact && d.n > 0 {
		// It is the newest change at or below the compact revision so far, so the previous one does
		// not count.
		sh.bury(sh.chain[d.last].rec, compact)
		d.n = 0
		if c.version > 0 {
			sh.chain[d.last].rec = c.rec
			d.base, d.n = c.create, 1
			return
		}
	}
	if c.rec.Main <= compact && c.version == 0 {
		sh.bury(c.rec, compact)
		return
	}
	if d.n == 0 {
		d.base = c.create
	}
	sh.chain = append(sh.chain, link{c.rec, d.last})
	d.last = len(sh.chain) - 1
	d.n++
}

// keep copies a key.
func (sh *shard) keep(key string) string {
	if len(key) > cap(sh.text)-len(sh.text) {
		sh.text = make([]byte, 0, max(len(key), 64<<10))
	}
	start := len(sh.text)
	sh.text = append(sh.text, key...)
	return str(sh.text[start:])
}

// bury records that r is needless, unless a watcher may still start at its revision.
func (sh *shard) bury(r index.Change, compact int64) {
	if r.Main < compact {
		sh.dead = append(sh.dead, history.DeadRecord{Rev: r.Rev(), Tombstone: r.Tombstone()})
	}
}

// finish drops the keys that do not exist any more, sorts the others and makes their entries.
func (sh *shard) finish() {
	sh.places = nil
	list := slices.DeleteFunc(sh.list, func(d draft) bool { return d.n == 0 })
	slices.SortFunc(list, func(a, b draft) int { return strings.Compare(a.key, b.key) })
	sh.sorted = make([]item, len(list))
	for i := range list {
		d := &list[i]
		ref, changes := sh.section.Entry(d.key, d.lease, d.base, d.n)
		for k, at := d.n-1, d.last; k >= 0; k-- {
			changes.Set(k, sh.chain[at].rec)
			at = sh.chain[at].before
		}
		sh.sorted[i] = item{d.key, ref, d.live}
	}
	sh.section.Finish()
	sh.list, sh.chain, sh.text = nil, nil, nil
}

// merge makes one index of the shards.
func merge(b *index.Builder, shards []shard) *index.Index {
	for {
		least := -1
		for i := range shards {
			sorted := shards[i].sorted
			if len(sorted) > 0 && (least < 0 || sorted[0].key < shards[least].sorted[0].key) {
				least = i
			}
		}
		if least < 0 {
			return b.Index()
		}
		sh := &shards[least]
		it := sh.sorted[0]
		sh.sorted = sh.sorted[1:]
		b.Add(it.ref, it.live)
	}
}
