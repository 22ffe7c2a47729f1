package mvcc

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"vigil/internal/kv"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc/keytree"
)

// Writer changes the store. It belongs to one goroutine. The first request opens a batch, Commit
// ends it.
//
// An error that is a *FatalError is for good: every later call returns it too. What the batch had
// done until then is never readable.
type Writer struct {
	s   *Store
	log *history.Log

	// The newest state, of the open batch too. Owned by the writer, the tree by the holder of the
	// store's lock.
	tree      *keytree.Tree[*entry]
	rev, live int64
	compact   int64
	changes   int64

	// open is set while a batch is. The writer holds the store's lock then, but not after a Commit that
	// lacked room, until the next call; held says whether it does. Guarded by the store's lock, like stale,
	// which says that the trimmer has changed the tree meanwhile and readers have not got it.
	open, held, stale bool
	// subs counts the changes of the request under way.
	subs int64
	// events is a piece of memory that the events of many batches share; those of the open one
	// begin at first.
	events []kv.Event
	first  int
	leased []LeaseChange
	// tally is what the request under way has done, meter what of it is limited.
	tally tally
	meter meter
	// largest is the size of the largest record that the store has ever had, or more.
	largest int64
	// compactions are those of the open batch.
	compactions []compaction
	// discard is set while nobody wants to know what ranges find.
	discard bool
	err     error

	// Working memory.
	buf, prev []byte
	path      []bool
	keys      []string
}

// LeaseChange is a change of the lease that a key is attached to; 0 is none.
type LeaseChange struct {
	// Key aliases the key of an event.
	Key      []byte
	From, To int64
}

// Published is what a batch has made readable.
type Published struct {
	// Revision is the newest revision.
	Revision int64
	// Events are the changes, in order. They are immutable and may be kept.
	Events []kv.Event
	// Leases are the changes of lease attachments, in order; valid until the next request.
	Leases []LeaseChange
	// Compacted is the compact revision if the batch moved it, else 0.
	Compacted int64
}

// eventsChunk is the number of events that memory is taken for at once.
const eventsChunk = 128

// Revision returns the newest revision, that of the open batch included.
func (w *Writer) Revision() int64 { return w.rev }

// CompactRevision returns the compact revision, that of the open batch included; -1 is none.
func (w *Writer) CompactRevision() int64 { return w.compact }

// Pending returns the size of the open batch.
func (w *Writer) Pending() int { return w.log.Pending() }

// Results returns how many bytes of results the last request has, about.
func (w *Writer) Results() int64 { return w.meter.result }

// Discard says whether the results of the requests that follow are not wanted by anyone. Ranges in
// transactions are then not run and previous pairs not read; their results are empty. What the
// requests do to the store is the same.
func (w *Writer) Discard(on bool) { w.discard = on }

// Put writes one key.
//
// Errors: kv.ErrLeaseNotFound, kv.ErrKeyNotFound, a *kv.LimitError, a *FatalError.
func (w *Writer) Put(p *kv.PutRequest, leases LeaseChecker) (kv.PutResult, error) {
	if err := w.begin(); err != nil {
		return kv.PutResult{}, err
	}
	v := w.view()
	if err := v.checkPut(p, leases); err != nil {
		return kv.PutResult{}, err
	}
	var res kv.PutResult
	err := w.exactly(func() error { return w.put(p, &res) })
	if err != nil {
		return kv.PutResult{}, w.refuse("put", err)
	}
	w.end()
	return res, nil
}

// DeleteRange deletes the keys of a range, as one revision.
//
// Errors: a *kv.LimitError, a *FatalError.
func (w *Writer) DeleteRange(r *kv.DeleteRangeRequest) (kv.DeleteRangeResult, error) {
	if err := w.begin(); err != nil {
		return kv.DeleteRangeResult{}, err
	}
	var res kv.DeleteRangeResult
	err := w.exactly(func() error { return w.deleteRange(r, &res) })
	if err != nil {
		return kv.DeleteRangeResult{}, w.refuse("delete range", err)
	}
	w.end()
	return res, nil
}

// DeleteKeys deletes keys, in the order given and as one revision; those that do not exist are passed
// over. It returns the number of keys that it has dealt with: fewer than all if one revision cannot hold
// the deletions.
//
// Errors: a *FatalError.
func (w *Writer) DeleteKeys(keys []string) (done int, err error) {
	if err := w.begin(); err != nil {
		return 0, err
	}
	for _, key := range keys {
		if e, ok := w.tree.Get(key); ok && e.version > 0 {
			if done > 0 && w.meter.change(w.tombstoneBytes(key)) != nil {
				break
			}
			if err := w.delete(key); err != nil {
				return 0, w.fail("delete", err)
			}
			w.tally.deletes++
		}
		done++
	}
	w.end()
	return done, nil
}

// Leases returns the changes of lease attachments in the open batch so far, in order; valid until the
// next request.
func (w *Writer) Leases() []LeaseChange { return w.leased }

// Txn runs a transaction, as one revision. The results of its operations carry the revisions that
// etcd gives them; that of a nested transaction itself is 0.
//
// Errors: of the first check that fails, kv.ErrLeaseNotFound, kv.ErrKeyNotFound, kv.ErrFutureRev or
// a *kv.CompactedError; a *kv.LimitError; a *FatalError.
func (w *Writer) Txn(r *kv.TxnRequest, leases LeaseChecker) (*kv.TxnResult, error) {
	if err := w.begin(); err != nil {
		return nil, err
	}
	v, ctx := w.view(), context.Background()
	path, err := v.path(ctx, r, w.path[:0])
	if err != nil {
		return nil, w.refuse("compare", err)
	}
	w.path = path
	if _, err := v.check(r, leases, path); err != nil {
		return nil, err
	}
	var res *kv.TxnResult
	before := w.mark()
	err = w.exactly(func() (err error) {
		t := txn{w: w, ctx: ctx, path: path}
		if res, err = t.run(r); refused(err) || err == errRough {
			if err := w.undo(before); err != nil {
				return err
			}
		}
		return err
	})
	if err != nil {
		return nil, w.refuse("txn", err)
	}
	w.end()
	res.Revision = w.rev
	return res, nil
}

// exactly runs a request. If nobody wants its results they are estimated, and read only if the estimate
// exceeds a limit: then run is called again. One that fails for a limit must have changed nothing.
func (w *Writer) exactly(run func() error) error {
	visited := w.meter.visited
	w.meter.rough = w.discard
	err := run()
	if err == errRough {
		w.meter.reset()
		w.meter.visited = visited
		w.discard = false
		err = run()
		w.discard = true
	}
	w.meter.rough = false
	return err
}

// Compact moves the compact revision. What lies below is dropped in the background, see
// Store.WaitTrimmed.
//
// Errors: a *kv.CompactedError at or below the compact revision, kv.ErrFutureRev, a *FatalError.
func (w *Writer) Compact(rev int64) (kv.CompactResult, error) {
	if err := w.begin(); err != nil {
		return kv.CompactResult{}, err
	}
	switch {
	case rev <= w.compact:
		return kv.CompactResult{}, &kv.CompactedError{CompactRevision: w.compact}
	case rev > w.rev:
		return kv.CompactResult{}, kv.ErrFutureRev
	}
	if err := w.log.AppendMeta(CompactRecord(rev)); err != nil {
		return kv.CompactResult{}, w.fail("compact", err)
	}
	w.compactions = append(w.compactions, compaction{prev: w.compact, rev: rev})
	w.compact = rev
	return kv.CompactResult{Revision: w.rev}, nil
}

// SetMeta adds records that are not of the key space to the batch, all or none. The bucket must not be
// MetaBucket.
//
// Errors: a *kv.LimitError, a *FatalError.
func (w *Writer) SetMeta(records ...history.Meta) error {
	if err := w.begin(); err != nil {
		return err
	}
	sum := int64(0)
	for i := range records {
		size := history.MetaBytes(&records[i])
		if err := w.meter.record(size); err != nil {
			return err
		}
		sum += int64(size) + history.RecordOverhead
	}
	if err := w.meter.change(sum); err != nil {
		return err
	}
	for i := range records {
		if err := w.log.AppendMeta(records[i]); err != nil {
			return w.fail("meta record", err)
		}
	}
	return nil
}

// Commit ends the batch, which may be empty: it is written as the outcome of the raft log up to a
// and then readable.
//
// An error that is a kv.Shortage leaves the batch open, and Commit may be called again. Every other one
// is a *FatalError.
func (w *Writer) Commit(a history.Applied) (Published, error) {
	if err := w.begin(); err != nil {
		return Published{}, err
	}
	if err := w.log.Commit(a); kv.Shortage(err) {
		// What makes room shall be able to go on: the trimmer, and whoever takes a copy.
		w.unlock()
		return Published{}, err
	} else if err != nil {
		return Published{}, w.fail("commit", err)
	}
	p := Published{Revision: w.rev, Leases: w.leased}
	p.Events = slices.Clip(w.events[w.first:])
	old := w.s.snap.Load()
	if w.compact != old.compact {
		p.Compacted = w.compact
		w.s.hashes.add(w.compactions)
		w.compactions = w.compactions[:0]
	}
	if w.rev != old.rev || w.compact != old.compact || w.stale {
		w.s.snap.Store(&snapshot{
			tree: w.tree.Snapshot(), hist: w.log.View(),
			rev: w.rev, live: w.live, compact: w.compact, changes: w.changes,
		})
	}
	w.leased = w.leased[:0]
	w.first = len(w.events)
	if cap(w.events) > 8*eventsChunk {
		// Batches to come shall not hold on to those of a large one.
		w.events, w.first = nil, 0
	}
	w.open, w.stale = false, false
	w.unlock()
	if w.compact != old.compact {
		w.s.trim.wake()
	}
	if w.compact != old.compact || w.changes>>12 != old.changes>>12 {
		w.s.pins.drop(w.compact, w.changes)
	}
	return p, nil
}

// begin opens a batch if none is open.
func (w *Writer) begin() error {
	if w.err != nil {
		return w.err
	}
	if !w.held {
		w.s.lock <- struct{}{}
		w.held, w.open = true, true
	}
	w.subs, w.tally = 0, tally{}
	w.meter.reset()
	return nil
}

func (w *Writer) unlock() {
	w.held = false
	<-w.s.lock
}

// end ends a request.
func (w *Writer) end() {
	if w.subs > 0 {
		w.rev++
		w.subs = 0
	}
	w.s.counts.add(w.tally)
}

// fail ends the life of the writer. The batch stays open, so that nothing changes any more.
func (w *Writer) fail(op string, err error) error {
	w.err = &FatalError{Op: op, Err: err}
	return w.err
}

// refuse passes on the error of a limit, which came before anything was written. Every other error ends
// the life of the writer.
func (w *Writer) refuse(op string, err error) error {
	if refused(err) {
		return err
	}
	return w.fail(op, err)
}

// view returns the state that the request under way sees, valid until its next change.
func (w *Writer) view() view {
	v := view{s: w.s, w: w}
	v.tree, v.rev, v.live, v.compact = w.tree.View(), w.rev, w.live, w.compact
	if w.subs > 0 {
		v.rev++
	}
	return v
}

// next returns the place of the next change.
func (w *Writer) next() kv.Rev { return kv.Rev{Main: w.rev + 1, Sub: w.subs} }

func (w *Writer) rangeKeys(r *kv.RangeRequest) (*kv.RangeResult, error) {
	w.tally.ranges++
	sc := getScratch()
	defer sc.free()
	sc.view = w.view()
	if w.discard {
		if ok, err := w.estimate(&sc.view, r); ok || err != nil {
			return &kv.RangeResult{Revision: sc.view.rev}, err
		}
	}
	return sc.view.rangeKeys(context.Background(), r, sc)
}

// estimate counts a range that is not run, with no less than running it would count. It returns false if
// only running it tells.
func (w *Writer) estimate(v *view, r *kv.RangeRequest) (bool, error) {
	from, to, single := bounds(r.Key, r.End)
	n, visited := int64(1), int64(1)
	switch {
	case single:
	case r.Revision > 0 && r.Revision < v.rev:
		return false, nil
	case !r.CountOnly:
		n = int64(v.tree.Count(from, to))
		if find := planOf(r).find; find > 0 {
			n = min(n, int64(find))
		}
		visited = n + 1
	}
	if err := w.meter.visit(visited); err != nil {
		return true, err
	}
	// Sorting by value holds all values twice, next to the answer.
	return true, w.meter.read(n * (3*w.largest + hitSize))
}

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

// publish notes a change.
func (w *Writer) publish(ev kv.Event, from, to int64) {
	if len(w.events) == cap(w.events) {
		batch := w.events[w.first:]
		w.events = make([]kv.Event, len(batch), max(eventsChunk, 2*len(batch)))
		copy(w.events, batch)
		w.first = 0
	}
	w.events = append(w.events, ev)
	if from != to {
		w.leased = append(w.leased, LeaseChange{Key: ev.Key, From: from, To: to})
	}
}

func encodeCompact(rev int64) []byte { return binary.AppendVarint(nil, rev) }

func decodeCompact(b []byte) (int64, error) {
	rev, n := binary.Varint(b)
	if n <= 0 || n != len(b) || rev < 0 {
		return 0, fmt.Errorf("mvcc: the compact revision %x: %w", b, kv.ErrCorrupt)
	}
	return rev, nil
}
