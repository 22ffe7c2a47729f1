package mvcc

import (
	"context"
	"vigil/internal/kv"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc/meter"
)

// Put writes one key.
//
// Errors: kv.ErrLeaseNotFound, kv.ErrKeyNotFound, a *kv.LimitError, a *FatalError.
func (w *Writer) Put(p *kv.PutRequest, leases LeaseChecker) (kv.PutResult, error) {
	if err := w.beginRequest(); err != nil {
		return kv.PutResult{}, err
	}
	v := w.view()
	if err := v.checkPut(p, leases); err != nil {
		return kv.PutResult{}, err
	}
	var res kv.PutResult
	err := w.runMetered(func() error { return w.put(p, &res) })
	if err != nil {
		return kv.PutResult{}, w.refuse("put", err)
	}
	w.endRequest()
	return res, nil
}

// DeleteRange deletes the keys of a range, as one revision.
//
// Errors: a *kv.LimitError, a *FatalError.
func (w *Writer) DeleteRange(r *kv.DeleteRangeRequest) (kv.DeleteRangeResult, error) {
	if err := w.beginRequest(); err != nil {
		return kv.DeleteRangeResult{}, err
	}
	var res kv.DeleteRangeResult
	err := w.runMetered(func() error { return w.deleteRange(r, &res) })
	if err != nil {
		return kv.DeleteRangeResult{}, w.refuse("delete range", err)
	}
	w.endRequest()
	return res, nil
}

// DeleteKeys deletes keys, in the order given and as one revision; it skips keys that do not exist.
// It returns the number of keys that it has deleted or skipped: fewer than all if one revision
// cannot hold the deletions.
//
// Errors: a *FatalError.
func (w *Writer) DeleteKeys(keys []string) (done int, err error) {
	if err := w.beginRequest(); err != nil {
		return 0, err
	}
	for _, key := range keys {
		if w.exists(key) {
			if done > 0 && w.meter.Change(w.tombstoneBytes(key)) != nil {
				break
			}
			if err := w.delete(key); err != nil {
				return 0, w.fail("delete", err)
			}
			w.tally.deletes++
		}
		done++
	}
	w.endRequest()
	return done, nil
}

// Leases returns the changes of lease attachments in the open batch so far, in order; valid until
// the next request.
func (w *Writer) Leases() []LeaseChange { return w.leased }

// Txn runs a transaction, as one revision. The results of its operations carry the revisions that
// etcd gives them; the revision of a nested transaction itself is 0.
//
// Errors: of the first check that fails, kv.ErrLeaseNotFound, kv.ErrKeyNotFound, kv.ErrFutureRev or
// a *kv.CompactedError; a *kv.LimitError; a *FatalError.
func (w *Writer) Txn(r *kv.TxnRequest, leases LeaseChecker) (*kv.TxnResult, error) {
	if err := w.beginRequest(); err != nil {
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
	err = w.runMetered(func() (err error) {
		t := txn{w: w, ctx: ctx, path: path}
		if res, err = t.run(r); meter.IsLimit(err) || err == meter.ErrRough {
			w.undo(before)
		}
		return err
	})
	if err != nil {
		return nil, w.refuse("txn", err)
	}
	w.endRequest()
	res.Revision = w.rev
	return res, nil
}

// Compact moves the compact revision. The trimmer drops the changes below it in the background, see
// Store.WaitTrimmed.
//
// Errors: a *kv.CompactedError at or below the compact revision, kv.ErrFutureRev, a *FatalError.
func (w *Writer) Compact(rev int64) (kv.CompactResult, error) {
	if err := w.beginRequest(); err != nil {
		return kv.CompactResult{}, err
	}
	switch {
	case rev <= w.compact:
		return kv.CompactResult{}, &kv.CompactedError{CompactRevision: w.compact}
	case rev > w.rev:
		return kv.CompactResult{}, kv.ErrFutureRev
	}
	made, err := w.timeAt(rev)
	if err != nil {
		return kv.CompactResult{}, w.fail("compact", err)
	}
	if err := w.appendMeta(CompactRecord(rev, made)); err != nil {
		return kv.CompactResult{}, err
	}
	w.compactions = append(w.compactions, compaction{prev: w.compact, rev: rev})
	w.compact, w.times.compact = rev, made
	return kv.CompactResult{Revision: w.rev}, nil
}

// SetMeta adds records outside the key space to the batch, all or none. The bucket must not be
// MetaBucket.
//
// Errors: a *kv.LimitError, a *FatalError.
func (w *Writer) SetMeta(records ...history.Meta) error {
	if err := w.beginRequest(); err != nil {
		return err
	}
	sum := int64(0)
	for i := range records {
		size := history.MetaBytes(&records[i])
		if err := w.meter.Record(size); err != nil {
			return err
		}
		sum += int64(size) + history.RecordOverhead
	}
	if err := w.meter.Change(sum); err != nil {
		return err
	}
	for i := range records {
		if err := w.log.AppendMeta(records[i]); err != nil {
			return w.fail("meta record", err)
		}
	}
	return nil
}
