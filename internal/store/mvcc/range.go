package mvcc

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"sort"
	"sync"
	"vigil/internal/kv"
	"vigil/internal/store/mvcc/index"
	"vigil/internal/store/mvcc/record"
)

// Range reads the keys of a range at a revision.
//
// Errors: a *kv.CompactedError, also when a compaction overtakes the read; kv.ErrFutureRev;
// a *kv.TooLargeError; ctx's; or one of the log.
func (s *Store) Range(ctx context.Context, r *kv.RangeRequest) (*kv.RangeResult, error) {
	sc := getScratch()
	defer sc.free()
	for {
		v := sc.beginRead(ctx, s)
		res, err := v.rangeKeys(ctx, r, sc)
		if again, err := sc.again(ctx, err); !again {
			if err != nil {
				return nil, err
			}
			s.counts.ranges.Add(1)
			return res, nil
		}
	}
}

// hit is a key that a range found.
type hit struct {
	key string
	index.State
}

// plan says how to answer a range request: how many keys to find in key order, and what to do with
// them then.
type plan struct {
	// find is the number of keys to find, 0 for all.
	find    int
	filter  bool
	sort    bool
	target  kv.SortTarget
	descend bool
}

// planOf follows etcd: a limit stops the search early only if the request does not filter the
// result and asks for no order, or for key order. A request without an order but with a target
// still sorts the keys found so.
func planOf(r *kv.RangeRequest) plan {
	p := plan{target: r.Sort, descend: r.Order == kv.SortDescend}
	p.filter = r.Filters()
	ordered := r.Order == kv.SortNone || r.Sort == kv.SortByKey && r.Order == kv.SortAscend
	p.sort = !(r.Sort == kv.SortByKey && (r.Order == kv.SortNone || r.Order == kv.SortAscend))
	if ordered && !p.filter && r.Limit > 0 && r.Limit < math.MaxInt {
		// One more than requested shows whether there are more.
		p.find = int(r.Limit) + 1
	}
	return p
}

// keyOnly reports whether the index alone answers the request. As in etcd the lease is then missing
// from the answer too.
func keyOnly(r *kv.RangeRequest) bool { return r.KeysOnly && r.Sort != kv.SortByValue }

// scratch is the working memory of a read.
type scratch struct {
	view   view // the state to read
	memory answerMemory
	hits   []hit
	revs   []kv.Rev
	recs   kv.Records // records on their way into pieces
}

// maxHits is the number of hits, and maxKept the number of bytes of records, above which a read
// does not keep their memory.
const (
	maxHits = 16 << 10
	maxKept = 2 * tempSize
)

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func getScratch() *scratch { return scratches.Get().(*scratch) }

// free ends a read and gives sc back, unless it has grown to a size that is rarely needed.
func (sc *scratch) free() {
	sc.memory.abandon()
	sc.view, sc.memory = view{}, answerMemory{}
	if cap(sc.hits) > maxHits || cap(sc.recs.Buf) > maxKept {
		return
	}
	sc.reset()
	scratches.Put(sc)
}

// reset forgets the keys found.
func (sc *scratch) reset() {
	clear(sc.hits)
	sc.hits, sc.revs = sc.hits[:0], sc.revs[:0]
}

// rangeKeys is Range on one state. It returns errAgain if the state can no longer be read although
// the request asked for the newest revision, and ration.ErrFull if there is no memory for the
// result now.
func (v *view) rangeKeys(ctx context.Context, r *kv.RangeRequest,
	sc *scratch) (*kv.RangeResult, error) {
	at, err := v.resolve(r.Revision)
	if err != nil {
		return nil, err
	}
	if r.CountOnly {
		n, err := v.count(ctx, r.Key, r.End, at)
		if err == nil {
			err = v.counted(n, at)
		}
		if err == nil {
			err = v.overtaken(at, r.Revision)
		}
		if err != nil {
			return nil, err
		}
		return &kv.RangeResult{Revision: v.rev, Count: n}, nil
	}
	sc.reset()
	f := finder{v: v, r: r, at: at, plan: planOf(r), sc: sc, res: &kv.RangeResult{Revision: v.rev}}
	f.out.init(v.memory, &f.res.KVs, sc)
	if v.w != nil {
		f.out.meter = &v.w.meter
	}
	err = f.find(ctx)
	// If a compaction overtook the read, an error of the log is not the log's fault, and a result
	// without an error may be incomplete.
	if over := v.overtaken(at, r.Revision); over != nil {
		err = over
	}
	if err != nil {
		return nil, err
	}
	f.out.finish()
	return f.res, nil
}

// overtaken calls Store.overtaken for a reader; nothing overtakes the writer.
func (v *view) overtaken(at, asked int64) error {
	if v.w != nil {
		return nil
	}
	return v.s.overtaken(at, asked)
}

// count counts the keys of a range at a revision.
func (v *view) count(ctx context.Context, key, end []byte, at int64) (int64, error) {
	from, to, single := bounds(key, end)
	if single {
		if _, ok := v.find(from, at); ok {
			return 1, nil
		}
		return 0, nil
	}
	if n, ok := v.rank(from, to, at); ok {
		return n, nil
	}
	return v.visit(ctx, from, to, at)
}

// counted charges the writer's request for a count of n keys: one key at the newest revision, whose
// keys no member visits, and all n at another revision, whose keys some members may visit.
func (v *view) counted(n, at int64) error {
	if v.w == nil {
		return nil
	}
	if at == v.rev {
		n = 1
	}
	return v.w.meter.Visit(n)
}

// visited counts n keys that the writer has visited.
func (v *view) visited(n int64) error {
	if v.w == nil {
		return nil
	}
	return v.w.meter.Visit(n)
}

// rank counts the keys of [from, to) without visiting them, if there is a tree whose counts hold
// for revision at.
func (v *view) rank(from, to string, at int64) (int64, bool) {
	if at >= v.live {
		return int64(v.tree.Count(from, to)), true
	}
	if tree, ok := v.s.trees.Find(at); ok {
		return int64(tree.Count(from, to)), true
	}
	return 0, false
}

// visit counts the keys of [from, to) by looking at each.
func (v *view) visit(ctx context.Context, from, to string, at int64) (n int64, err error) {
	it := v.tree.Range(from, to)
	for i := 0; it.Next(); i++ {
		if err := alive(ctx, i); err != nil {
			return 0, err
		}
		if _, ok := index.At(&it).At(at); ok {
			n++
		}
	}
	return n, nil
}

// filtered reports whether the request's revision filters leave a key out.
func filtered(r *kv.RangeRequest, s index.State) bool {
	return r.MaxModRevision != 0 && s.Rev.Main > r.MaxModRevision ||
		r.MinModRevision != 0 && s.Rev.Main < r.MinModRevision ||
		r.MaxCreateRevision != 0 && s.Create > r.MaxCreateRevision ||
		r.MinCreateRevision != 0 && s.Create < r.MinCreateRevision
}

// complete reads from the records the versions that the index does not know.
func (v *view) complete(hits []hit) error {
	for i := range hits {
		if hits[i].Version != 0 {
			continue
		}
		var rec record.KeyValue
		if err := v.decode(hits[i].Rev, &rec); err != nil {
			return err
		}
		hits[i].Version = rec.Version
	}
	return nil
}

// decode reads a record.
func (v *view) decode(rev kv.Rev, rec *record.KeyValue) error {
	b, err := v.record(rev, nil)
	if err != nil {
		return err
	}
	if err := rec.Decode(b); err != nil {
		return fmt.Errorf("%w at revision %d.%d: %w", err, rev.Main, rev.Sub, kv.ErrCorrupt)
	}
	return nil
}

// order sorts as etcd does, not stably: the same algorithm on the same comparisons, so that keys
// that compare equal come out in the same order too.
func order(s sort.Interface, descend bool) {
	if descend {
		s = sort.Reverse(s)
	}
	sort.Sort(s)
}

// hitSort sorts by fields that the index knows.
type hitSort struct {
	hits   []hit
	target kv.SortTarget
}

func (s *hitSort) Len() int      { return len(s.hits) }
func (s *hitSort) Swap(i, j int) { s.hits[i], s.hits[j] = s.hits[j], s.hits[i] }

func (s *hitSort) Less(i, j int) bool {
	a, b := &s.hits[i], &s.hits[j]
	switch s.target {
	case kv.SortByVersion:
		return a.Version < b.Version
	case kv.SortByCreate:
		return a.Create < b.Create
	case kv.SortByMod:
		return a.Rev.Main < b.Rev.Main
	default:
		return a.key < b.key
	}
}

// valueSort sorts by value.
type valueSort []record.KeyValue

func (s valueSort) Len() int           { return len(s) }
func (s valueSort) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s valueSort) Less(i, j int) bool { return bytes.Compare(s[i].Value, s[j].Value) < 0 }
