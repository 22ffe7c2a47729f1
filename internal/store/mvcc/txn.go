package mvcc

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"vigil/internal/kv"
	"vigil/internal/store/mvcc/index"
	"vigil/internal/store/mvcc/record"
)

// LeaseChecker reports which leases exist. The writer's goroutine calls it.
type LeaseChecker interface {
	Exists(id int64) bool
}

// errReadOnly is the error of ReadTxn for a transaction that writes.
var errReadOnly = errors.New("mvcc: a read-only transaction with a write")

// ReadTxn runs a transaction that only reads, on the newest state. All its ranges read the same
// state.
// Errors: as Range; and errReadOnly if the branch that runs holds a write.
func (s *Store) ReadTxn(ctx context.Context, r *kv.TxnRequest) (*kv.TxnResult, error) {
	sc := getScratch()
	defer sc.free()
	for {
		v := sc.beginRead(ctx, s)
		res, err := v.readTxn(ctx, r, sc)
		if again, err := sc.again(ctx, err); !again {
			if err != nil {
				return nil, err
			}
			return res, nil
		}
	}
}

func (v *view) readTxn(ctx context.Context, r *kv.TxnRequest, sc *scratch) (*kv.TxnResult, error) {
	path, err := v.path(ctx, r, nil)
	// A compaction that overtook the read may have hidden keys from the compares, or made their
	// records unreadable.
	if over := v.overtaken(v.rev, 0); over != nil {
		err = over
	}
	if err != nil {
		return nil, err
	}
	if _, err := v.check(r, nil, path); err != nil {
		return nil, err
	}
	t := txn{v: v, sc: sc, ctx: ctx, path: path}
	res, err := t.run(r)
	if err != nil {
		return nil, err
	}
	v.s.counts.addRequest(tally{ranges: t.ranges})
	res.Revision = v.rev
	return res, nil
}

// path evaluates the compares of a transaction and of the nested transactions that it executes, in
// the order of execution, and appends the outcomes to p.
func (v *view) path(ctx context.Context, r *kv.TxnRequest, p []bool) ([]bool, error) {
	holds := true
	for i := range r.Compare {
		var err error
		if holds, err = v.compare(ctx, &r.Compare[i]); err != nil {
			return nil, err
		} else if !holds {
			break
		}
	}
	p = append(p, holds)
	for _, op := range branch(r, holds) {
		if op.Txn != nil {
			var err error
			if p, err = v.path(ctx, op.Txn, p); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

func branch(r *kv.TxnRequest, holds bool) []kv.Op {
	if holds {
		return r.Success
	}
	return r.Failure
}

// compare evaluates one compare on the newest revision of the state.
func (v *view) compare(ctx context.Context, c *kv.Compare) (bool, error) {
	from, to, single := bounds(c.Key, c.End)
	if single {
		if err := v.visited(1); err != nil {
			return false, err
		}
		if e, ok := index.Of(v.tree, from); ok {
			if s, ok := e.At(v.rev); ok {
				return v.compareKey(c, e, s)
			}
		}
		return compareAbsent(c), nil
	}
	found := false
	it := v.tree.Range(from, to)
	for i := 0; it.Next(); i++ {
		if err := alive(ctx, i); err != nil {
			return false, err
		}
		e := index.At(&it)
		s, ok := e.At(v.rev)
		if !ok {
			continue
		}
		found = true
		if err := v.visited(1); err != nil {
			return false, err
		}
		if holds, err := v.compareKey(c, e, s); err != nil || !holds {
			return false, err
		}
	}
	return found || compareAbsent(c), nil
}

// compareAbsent compares a key that does not exist, or a range without keys: every number is 0,
// and a comparison of values fails.
func compareAbsent(c *kv.Compare) bool {
	switch c.Target {
	case kv.CompareValue:
		return false
	case kv.CompareVersion, kv.CompareCreate, kv.CompareMod, kv.CompareLease:
		return holds(c.Result, cmp.Compare(0, c.Number))
	default:
		return holds(c.Result, 0)
	}
}

// compareKey compares a key that exists.
func (v *view) compareKey(c *kv.Compare, e index.Entry, s index.State) (bool, error) {
	var n int64
	switch c.Target {
	case kv.CompareCreate:
		n = s.Create
	case kv.CompareMod:
		n = s.Rev.Main
	case kv.CompareVersion:
		if n = s.Version; n == 0 {
			var rec record.KeyValue
			if err := v.decode(s.Rev, &rec); err != nil {
				return false, err
			}
			n = rec.Version
		}
	case kv.CompareLease:
		if v.w != nil {
			n = e.Lease()
			break
		}
		var rec record.KeyValue
		if err := v.decode(s.Rev, &rec); err != nil {
			return false, err
		}
		n = rec.Lease
	case kv.CompareValue:
		var rec record.KeyValue
		if err := v.decode(s.Rev, &rec); err != nil {
			return false, err
		}
		return holds(c.Result, bytes.Compare(rec.Value, c.Value)), nil
	default:
		return holds(c.Result, 0), nil
	}
	return holds(c.Result, cmp.Compare(n, c.Number)), nil
}

// holds reports whether the order of two values matches the requested relation. An unknown relation
// always holds.
func holds(r kv.CompareResult, order int) bool {
	switch r {
	case kv.Equal:
		return order == 0
	case kv.Greater:
		return order > 0
	case kv.Less:
		return order < 0
	case kv.NotEqual:
		return order != 0
	default:
		return true
	}
}

// check checks the operations that a transaction executes. It returns the rest of the path after
// the outcomes of r.
func (v *view) check(r *kv.TxnRequest, leases LeaseChecker, path []bool) ([]bool, error) {
	holds, path := path[0], path[1:]
	ops := branch(r, holds)
	for i := range ops {
		var err error
		switch op := &ops[i]; {
		case op.Range != nil:
			err = v.checkRange(op.Range)
		case op.Put != nil:
			err = v.checkPut(op.Put, leases)
		case op.Txn != nil:
			path, err = v.check(op.Txn, leases, path)
		}
		if err != nil {
			return nil, err
		}
	}
	return path, nil
}

// checkRange checks what etcd requires of a range in a transaction: unlike elsewhere, a negative
// revision does not mean the newest, and lies below any compaction.
func (v *view) checkRange(r *kv.RangeRequest) error {
	switch {
	case r.Revision == 0:
		return nil
	case r.Revision > v.rev:
		return kv.ErrFutureRev
	case r.Revision < v.compact:
		return &kv.CompactedError{CompactRevision: v.compact}
	default:
		return nil
	}
}

func (v *view) checkPut(p *kv.PutRequest, leases LeaseChecker) error {
	if p.Lease != 0 && (leases == nil || !leases.Exists(p.Lease)) {
		return kv.ErrLeaseNotFound
	}
	if p.IgnoreValue || p.IgnoreLease {
		if _, ok := v.find(str(p.Key), v.rev); !ok {
			return kv.ErrKeyNotFound
		}
	}
	return nil
}

// txn is a transaction in progress whose compares have been evaluated.
type txn struct {
	// v is the state that a read-only transaction reads, w the writer of any other.
	v    *view
	sc   *scratch
	w    *Writer
	ctx  context.Context
	path []bool
	// ranges counts the ranges of a read-only transaction.
	ranges uint64
}

// run runs the operations of r and of the transactions nested in it.
func (t *txn) run(r *kv.TxnRequest) (*kv.TxnResult, error) {
	res := &kv.TxnResult{Succeeded: t.path[0]}
	t.path = t.path[1:]
	ops := branch(r, res.Succeeded)
	if len(ops) > 0 {
		res.Responses = make([]kv.OpResult, len(ops))
	}
	for i := range ops {
		if err := t.do(&ops[i], &res.Responses[i]); err != nil {
			return nil, err
		}
	}
	return res, nil
}

func (t *txn) do(op *kv.Op, res *kv.OpResult) (err error) {
	switch {
	case op.Range != nil:
		if t.w == nil {
			if err := t.ctx.Err(); err != nil {
				return err
			}
			t.ranges++
			res.Range, err = t.v.rangeKeys(t.ctx, op.Range, t.sc)
			return err
		}
		res.Range, err = t.w.rangeKeys(op.Range)
		return err
	case op.Txn != nil:
		res.Txn, err = t.run(op.Txn)
		return err
	case op.Put != nil && t.w != nil:
		res.Put = &kv.PutResult{}
		return t.w.put(op.Put, res.Put)
	case op.Delete != nil && t.w != nil:
		res.Delete = &kv.DeleteRangeResult{}
		return t.w.deleteRange(op.Delete, res.Delete)
	case op.Put != nil || op.Delete != nil:
		return errReadOnly
	default:
		return nil
	}
}
