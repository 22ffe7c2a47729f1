package mvcc

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"sort"
	"sync"

	"vigil/kv"
)

// Range reads the keys of a range at a revision.
//
// Errors: a *kv.CompactedError, also when a compaction overtakes the read; kv.ErrFutureRev; ctx's;
// or one of the log.
func (s *Store) Range(ctx context.Context, r *kv.RangeRequest) (*kv.RangeResult, error) {
	for {
		v := s.read()
		res, err := v.rangeKeys(ctx, r)
		if err != errAgain {
			return res, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// hit is a key that a range found.
type hit struct {
	key string
	state
}

// plan is what a range request comes to: how many keys to find in key order before anything else
// happens to them, and what happens then.
type plan struct {
	// find is the number of keys to find, 0 for all.
	find    int
	filter  bool
	sort    bool
	target  kv.SortTarget
	descend bool
}

// planOf follows etcd: a limit stops the search early only if the result is not filtered and no
// order was asked for, or that of the keys. Without an order but with a target the keys that were
// found so are still sorted.
func planOf(r *kv.RangeRequest) plan {
	p := plan{target: r.Sort, descend: r.Order == kv.SortDescend}
	p.filter = r.MinModRevision != 0 || r.MaxModRevision != 0 ||
		r.MinCreateRevision != 0 || r.MaxCreateRevision != 0
	ordered := r.Order == kv.SortNone || r.Sort == kv.SortByKey && r.Order == kv.SortAscend
	p.sort = !(r.Sort == kv.SortByKey && (r.Order == kv.SortNone || r.Order == kv.SortAscend))
	if ordered && !p.filter && r.Limit > 0 && r.Limit < math.MaxInt {
		// One more than asked for tells whether there is more.
		p.find = int(r.Limit) + 1
	}
	return p
}

// keyOnly reports whether the index alone answers the request. As in etcd the lease is then missing
// from the answer too.
func keyOnly(r *kv.RangeRequest) bool { return r.KeysOnly && r.Sort != kv.SortByValue }

// scratch is the working memory of a range.
type scratch struct {
	hits []hit
	revs []kv.Rev
}

// maxHits is the number of hits above which their memory is not kept.
const maxHits = 16 << 10

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// free gives sc back, unless it has grown to a size that is rarely needed.
func (sc *scratch) free() {
	if cap(sc.hits) > maxHits {
		return
	}
	clear(sc.hits)
	sc.hits, sc.revs = sc.hits[:0], sc.revs[:0]
	scratches.Put(sc)
}

// rangeKeys is Range on one state. It returns errAgain if the state can no longer be read though
// the request asked for the newest revision.
func (v *view) rangeKeys(ctx context.Context, r *kv.RangeRequest) (*kv.RangeResult, error) {
	at, err := v.resolve(r.Revision)
	if err != nil {
		return nil, err
	}
	if r.CountOnly {
		n, err := v.count(ctx, r.Key, r.End, at)
		if err == nil {
			err = v.overtaken(at, r.Revision)
		}
		if err != nil {
			return nil, err
		}
		return &kv.RangeResult{Revision: v.rev, Count: n}, nil
	}
	p := planOf(r)
	sc := scratches.Get().(*scratch)
	defer sc.free()
	total, err := v.find(ctx, r, at, p.find, sc)
	if err == nil {
		err = v.overtaken(at, r.Revision)
	}
	if err != nil {
		return nil, err
	}
	res := &kv.RangeResult{Revision: v.rev, Count: total}
	if err := v.answer(ctx, r, p, sc, res); err != nil {
		// What the compaction has made unreadable is no fault of the log.
		if over := v.overtaken(at, r.Revision); over != nil {
			err = over
		}
		return nil, err
	}
	return res, nil
}

// overtaken is Store.overtaken for a reader; nothing overtakes the writer.
func (v *view) overtaken(at, asked int64) error {
	if v.w != nil {
		return nil
	}
	return v.s.overtaken(at, asked)
}

// find collects the first limit keys of the range, all if limit is 0, and counts all of them.
func (v *view) find(ctx context.Context, r *kv.RangeRequest, at int64, limit int, sc *scratch) (total int64, err error) {
	from, to, single := bounds(r.Key, r.End)
	if single {
		if e, ok := v.tree.Get(from); ok {
			if s, ok := e.at(at); ok {
				sc.hits = append(sc.hits, hit{from, s})
			}
		}
		return int64(len(sc.hits)), nil
	}
	current := at >= v.live
	it := v.tree.Range(from, to)
	for i := 0; it.Next(); i++ {
		if err := alive(ctx, i); err != nil {
			return 0, err
		}
		if current && !it.Live() {
			continue
		}
		s, ok := it.Value().at(at)
		if !ok {
			continue
		}
		if len(sc.hits) == limit && limit > 0 {
			if current && v.w == nil {
				v.s.pins.add(v)
			}
			if n, ok := v.rank(from, to, at); ok {
				return n, nil
			}
			n, err := v.visit(ctx, it.Key(), to, at)
			return int64(len(sc.hits)) + n, err
		}
		sc.hits = append(sc.hits, hit{it.Key(), s})
	}
	return int64(len(sc.hits)), nil
}

// count counts the keys of a range at a revision.
func (v *view) count(ctx context.Context, key, end []byte, at int64) (int64, error) {
	from, to, single := bounds(key, end)
	if single {
		if e, ok := v.tree.Get(from); ok {
			if _, ok := e.at(at); ok {
				return 1, nil
			}
		}
		return 0, nil
	}
	if n, ok := v.rank(from, to, at); ok {
		return n, nil
	}
	return v.visit(ctx, from, to, at)
}

// rank counts the keys of [from, to) without visiting them, if there is a tree whose counts hold
// for revision at.
func (v *view) rank(from, to string, at int64) (int64, bool) {
	if at >= v.live {
		return int64(v.tree.Count(from, to)), true
	}
	if tree, ok := v.s.pins.find(at); ok {
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
		if _, ok := it.Value().at(at); ok {
			n++
		}
	}
	return n, nil
}

// answer filters, sorts and cuts what was found, and fills in the records.
func (v *view) answer(ctx context.Context, r *kv.RangeRequest, p plan, sc *scratch, res *kv.RangeResult) error {
	byVersion := p.sort && p.target == kv.SortByVersion
	if byVersion || keyOnly(r) {
		if err := v.complete(sc.hits); err != nil {
			return err
		}
	}
	if p.filter {
		sc.hits = slices.DeleteFunc(sc.hits, func(h hit) bool { return filtered(r, h.state) })
	}
	if p.sort && p.target == kv.SortByValue {
		return v.answerByValue(ctx, r, p, sc, res)
	}
	if p.sort {
		order(&hitSort{sc.hits, p.target}, p.descend)
	}
	if r.Limit > 0 && int64(len(sc.hits)) > r.Limit {
		clear(sc.hits[r.Limit:])
		sc.hits, res.More = sc.hits[:r.Limit], true
	}
	if len(sc.hits) == 0 {
		return nil
	}
	if keyOnly(r) {
		size := 0
		for _, h := range sc.hits {
			size += len(h.key) + keyOnlySize
		}
		res.KVs.Buf, res.KVs.Ends = make([]byte, 0, size), make([]int, 0, len(sc.hits))
		for _, h := range sc.hits {
			rec := record{key: raw(h.key), create: h.create, mod: h.rev.Main, version: h.version}
			res.KVs.Buf = rec.append(res.KVs.Buf)
			res.KVs.Close()
		}
		return nil
	}
	return v.fetch(ctx, sc, &res.KVs)
}

// keyOnlySize is what a record without value and lease usually takes beside its key.
const keyOnlySize = 20

// filtered reports whether the request's revision filters leave a key out.
func filtered(r *kv.RangeRequest, s state) bool {
	return r.MaxModRevision != 0 && s.rev.Main > r.MaxModRevision ||
		r.MinModRevision != 0 && s.rev.Main < r.MinModRevision ||
		r.MaxCreateRevision != 0 && s.create > r.MaxCreateRevision ||
		r.MinCreateRevision != 0 && s.create < r.MinCreateRevision
}

// complete looks up the versions that the index does not know.
func (v *view) complete(hits []hit) error {
	for i := range hits {
		if hits[i].version != 0 {
			continue
		}
		var rec record
		if err := v.decode(hits[i].rev, &rec); err != nil {
			return err
		}
		hits[i].version = rec.version
	}
	return nil
}

// decode reads a record.
func (v *view) decode(rev kv.Rev, rec *record) error {
	b, err := v.record(rev, nil)
	if err != nil {
		return err
	}
	if err := rec.decode(b); err != nil {
		return fmt.Errorf("%w at revision %d.%d: %w", err, rev.Main, rev.Sub, kv.ErrCorrupt)
	}
	return nil
}

// fetchKeys is the number of records that are read between two looks at the context.
const fetchKeys = 512

// fetch reads the records of the hits in their order.
func (v *view) fetch(ctx context.Context, sc *scratch, out *kv.Records) error {
	for _, h := range sc.hits {
		sc.revs = append(sc.revs, h.rev)
	}
	out.Ends = make([]int, 0, len(sc.revs))
	hist := v.records()
	for revs := sc.revs; len(revs) > 0; {
		n := min(len(revs), fetchKeys)
		if out.Len() == 0 && len(revs) > 8 {
			// A few tell how much room the others will take.
			n = 4
		}
		if err := hist.GetMany(revs[:n], out); err != nil {
			return fmt.Errorf("mvcc: reading %d records: %w", len(revs), err)
		}
		revs = revs[n:]
		if len(revs) > 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			out.Buf = slices.Grow(out.Buf, min(len(revs), 8*fetchKeys)*len(out.Buf)/out.Len()*9/8)
		}
	}
	return nil
}

// answerByValue reads all records to sort by value, and then keeps those that the limit leaves.
func (v *view) answerByValue(ctx context.Context, r *kv.RangeRequest, p plan, sc *scratch, res *kv.RangeResult) error {
	var all kv.Records
	if err := v.fetch(ctx, sc, &all); err != nil {
		return err
	}
	recs := make([]record, all.Len())
	for i := range recs {
		if err := recs[i].decode(all.At(i)); err != nil {
			rev := sc.revs[i]
			return fmt.Errorf("%w at revision %d.%d: %w", err, rev.Main, rev.Sub, kv.ErrCorrupt)
		}
	}
	order(valueSort(recs), p.descend)
	if r.Limit > 0 && int64(len(recs)) > r.Limit {
		recs = recs[:r.Limit]
		res.More = true
	}
	for i := range recs {
		if r.KeysOnly {
			recs[i].value = nil
		}
		res.KVs.Buf = recs[i].append(res.KVs.Buf)
		res.KVs.Close()
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

// hitSort sorts by what the index knows.
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
		return a.version < b.version
	case kv.SortByCreate:
		return a.create < b.create
	case kv.SortByMod:
		return a.rev.Main < b.rev.Main
	default:
		return a.key < b.key
	}
}

// valueSort sorts by value.
type valueSort []record

func (s valueSort) Len() int           { return len(s) }
func (s valueSort) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s valueSort) Less(i, j int) bool { return bytes.Compare(s[i].value, s[j].value) < 0 }
