package mvcc

import (
	"context"
	"fmt"
	"vigil/internal/kv"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc/index"
	"vigil/internal/store/mvcc/record"
)

// put executes a put whose checks have passed.
func (w *Writer) put(p *kv.PutRequest, res *kv.PutResult) error {
	rev := w.next()
	key := str(p.Key)
	e, known := w.index.Get(key)
	was, exists := index.State{}, false
	if known {
		was, exists = e.Newest()
	}
	rec := record.KeyValue{Key: p.Key, Value: p.Value, Create: rev.Main,
		Mod: rev.Main, Version: 1, Lease: p.Lease}
	old := int64(0)
	if exists {
		if err := w.number(&was); err != nil {
			return err
		}
		rec.Create, rec.Version, old = was.Create, was.Version+1, e.Lease()
		if err := w.previous(p, was.Rev, old, &rec, res); err != nil {
			return err
		}
	}
	ref, err := w.append(rev, &rec, false)
	if err != nil {
		return err
	}
	if !exists {
		if !known {
			e = w.index.Add(key)
		} else {
			w.index.Tree.SetLive(key, true)
		}
		w.live = rev.Main
		w.changes++
	}
	w.index.Append(e, index.NewPut(rev, rec.Version))
	e.SetLease(rec.Lease)
	from, to := record.KeyAt(p.Key)
	w.publish(kv.Event{Rev: rev, Create: rec.Create == rec.Mod, Key: ref[from:to:to], KV: ref},
		old, rec.Lease)
	res.Revision = rev.Main
	w.tally.puts++
	w.tally.putBytes += uint64(len(rec.Key) + len(rec.Value))
	return nil
}

// number reads the version of a state from its record if the index does not know it.
func (w *Writer) number(s *index.State) error {
	if s.Version != 0 {
		return nil
	}
	var rec record.KeyValue
	v := w.view()
	if err := v.decode(s.Rev, &rec); err != nil {
		return err
	}
	s.Version = rec.Version
	return nil
}

// previous reads the pair that a put replaces, as far as the put requests it. The pair was written
// at rev and has the given lease.
func (w *Writer) previous(p *kv.PutRequest, rev kv.Rev, lease int64, rec *record.KeyValue,
	res *kv.PutResult) error {
	if p.IgnoreLease {
		rec.Lease = lease
	}
	if p.PrevKV && w.discard {
		if err := w.meter.Read(w.largest); err != nil {
			return err
		}
	}
	if !p.IgnoreValue && (!p.PrevKV || w.discard) {
		return nil
	}
	v := w.view()
	dst := w.prev[:0]
	if p.PrevKV && !w.discard {
		dst = nil
	}
	b, err := v.record(rev, dst)
	if err != nil {
		return err
	}
	if p.PrevKV && !w.discard {
		if err := w.meter.Read(int64(len(b))); err != nil {
			return err
		}
		res.PrevKV = b
	} else if cap(b) <= maxScratch {
		w.prev = b
	}
	if p.IgnoreValue {
		var old record.KeyValue
		if err := old.Decode(b); err != nil {
			return fmt.Errorf("%w at revision %d.%d: %w", err, rev.Main, rev.Sub, kv.ErrCorrupt)
		}
		rec.Value = old.Value
	}
	return nil
}

func (w *Writer) deleteRange(r *kv.DeleteRangeRequest, res *kv.DeleteRangeResult) error {
	from, to, single := bounds(r.Key, r.End)
	keys, sum := w.keys[:0], int64(0)
	if single {
		if w.exists(from) {
			keys = append(keys, from)
			sum = w.tombstoneBytes(from)
		}
	} else {
		for it := w.index.Tree.View().Range(from, to); it.Next() &&
			sum <= w.meter.Limits.ChangeBytes; {
			if it.Live() {
				keys = append(keys, it.Key())
				sum += w.tombstoneBytes(it.Key())
			}
		}
	}
	defer func() {
		clear(keys)
		w.keys = nil
		if cap(keys) <= maxHits {
			w.keys = keys[:0]
		}
	}()
	if err := w.meter.Change(sum); err != nil {
		return err
	}
	if r.PrevKV && w.discard {
		if err := w.meter.Read(int64(len(keys)) * w.largest); err != nil {
			return err
		}
	} else if r.PrevKV && len(keys) > 0 {
		v := w.view()
		var sc scratch
		for _, key := range keys {
			s, ok := v.find(key, v.rev)
			if !ok {
				return fmt.Errorf("the index has lost the key %q: %w", key, kv.ErrCorrupt)
			}
			sc.hits = append(sc.hits, hit{key, s})
		}
		var out gather
		out.init(nil, &res.PrevKVs, &sc)
		out.meter = &w.meter
		if err := out.fetch(context.Background(), v.records(), hitRevs(&sc)); err != nil {
			return err
		}
	}
	for _, key := range keys {
		if err := w.delete(key); err != nil {
			return err
		}
	}
	w.tally.deletes++
	res.Deleted = int64(len(keys))
	res.Revision = w.rev
	if w.subs > 0 {
		res.Revision++
	}
	return nil
}

// exists reports whether a key exists.
func (w *Writer) exists(key string) bool {
	e, ok := w.index.Get(key)
	if ok {
		_, ok = e.Newest()
	}
	return ok
}

// delete deletes a key that exists.
func (w *Writer) delete(key string) error {
	rev := w.next()
	rec := record.KeyValue{Key: raw(key), Mod: rev.Main}
	ref, err := w.append(rev, &rec, true)
	if err != nil {
		return err
	}
	e, _ := w.index.Get(key)
	w.index.Tree.SetLive(key, false)
	w.live = rev.Main
	w.changes++
	w.index.Append(e, index.NewTombstone(rev))
	old := e.Lease()
	e.SetLease(0)
	from, to := record.KeyAt(rec.Key)
	w.publish(kv.Event{Rev: rev, Delete: true, Key: ref[from:to:to], KV: ref}, old, 0)
	return nil
}

// append writes a record.
func (w *Writer) append(rev kv.Rev, rec *record.KeyValue, tombstone bool) (ref []byte, err error) {
	if rev.Sub > index.MaxSub {
		return nil, fmt.Errorf("revision %d has more than %d changes", rev.Main,
			int64(index.MaxSub))
	}
	w.buf = rec.Append(w.buf[:0])
	size := len(w.buf)
	if !tombstone {
		// Deletions were already checked, all at once.
		if err = w.meter.Record(size); err == nil {
			err = w.meter.Change(int64(size) + history.RecordOverhead)
		}
	}
	if err == nil {
		ref, err = w.log.AppendKV(rev, tombstone, w.buf)
	}
	if cap(w.buf) > maxScratch {
		w.buf = nil
	}
	if err == nil {
		w.subs++
		w.meter.Write(size)
		w.largest = max(w.largest, int64(size))
	}
	return ref, err
}

// tombstoneBytes returns the number of bytes that the deletion of a key takes in a batch.
func (w *Writer) tombstoneBytes(key string) int64 {
	rec := record.KeyValue{Key: raw(key), Mod: w.rev + 1}
	return int64(rec.Size()) + history.RecordOverhead
}

// maxScratch is the size above which the writer does not keep working memory.
const maxScratch = 1 << 20
