package mvcc

import (
	"context"
	"fmt"
	"slices"
	"vigil/internal/kv"
	"vigil/internal/store/mvcc/index"
	"vigil/internal/store/mvcc/record"
)

// finder answers one range request on one state.
type finder struct {
	v  *view
	r  *kv.RangeRequest
	at int64
	plan
	sc  *scratch
	res *kv.RangeResult
	out gather

	// kept is the number of keys that the answer has so far, including the keys in sc.hits.
	kept int64
}

const (
	// batchKeys is how many keys are found before their records are read.
	batchKeys = 512
	// hitSize is the memory that a key takes while it waits to be sorted.
	hitSize = 80
)

// find finds the keys in key order and counts them. Unless it has to sort them it hands them on in
// batches, so that a large answer takes no more memory than its records.
func (f *finder) find(ctx context.Context) error {
	v, sc := f.v, f.sc
	from, to, single := bounds(f.r.Key, f.r.End)
	if single {
		if err := v.visited(1); err != nil {
			return err
		}
		if s, ok := v.find(from, f.at); ok {
			f.res.Count = 1
			if !f.filter || !filtered(f.r, s) {
				sc.hits = append(sc.hits, hit{from, s})
			}
		}
		return f.answer(ctx)
	}
	stop := int64(f.plan.find)
	if !f.sort {
		stop-- // of the last one only its existence matters
	}
	current := f.at >= v.live
	it := v.tree.Range(from, to)
	for i := 0; it.Next(); i++ {
		if err := alive(ctx, i); err != nil {
			return err
		}
		if current && !it.Live() {
			continue
		}
		s, ok := index.At(&it).At(f.at)
		if !ok {
			continue
		}
		if f.plan.find > 0 && f.res.Count == stop {
			f.res.More = true
			return f.rest(ctx, from, to, it.Key(), current)
		}
		f.res.Count++
		if err := v.visited(1); err != nil {
			return err
		}
		if f.filter && filtered(f.r, s) {
			continue
		}
		if !f.sort && f.r.Limit > 0 && f.kept == f.r.Limit {
			f.res.More = true // it only counts the others
			continue
		}
		sc.hits = append(sc.hits, hit{it.Key(), s})
		f.kept++
		if len(sc.hits) < batchKeys {
			continue
		}
		if !f.sort {
			if err := f.flush(ctx, from, to); err != nil {
				return err
			}
		} else if len(sc.hits)%batchKeys == 0 {
			if err := f.out.charge(batchKeys * hitSize); err != nil {
				return err
			}
		}
	}
	return f.answer(ctx)
}

// answer completes the answer with the keys that find has not handed on yet.
func (f *finder) answer(ctx context.Context) error {
	if f.sort {
		return f.answerSorted(ctx)
	}
	return f.emit(ctx, f.sc.hits)
}

// rest ends a find that reached its limit while the range has more keys.
func (f *finder) rest(ctx context.Context, from, to, next string, current bool) error {
	v := f.v
	if !f.r.NoCount {
		if current && v.w == nil {
			v.s.trees.Keep(v.tree, v.live, v.rev, v.changes)
		}
		n, ok := v.rank(from, to, f.at)
		if !ok {
			if n, ok = v.s.rests.Find(f.at, from, to); !ok {
				left, err := v.visit(ctx, next, to, f.at)
				if err != nil {
					return err
				}
				n = f.res.Count + left
			}
			last := f.out.last
			if k := len(f.sc.hits); k > 0 {
				last = f.sc.hits[k-1].key
			}
			v.s.rests.Remember(f.at, last, to, n-f.res.Count)
		}
		if err := v.counted(n, f.at); err != nil {
			return err
		}
		f.res.Count = n
	}
	return f.answer(ctx)
}

// flush hands on the keys found so far.
func (f *finder) flush(ctx context.Context, from, to string) error {
	if f.out.full == 0 && f.v.memory != nil {
		// The number of keys determines how much memory to request.
		f.out.full = unknown
		if n, ok := f.v.rank(from, to, f.at); ok && !f.filter {
			if f.r.Limit > 0 {
				n = min(n, f.r.Limit)
			}
			f.out.full = n
		}
	}
	if err := f.emit(ctx, f.sc.hits); err != nil {
		return err
	}
	clear(f.sc.hits)
	f.sc.hits = f.sc.hits[:0]
	return nil
}

// answerSorted sorts the keys found, cuts them to the limit and reads their records.
func (f *finder) answerSorted(ctx context.Context) error {
	hits := f.sc.hits
	if f.target == kv.SortByVersion {
		if err := f.v.complete(hits); err != nil {
			return err
		}
	}
	if f.target == kv.SortByValue {
		return f.answerByValue(ctx)
	}
	order(&hitSort{hits, f.target}, f.descend)
	if f.r.Limit > 0 && int64(len(hits)) > f.r.Limit {
		clear(hits[f.r.Limit:])
		hits, f.res.More = hits[:f.r.Limit], true
	}
	f.out.full = int64(len(hits))
	for len(hits) > 0 {
		n := min(len(hits), batchKeys)
		if err := f.emit(ctx, hits[:n]); err != nil {
			return err
		}
		hits = hits[n:]
	}
	return nil
}

// emit appends the records of hits to the answer.
func (f *finder) emit(ctx context.Context, hits []hit) error {
	if len(hits) == 0 {
		return nil
	}
	if f.out.full == 0 {
		f.out.full = int64(len(hits))
	}
	f.out.last = hits[len(hits)-1].key
	if keyOnly(f.r) {
		return f.emitKeys(hits)
	}
	f.sc.revs = f.sc.revs[:0]
	for i := range hits {
		f.sc.revs = append(f.sc.revs, hits[i].Rev)
	}
	return f.out.fetch(ctx, f.v.records(), f.sc.revs)
}

// keyOnlySize is the usual size in bytes of a record without value and lease, not counting its key.
const keyOnlySize = 20

// emitKeys appends records with only the fields that the index knows.
func (f *finder) emitKeys(hits []hit) error {
	if err := f.v.complete(hits); err != nil {
		return err
	}
	size := 0
	for i := range hits {
		size += len(hits[i].key) + keyOnlySize
	}
	to, err := f.out.buffer(len(hits), size)
	if err != nil {
		return err
	}
	for i := range hits {
		h := &hits[i]
		rec := record.KeyValue{Key: raw(h.key), Create: h.Create, Mod: h.Rev.Main,
			Version: h.Version}
		to.Buf = rec.Append(to.Buf)
		to.Close()
	}
	return f.out.take()
}

// answerByValue reads all records to sort them by value, and then keeps as many as the limit
// allows.
func (f *finder) answerByValue(ctx context.Context) error {
	var all kv.Records
	need := 0 // the size of the next record, if it is large; it is counted before it is read
	for revs := hitRevs(f.sc); len(revs) > 0; {
		n, was := all.Len(), len(all.Buf)+need
		room := max(tempSize, need)
		all.Buf = slices.Grow(all.Buf, room)
		next, err := f.v.records().GetSome(revs, len(all.Buf)+room, &all)
		if err != nil {
			return fmt.Errorf("mvcc: reading %d records: %w", len(revs), err)
		}
		revs = revs[all.Len()-n:]
		if need = 0; next > tempSize {
			need = next
		}
		// Growing the list keeps two copies of it for a while.
		if err := f.out.charge(2 * (len(all.Buf) + need - was)); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	recs := make([]record.KeyValue, all.Len())
	for i := range recs {
		if err := recs[i].Decode(all.At(i)); err != nil {
			rev := f.sc.revs[i]
			return fmt.Errorf("%w at revision %d.%d: %w", err, rev.Main, rev.Sub, kv.ErrCorrupt)
		}
	}
	order(valueSort(recs), f.descend)
	if f.r.Limit > 0 && int64(len(recs)) > f.r.Limit {
		recs = recs[:f.r.Limit]
		f.res.More = true
	}
	f.out.full = int64(len(recs))
	for len(recs) > 0 {
		n, size := 0, 0
		for n < len(recs) && (n == 0 || size < tempSize) {
			if f.r.KeysOnly {
				recs[n].Value = nil
			}
			size += len(recs[n].Key) + len(recs[n].Value) + keyOnlySize
			n++
		}
		to, err := f.out.buffer(n, size)
		if err != nil {
			return err
		}
		for i := range recs[:n] {
			to.Buf = recs[i].Append(to.Buf)
			to.Close()
		}
		f.out.last = string(recs[n-1].Key)
		if err := f.out.take(); err != nil {
			return err
		}
		recs = recs[n:]
	}
	return nil
}

func hitRevs(sc *scratch) []kv.Rev {
	sc.revs = sc.revs[:0]
	for i := range sc.hits {
		sc.revs = append(sc.revs, sc.hits[i].Rev)
	}
	return sc.revs
}
