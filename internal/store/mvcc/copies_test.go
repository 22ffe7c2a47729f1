package mvcc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vigil/internal/kv"
	"vigil/internal/store/history"
	"vigil/internal/vfs/memfs"
)

// parcel is a copy of a store as another member, a backup or a checkpoint gets it.
type parcel struct {
	what              string
	applied           history.Applied
	revision, compact int64
	meta              []history.Meta
	recs              []exported
	// exact says that nothing that the compaction has made needless is in it.
	exact bool
}

// at returns the model as it was at a position of the chronicle.
func (c *chronicle) at(a history.Applied) *model {
	if a.Index < 2 {
		return newModel()
	}
	return c.models[a.Index-2]
}

// hash returns what the hash of a store with the changes of m is at a revision, compacted at another;
// false if etcd's own would be another one.
func (m *model) hash(at, compact int64) (uint32, bool) {
	h := newHashModel()
	for _, c := range m.changes {
		h.add(c)
	}
	if compact > 0 {
		if h.losesPut(compact) {
			return 0, false
		}
		h.compactTo(compact)
	}
	return h.sum(h.compact, at, h.keep(at, false)), true
}

// check compares a copy with the model at its position: everything from the compact revision on is there,
// below it each key is in the state that it had then, and a key that was deleted is dead.
func (p *parcel) check(m *model) error {
	if p.revision != m.rev || p.compact != m.compact {
		return fmt.Errorf("%s at %v: revision %d, compacted at %d, want %d and %d", p.what, p.applied, p.revision, p.compact, m.rev, m.compact)
	}
	changes := map[kv.Rev]modelChange{}
	state, shown := map[string]modelChange{}, map[string]modelChange{}
	for _, c := range m.changes {
		changes[c.rev] = c
		if c.rev.Main <= m.compact {
			state[c.kv.Key] = c
		}
	}
	present := map[kv.Rev]bool{}
	last := kv.Rev{}
	for _, x := range p.recs {
		c, ok := changes[x.rev]
		if !ok || c.tomb != x.tombstone || !last.Less(x.rev) {
			return fmt.Errorf("%s at %v: the record at %v was never written, or not after %v", p.what, p.applied, x.rev, last)
		}
		last = x.rev
		if got, err := plainKV([]byte(x.data)); !c.tomb && (err != nil || got != c.kv) {
			return fmt.Errorf("%s at %v: the record at %v is %+v, want %+v, %w", p.what, p.applied, x.rev, got, c.kv, err)
		}
		present[x.rev] = true
		if x.rev.Main <= m.compact {
			shown[c.kv.Key] = c
		}
		if p.exact && x.rev.Main < m.compact && (x.tombstone || state[c.kv.Key].rev != x.rev) {
			return fmt.Errorf("%s at %v: the record at %v is needless", p.what, p.applied, x.rev)
		}
	}
	for _, c := range m.changes {
		if c.rev.Main >= m.compact && !present[c.rev] {
			return fmt.Errorf("%s at %v, compacted at %d: the record at %v is missing", p.what, p.applied, m.compact, c.rev)
		}
	}
	for key, want := range state {
		got, ok := shown[key]
		alive := ok && !got.tomb
		if alive != !want.tomb || alive && got.rev != want.rev {
			return fmt.Errorf("%s at %v, compacted at %d: the newest record of %q is at %v, deletion %v; want the one at %v, deletion %v",
				p.what, p.applied, m.compact, key, got.rev, got.tomb, want.rev, want.tomb)
		}
	}
	return nil
}

// build makes a store of a copy, as a member does that is sent one: on a receiver that has the beginning
// of it already, or on an empty disk.
func (p *parcel) build(t *testing.T, r *bed, o Options) *bed {
	t.Helper()
	base := int64(0)
	var log *history.Log
	var err error
	if r != nil {
		base = r.Revision()
		r.close(t)
		log, err = history.Open(r.history())
	} else {
		r = &bed{fs: memfs.New(), opts: o, seg: 4096}
		log, err = history.Create(r.history(), history.Applied{}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	at := log.Applied()
	for i, x := range p.recs {
		if x.rev.Main <= base {
			continue
		}
		if err := CheckRecord(x.rev, x.tombstone, []byte(x.data)); err != nil {
			t.Fatalf("%s: %v", p.what, err)
		}
		if _, err := log.AppendKV(x.rev, x.tombstone, []byte(x.data)); err != nil {
			t.Fatalf("%s: %v", p.what, err)
		}
		if i%20 == 0 {
			if err := log.Commit(at); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, m := range p.meta {
		if err := log.AppendMeta(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(log.Commit(p.applied), log.Close()); err != nil {
		t.Fatal(err)
	}
	if log, err = history.Open(r.history()); err != nil {
		t.Fatal(err)
	}
	r.open(t, log)
	return r
}

// equal compares a store with the model: the keys at every revision above the compaction, the events, and
// the hash.
func equal(t *testing.T, what string, b *bed, m *model) {
	t.Helper()
	if b.Revision() != m.rev || b.CompactRevision() != m.compact {
		t.Fatalf("%s: revision %d, compacted at %d, want %d and %d", what, b.Revision(), b.CompactRevision(), m.rev, m.compact)
	}
	for at := max(m.compact, 1); at <= m.rev; at++ {
		res, err := b.Range(t.Context(), &kv.RangeRequest{Key: []byte{0}, End: []byte{0}, Revision: at})
		if err != nil {
			t.Fatalf("%s: at %d: %v", what, at, err)
		}
		got, err := plainKVs(res.KVs)
		if want := m.keys([]byte{0}, []byte{0}, at); err != nil || !reflect.DeepEqual(got, want) || res.Count != int64(len(want)) {
			t.Fatalf("%s: at %d of %d, compacted at %d: %d keys %s, want %d %s, %v", what, at, m.rev, m.compact, res.Count, show(got), len(want), show(want), err)
		}
	}
	if keys := b.Stats().Keys; keys != len(m.keys([]byte{0}, []byte{0}, m.rev)) {
		t.Fatalf("%s: %d keys", what, keys)
	}
	from := max(m.compact, 1)
	evs, _, err := b.Events(from, m.rev, 1<<30)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	got, want := plainEvents(t, evs), m.events(from, m.rev)
	if len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: events from %d: %s, want %s", what, from, show(got), show(want))
	}
	res, err := b.Hash(t.Context())
	if sum, ok := m.hash(m.rev, m.compact); err != nil || ok && res.Hash != sum {
		t.Fatalf("%s: hash %08x, want %08x, %v", what, res.Hash, sum, err)
	}
}

// copiers makes copies of a store by every way, at the same time, while it lives.
type copiers struct {
	t     *testing.T
	b     *Store
	log   *history.Log
	fs    *memfs.FS
	c     *chronicle
	ctx   context.Context
	end   context.CancelFunc
	ended atomic.Bool // errors do not count any more
	wg    sync.WaitGroup
	// made counts the copies of each kind, overtaken those that a compaction came in between of.
	made      [4]atomic.Int64
	overtaken atomic.Int64

	mu      sync.Mutex
	parcels []*parcel
}

func startCopiers(t *testing.T, b *bed, c *chronicle, rng *rand.Rand) *copiers {
	x := &copiers{t: t, b: b.Store, log: b.log, fs: b.fs, c: c}
	x.ctx, x.end = context.WithCancel(t.Context())
	for n, copies := range slices.Concat([]func(*rand.Rand) error{x.checkpoint, x.export, x.hash}, slices.Repeat([]func(*rand.Rand) error{x.cut}, 12)) {
		own := rand.New(rand.NewPCG(rng.Uint64(), uint64(n)))
		x.wg.Go(func() {
			for x.ctx.Err() == nil {
				if err := copies(own); err != nil {
					if !x.ended.Load() {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	return x
}

// wait waits until each kind of copy was made: the writer may be faster.
func (x *copiers) wait() {
	for i := range x.made {
		for x.made[i].Load() == 0 && !x.t.Failed() {
			time.Sleep(time.Millisecond)
		}
	}
}

// stop ends it all as the store ends, by fn, and returns some of the copies.
func (x *copiers) stop(fn func()) []*parcel {
	x.ended.Store(true)
	fn()
	x.end()
	x.wg.Wait()
	return x.parcels
}

// take checks a copy, and keeps a few to build stores of.
func (x *copiers) take(rng *rand.Rand, p *parcel) {
	if err := p.check(x.c.at(p.applied)); err != nil {
		x.t.Error(err)
		p = nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if p == nil {
		return
	}
	if len(x.parcels) < 6 {
		x.parcels = append(x.parcels, p)
	} else {
		x.parcels[rng.IntN(6)] = p
	}
}

// records reads a scanner, which it closes.
func records(sc *history.Scanner, settle func() bool) (recs []exported, err error) {
	defer sc.Close()
	for sc.Next() {
		recs = append(recs, exported{sc.Rev(), sc.Tombstone(), string(sc.Data())})
		if len(recs)%50 == 0 && settle() {
			sc.ReleaseMemory()
		}
	}
	return recs, sc.Err()
}

// cut holds a few cuts, and reads them later, in any order.
func (x *copiers) cut(rng *rand.Rand) error {
	type held struct {
		p  *parcel
		sc *history.Scanner
	}
	var list []held
	defer func() {
		for _, h := range list {
			h.sc.Close()
		}
	}()
	for range 1 + rng.IntN(8) {
		cut, err := x.b.Cut(x.ctx)
		if err != nil {
			return err
		}
		before := x.log.ReclaimStats().Rewrites
		sc, err := cut.Records(1)
		if errors.Is(err, kv.ErrCompacted) {
			x.overtaken.Add(1)
			continue
		}
		if err != nil {
			return err
		}
		if x.log.ReclaimStats().Rewrites == before && rng.IntN(4) > 0 {
			sc.Close() // most of those that nothing happened under are not worth reading
			continue
		}
		list = append(list, held{&parcel{what: "a cut", applied: cut.Applied, revision: cut.Revision, compact: cut.Compact, meta: cut.Meta}, sc})
	}
	for len(list) > 0 {
		n := rng.IntN(len(list))
		h := list[n]
		list = slices.Delete(list, n, n+1)
		var err error
		if h.p.recs, err = records(h.sc, func() bool { return rng.IntN(2) == 0 }); err != nil {
			return err
		}
		x.made[0].Add(1)
		x.take(rng, h.p)
	}
	return nil
}

func (x *copiers) checkpoint(rng *rand.Rand) error {
	o := history.Options{FS: x.fs, Dir: fmt.Sprintf("copies/%x", rng.Uint64()), SegmentBytes: 4096}
	made, err := x.log.Checkpoint(x.ctx, o.Dir, "")
	if err != nil {
		return err
	}
	log, err := history.Open(o)
	if err != nil {
		return err
	}
	defer log.Close()
	p := &parcel{what: "a checkpoint", applied: log.Applied(), meta: log.AllMeta()}
	if p.compact, err = CompactRevision(p.meta); err != nil {
		return err
	}
	p.revision = max(log.LastRev().Main, p.compact, 1)
	if p.recs, err = records(log.View().Scan(kv.Rev{}), func() bool { return false }); err != nil {
		return err
	}
	if made.Applied != p.applied || made.Revision != log.LastRev().Main {
		return fmt.Errorf("a checkpoint at %v, revision %d, is %v, revision %d", made.Applied, made.Revision, p.applied, log.LastRev().Main)
	}
	x.made[1].Add(1)
	x.take(rng, p)
	return nil
}

func (x *copiers) export(rng *rand.Rand) error {
	p := &parcel{what: "a backup", exact: true}
	e, err := x.b.Export(x.ctx, func(rev kv.Rev, tombstone bool, data []byte) error {
		p.recs = append(p.recs, exported{rev, tombstone, string(data)})
		return nil
	})
	if err != nil {
		return err
	}
	defer e.Close()
	n := 0
	for ; e.Next(); n++ {
		if again := (exported{e.Rev(), e.Tombstone(), string(e.Data())}); n == len(p.recs) || again != p.recs[n] {
			x.t.Errorf("the second walk of a backup differs at record %d of %d", n, len(p.recs))
			return nil
		}
	}
	if err := e.Err(); err != nil {
		return err
	}
	if n != len(p.recs) {
		x.t.Errorf("the second walk of a backup has %d records of %d", n, len(p.recs))
	}
	p.applied, p.revision, p.compact, p.meta = e.Applied, e.Revision, e.Compact, e.Meta
	x.made[2].Add(1)
	x.take(rng, p)
	return nil
}

func (x *copiers) hash(*rand.Rand) error {
	res, err := x.b.Hash(x.ctx)
	if err != nil {
		return err
	}
	if want, ok := x.c.models[len(x.c.models)-1].hash(res.HashRevision, res.CompactRevision); ok && want != res.Hash {
		x.t.Errorf("the hash at %d, compacted at %d, is %08x, want %08x", res.HashRevision, res.CompactRevision, res.Hash, want)
	}
	x.made[3].Add(1)
	return nil
}

// TestCopies copies a store by all ways at once, with the reclaimer at work, cuts that are held while
// segments are rewritten, checkpoints, backups and hashes, through crashes and restarts; each copy is
// compared with the model at its position, and stores that are built of some of them, at once or one on
// the other as a member that was away gets what it lacks, live on and are compared again. VIGIL_ROUNDS
// says how many histories, VIGIL_SEED which.
//
//vigil:norace
func TestCopies(t *testing.T) {
	var made [4]int64
	var overtaken int64
	var rewrites uint64
	built, grown := 0, 0
	for range rounds(t, 2) {
		g := gen{seed(t)}
		c := chronicle{lag: g.Int64N(3) * 50, size: 60 << g.IntN(6)}
		m := newModel()
		for range 150 + g.IntN(100) {
			c.write(g, m)
		}
		b := newBed(t, Options{TrimKeys: 1 + g.IntN(20), Parallel: 1 + g.IntN(3)}, 4096)
		var receivers []*bed
		for n := 0; n < len(c.batches) && !t.Failed(); {
			x := startCopiers(t, b, &c, g.Rand)
			for end := min(n+10+g.IntN(60), len(c.batches)); n < end; {
				n++
				c.replay(t, b, n)
				switch g.IntN(6) {
				case 0:
					b.Reclaim()
				case 1:
					if _, err := b.log.Sync(); err != nil {
						t.Fatal(err)
					}
				case 2, 3:
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					if err := b.WaitReclaimed(ctx, b.CompactRevision()); err != nil {
						t.Fatal(err)
					}
					cancel()
				}
			}
			x.wait()
			rewrites += b.log.ReclaimStats().Rewrites
			parcels := x.stop(func() {
				next := b.fs
				switch g.IntN(3) {
				case 0:
					next = b.fs.Kill()
				case 1:
					next = b.fs.Crash(g.Rand)
				}
				b.Store.Close()
				_ = b.log.Close()
				b.fs = next
			})
			for i := range made {
				made[i] += x.made[i].Load()
			}
			overtaken += x.overtaken.Load()
			log, err := history.Open(b.history())
			if err != nil {
				t.Fatal(err)
			}
			b.open(t, log)
			if n = int(log.Applied().Index) - 1; n > 0 {
				equal(t, "the store after a restart", b, c.models[n-1])
			}
			parcels = parcels[:min(len(parcels), 3)]
			slices.SortFunc(parcels, func(a, b *parcel) int { return cmp.Compare(a.applied.Index, b.applied.Index) })
			for _, p := range parcels {
				m := c.at(p.applied)
				var r *bed
				if i := g.IntN(len(receivers) + 1); i < len(receivers) && p.follows(t, receivers[i], m) {
					r = receivers[i]
					receivers = slices.Delete(receivers, i, i+1)
					grown++
				}
				r = p.build(t, r, Options{TrimKeys: 1 + g.IntN(20)})
				built++
				equal(t, "built of "+p.what, r, m)
				receivers = append(receivers, r)
			}
		}
		if t.Failed() {
			t.FailNow()
		}
		for _, r := range receivers {
			r.Reclaim()
			if err := r.WaitReclaimed(t.Context(), r.CompactRevision()); err != nil {
				t.Fatal(err)
			}
			r.reopen(t)
			equal(t, "a receiver, reclaimed", r, c.at(r.log.Applied()))
			c.replay(t, r, len(c.batches))
			equal(t, "a receiver in the end", r, c.models[len(c.models)-1])
			r.close(t)
		}
		equal(t, "the store", b, c.models[len(c.models)-1])
		b.close(t)
	}
	t.Logf("%d cuts, %d checkpoints, %d backups, %d hashes; %d cuts overtaken; %d rewrites; %d stores built, %d of them on others",
		made[0], made[1], made[2], made[3], overtaken, rewrites, built, grown)
	if slices.Contains(made[:], 0) || rewrites == 0 || built == 0 {
		t.Error("not everything happened")
	}
}

// follows reports whether a receiver has the beginning of a copy, of which it then needs what is above its
// own revision only, as a member finds out that sends it.
func (p *parcel) follows(t *testing.T, r *bed, m *model) bool {
	if strings.HasPrefix(p.what, "a backup") || r.Revision() > p.revision || r.Revision() < max(p.compact, 2) || r.log.Applied().Index >= p.applied.Index {
		return false
	}
	at, compact := r.Revision(), p.compact
	sum, err := r.HashAt(t.Context(), at, compact)
	if err != nil {
		t.Fatal(err)
	}
	if want, ok := m.hash(at, compact); ok && want != sum {
		t.Fatalf("the hash of a receiver at %d, compacted at %d, is %08x, want %08x", at, compact, sum, want)
	}
	return true
}
