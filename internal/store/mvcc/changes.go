package mvcc

import (
	"context"
	"fmt"
	"strings"
	"vigil/internal/kv"
	"vigil/internal/store/history"
)

// put makes a put whose checks have passed.
func (w *Writer) put(p *kv.PutRequest, res *kv.PutResult) error {
	rev := w.next()
	key := str(p.Key)
	e, known := w.tree.Get(key)
	exists := known && e.version > 0
	rec := record{key: p.Key, value: p.Value, create: rev.Main, mod: rev.Main, version: 1, lease: p.Lease}
	old := int64(0)
	if exists {
		rec.create, rec.version, old = e.create, e.version+1, e.lease
		if err := w.previous(p, e, &rec, res); err != nil {
			return err
		}
	}
	ref, err := w.append(rev, &rec, false)
	if err != nil {
		return err
	}
	if !exists {
		if !known {
			e = newEntry()
			// The tree keeps its keys; the request's belongs to the caller.
			w.tree.Set(strings.Clone(key), e, true)
		} else {
			w.tree.SetLive(key, true)
		}
		w.live = rev.Main
		w.changes++
	}
	e.append(newRec(rev, rec.version))
	e.create, e.version, e.lease = rec.create, rec.version, rec.lease
	from, to := keyAt(p.Key)
	w.publish(kv.Event{Rev: rev, Create: rec.create == rec.mod, Key: ref[from:to:to], KV: ref}, old, rec.lease)
	res.Revision = rev.Main
	w.tally.puts++
	w.tally.putBytes += uint64(len(rec.key) + len(rec.value))
	return nil
}

// previous reads the pair that a put replaces, as far as the put asks for it.
func (w *Writer) previous(p *kv.PutRequest, e *entry, rec *record, res *kv.PutResult) error {
	if p.IgnoreLease {
		rec.lease = e.lease
	}
	if p.PrevKV && w.discard {
		if err := w.meter.read(w.largest); err != nil {
			return err
		}
	}
	if !p.IgnoreValue && (!p.PrevKV || w.discard) {
		return nil
	}
	v := w.view()
	s, ok := e.at(v.rev)
	if !ok {
		return fmt.Errorf("the index has lost the key %q: %w", p.Key, kv.ErrCorrupt)
	}
	dst := w.prev[:0]
	if p.PrevKV && !w.discard {
		dst = nil
	}
	b, err := v.record(s.rev, dst)
	if err != nil {
		return err
	}
	if p.PrevKV && !w.discard {
		if err := w.meter.read(int64(len(b))); err != nil {
			return err
		}
		res.PrevKV = b
	} else if cap(b) <= maxScratch {
		w.prev = b
	}
	if p.IgnoreValue {
		var old record
		if err := old.decode(b); err != nil {
			return fmt.Errorf("%w at revision %d.%d: %w", err, s.rev.Main, s.rev.Sub, kv.ErrCorrupt)
		}
		rec.value = old.value
	}
	return nil
}

func (w *Writer) deleteRange(r *kv.DeleteRangeRequest, res *kv.DeleteRangeResult) error {
	from, to, single := bounds(r.Key, r.End)
	keys, sum := w.keys[:0], int64(0)
	if single {
		if e, ok := w.tree.Get(from); ok && e.version > 0 {
			keys = append(keys, from)
			sum = w.tombstoneBytes(from)
		}
	} else {
		for it := w.tree.View().Range(from, to); it.Next() && sum <= w.meter.limits.ChangeBytes; {
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
	if err := w.meter.change(sum); err != nil {
		return err
	}
	if r.PrevKV && w.discard {
		if err := w.meter.read(int64(len(keys)) * w.largest); err != nil {
			return err
		}
	} else if r.PrevKV && len(keys) > 0 {
		v := w.view()
		var sc scratch
		for _, key := range keys {
			e, _ := w.tree.Get(key)
			s, ok := e.at(v.rev)
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

// delete deletes a key that exists.
func (w *Writer) delete(key string) error {
	rev := w.next()
	rec := record{key: raw(key), mod: rev.Main}
	ref, err := w.append(rev, &rec, true)
	if err != nil {
		return err
	}
	e, _ := w.tree.Get(key)
	w.tree.SetLive(key, false)
	w.live = rev.Main
	w.changes++
	e.append(newTombstone(rev))
	old := e.lease
	e.create, e.version, e.lease = 0, 0, 0
	from, to := keyAt(rec.key)
	w.publish(kv.Event{Rev: rev, Delete: true, Key: ref[from:to:to], KV: ref}, old, 0)
	return nil
}

// append writes a record.
func (w *Writer) append(rev kv.Rev, rec *record, tombstone bool) (ref []byte, err error) {
	if rev.Sub > maxSub {
		return nil, fmt.Errorf("revision %d has more than %d changes", rev.Main, int64(maxSub))
	}
	w.buf = rec.append(w.buf[:0])
	size := len(w.buf)
	if !tombstone {
		// Deletions are checked all at once before.
		if err = w.meter.record(size); err == nil {
			err = w.meter.change(int64(size) + history.RecordOverhead)
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
		w.meter.write(size)
		w.largest = max(w.largest, int64(size))
	}
	return ref, err
}

// tombstoneBytes returns what the deletion of a key takes in a batch.
func (w *Writer) tombstoneBytes(key string) int64 {
	rec := record{key: raw(key), mod: w.rev + 1}
	return int64(rec.size()) + history.RecordOverhead
}

// maxScratch is the size above which working memory is not kept.
const maxScratch = 1 << 20
