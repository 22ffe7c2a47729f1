package mvcc

import (
	"bytes"
	"errors"
	"sort"
	"vigil/internal/kv"
	"vigil/internal/store/mvcc/record"
)

// model is the key space kept in the plainest way: every change in a list, and every question
// answered by going over all of it.
type model struct {
	changes []modelChange
	rev     int64
	compact int64
	leases  map[int64]bool
}

type modelChange struct {
	rev  kv.Rev
	tomb bool
	kv   modelKV
}

type modelKV struct {
	Key, Value                  string
	Create, Mod, Version, Lease int64
}

func newModel() *model { return &model{rev: 1, compact: -1, leases: map[int64]bool{1: true, 2: true}} }

func (m *model) clone() *model {
	c := *m
	c.changes = m.changes[:len(m.changes):len(m.changes)]
	return &c
}

// Exists makes the model a LeaseChecker.
func (m *model) Exists(id int64) bool { return m.leases[id] }

// keys returns the pairs of [key, end) at a revision, by key.
func (m *model) keys(key, end []byte, at int64) []modelKV {
	state := map[string]modelKV{}
	for _, c := range m.changes {
		switch {
		case c.rev.Main > at:
		case c.tomb:
			delete(state, c.kv.Key)
		default:
			state[c.kv.Key] = c.kv
		}
	}
	var out []modelKV
	for k, v := range state {
		in := k >= string(key) && k < string(end)
		if len(end) == 0 {
			in = k == string(key)
		} else if string(end) == "\x00" {
			in = k >= string(key)
		}
		if in {
			out = append(out, v)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Key < out[j].Key })
	return out
}

type modelRange struct {
	Revision, Count int64
	More            bool
	KVs             []modelKV
}

// rangeAt answers a range on a state whose newest revision is cur.
func (m *model) rangeAt(r *kv.RangeRequest, cur int64) (*modelRange, error) {
	at := r.Revision
	if at > cur {
		return nil, kv.ErrFutureRev
	}
	if at <= 0 {
		at = cur
	}
	if at < m.compact {
		return nil, kv.ErrCompacted
	}
	kvs := m.keys(r.Key, r.End, at)
	res := &modelRange{Revision: cur, Count: int64(len(kvs))}
	if r.CountOnly {
		return res, nil
	}
	filters := r.MinModRevision != 0 || r.MaxModRevision != 0 || r.MinCreateRevision != 0 || r.MaxCreateRevision != 0
	inOrder := r.Order == kv.SortNone || r.Sort == kv.SortByKey && r.Order == kv.SortAscend
	if inOrder && !filters && r.Limit > 0 && int64(len(kvs)) > r.Limit+1 {
		kvs = kvs[:r.Limit+1]
	}
	var kept []modelKV
	for _, k := range kvs {
		if r.MaxModRevision != 0 && k.Mod > r.MaxModRevision ||
			r.MinModRevision != 0 && k.Mod < r.MinModRevision ||
			r.MaxCreateRevision != 0 && k.Create > r.MaxCreateRevision ||
			r.MinCreateRevision != 0 && k.Create < r.MinCreateRevision {
			continue
		}
		kept = append(kept, k)
	}
	less := map[kv.SortTarget]func(a, b modelKV) bool{
		kv.SortByKey:     func(a, b modelKV) bool { return a.Key < b.Key },
		kv.SortByVersion: func(a, b modelKV) bool { return a.Version < b.Version },
		kv.SortByCreate:  func(a, b modelKV) bool { return a.Create < b.Create },
		kv.SortByMod:     func(a, b modelKV) bool { return a.Mod < b.Mod },
		kv.SortByValue:   func(a, b modelKV) bool { return a.Value < b.Value },
	}[r.Sort]
	by := modelSort{kept, less}
	switch {
	case r.Order == kv.SortDescend:
		sort.Sort(sort.Reverse(by))
	case r.Sort != kv.SortByKey || r.Order == kv.SortAscend:
		sort.Sort(by)
	}
	if r.Limit > 0 && int64(len(kept)) > r.Limit {
		kept, res.More = kept[:r.Limit], true
	}
	for _, k := range kept {
		if r.KeysOnly {
			k.Value = ""
			if r.Sort != kv.SortByValue {
				k.Lease = 0
			}
		}
		res.KVs = append(res.KVs, k)
	}
	return res, nil
}

type modelSort struct {
	kvs  []modelKV
	less func(a, b modelKV) bool
}

func (s modelSort) Len() int           { return len(s.kvs) }
func (s modelSort) Swap(i, j int)      { s.kvs[i], s.kvs[j] = s.kvs[j], s.kvs[i] }
func (s modelSort) Less(i, j int) bool { return s.less(s.kvs[i], s.kvs[j]) }

// modelTxn is a request under way: what it has changed so far.
type modelTxn struct {
	m    *model
	subs int64
}

// cur is the revision that the request's operations read.
func (t *modelTxn) cur() int64 {
	if t.subs > 0 {
		return t.m.rev + 1
	}
	return t.m.rev
}

func (t *modelTxn) change(c modelChange) {
	c.rev = kv.Rev{Main: t.m.rev + 1, Sub: t.subs}
	c.kv.Mod = c.rev.Main
	t.subs++
	t.m.changes = append(t.m.changes, c)
}

func (t *modelTxn) end() {
	if t.subs > 0 {
		t.m.rev++
	}
}

type modelPut struct {
	Revision int64
	Prev     []modelKV
}

func (t *modelTxn) put(p *kv.PutRequest) modelPut {
	old := t.m.keys(p.Key, nil, t.m.rev+1)
	n := modelKV{Key: string(p.Key), Value: string(p.Value), Create: t.m.rev + 1, Version: 1, Lease: p.Lease}
	if len(old) > 0 {
		n.Create, n.Version = old[0].Create, old[0].Version+1
		if p.IgnoreValue {
			n.Value = old[0].Value
		}
		if p.IgnoreLease {
			n.Lease = old[0].Lease
		}
	}
	t.change(modelChange{kv: n})
	res := modelPut{Revision: t.m.rev + 1}
	if p.PrevKV {
		res.Prev = old
	}
	return res
}

type modelDelete struct {
	Revision, Deleted int64
	Prev              []modelKV
}

func (t *modelTxn) delete(r *kv.DeleteRangeRequest) modelDelete {
	old := t.m.keys(r.Key, r.End, t.cur())
	for _, k := range old {
		t.change(modelChange{tomb: true, kv: modelKV{Key: k.Key}})
	}
	res := modelDelete{Revision: t.cur(), Deleted: int64(len(old))}
	if r.PrevKV {
		res.Prev = old
	}
	return res
}

// modelResult holds, for each operation that was run, its result: *modelRange, modelPut,
// modelDelete, or *modelResult.
type modelResult struct {
	Revision  int64
	Succeeded bool
	Responses []any
}

func (m *model) compares(cs []kv.Compare) bool {
	for _, c := range cs {
		kvs := m.keys(c.Key, c.End, m.rev)
		if len(kvs) == 0 {
			if c.Target == kv.CompareValue {
				return false
			}
			kvs = []modelKV{{}}
		}
		for _, k := range kvs {
			n := map[kv.CompareTarget]int64{
				kv.CompareVersion: k.Version, kv.CompareCreate: k.Create, kv.CompareMod: k.Mod, kv.CompareLease: k.Lease,
			}[c.Target]
			order := 0
			switch {
			case c.Target == kv.CompareValue:
				order = bytes.Compare([]byte(k.Value), c.Value)
			case c.Target > kv.CompareLease:
			case n < c.Number:
				order = -1
			case n > c.Number:
				order = 1
			}
			ok := map[kv.CompareResult]bool{kv.Equal: order == 0, kv.Greater: order > 0, kv.Less: order < 0, kv.NotEqual: order != 0}
			if holds, known := ok[c.Result]; known && !holds {
				return false
			}
		}
	}
	return true
}

// decide marks for each transaction that will be run which branch it takes.
func (m *model) decide(r *kv.TxnRequest, taken map[*kv.TxnRequest][]kv.Op, succeeded map[*kv.TxnRequest]bool) {
	ops := r.Failure
	if succeeded[r] = m.compares(r.Compare); succeeded[r] {
		ops = r.Success
	}
	taken[r] = ops
	for _, op := range ops {
		if op.Txn != nil {
			m.decide(op.Txn, taken, succeeded)
		}
	}
}

func (m *model) check(r *kv.TxnRequest, taken map[*kv.TxnRequest][]kv.Op) error {
	for _, op := range taken[r] {
		switch {
		case op.Range != nil:
			if q := op.Range.Revision; q > m.rev {
				return kv.ErrFutureRev
			} else if q != 0 && q < m.compact {
				return kv.ErrCompacted
			}
		case op.Put != nil:
			if err := m.checkPut(op.Put); err != nil {
				return err
			}
		case op.Txn != nil:
			if err := m.check(op.Txn, taken); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *model) checkPut(p *kv.PutRequest) error {
	if p.Lease != 0 && !m.Exists(p.Lease) {
		return kv.ErrLeaseNotFound
	}
	if (p.IgnoreLease || p.IgnoreValue) && len(m.keys(p.Key, nil, m.rev)) == 0 {
		return kv.ErrKeyNotFound
	}
	return nil
}

func (m *model) txn(r *kv.TxnRequest) (*modelResult, error) {
	taken, succeeded := map[*kv.TxnRequest][]kv.Op{}, map[*kv.TxnRequest]bool{}
	m.decide(r, taken, succeeded)
	if err := m.check(r, taken); err != nil {
		return nil, err
	}
	t := &modelTxn{m: m}
	var run func(r *kv.TxnRequest) (*modelResult, error)
	run = func(r *kv.TxnRequest) (*modelResult, error) {
		res := &modelResult{Succeeded: succeeded[r]}
		for _, op := range taken[r] {
			var one any
			var err error
			switch {
			case op.Range != nil:
				one, err = m.rangeAt(op.Range, t.cur())
			case op.Put != nil:
				one = t.put(op.Put)
			case op.Delete != nil:
				one = t.delete(op.Delete)
			case op.Txn != nil:
				one, err = run(op.Txn)
			}
			if err != nil {
				return nil, err
			}
			res.Responses = append(res.Responses, one)
		}
		return res, nil
	}
	res, err := run(r)
	if err != nil {
		return nil, err
	}
	t.end()
	res.Revision = m.rev
	return res, nil
}

func (m *model) compactTo(rev int64) error {
	switch {
	case rev <= m.compact:
		return kv.ErrCompacted
	case rev > m.rev:
		return kv.ErrFutureRev
	}
	m.compact = rev
	return nil
}

// The real answers in the model's form.

func plainKVs(r kv.Records) ([]modelKV, error) {
	var out []modelKV
	if r.Long != nil {
		short, err := shorten(r.Long)
		if err != nil {
			return nil, err
		}
		r = short
	}
	for i := range r.Len() {
		k, err := plainKV(r.At(i))
		if err != nil {
			return nil, err
		}
		out = append(out, k)
	}
	return out, nil
}

func plainKV(b []byte) (modelKV, error) {
	var r record.KeyValue
	if err := r.Decode(b); err != nil {
		return modelKV{}, err
	}
	if again := r.Append(nil); !bytes.Equal(again, b) {
		return modelKV{}, errors.New("not the canonical encoding")
	}
	return modelKV{string(r.Key), string(r.Value), r.Create, r.Mod, r.Version, r.Lease}, nil
}

func plainRange(r *kv.RangeResult) (*modelRange, error) {
	kvs, err := plainKVs(r.KVs)
	return &modelRange{r.Revision, r.Count, r.More, kvs}, err
}

func plainPut(p kv.PutResult) (modelPut, error) {
	res := modelPut{Revision: p.Revision}
	if p.PrevKV != nil {
		k, err := plainKV(p.PrevKV)
		if err != nil {
			return res, err
		}
		res.Prev = []modelKV{k}
	}
	return res, nil
}

func plainDelete(d kv.DeleteRangeResult) (modelDelete, error) {
	kvs, err := plainKVs(d.PrevKVs)
	return modelDelete{d.Revision, d.Deleted, kvs}, err
}

func plainTxn(t *kv.TxnResult) (*modelResult, error) {
	res := &modelResult{Revision: t.Revision, Succeeded: t.Succeeded}
	for _, r := range t.Responses {
		var one any
		var err error
		switch {
		case r.Range != nil:
			one, err = plainRange(r.Range)
		case r.Put != nil:
			one, err = plainPut(*r.Put)
		case r.Delete != nil:
			one, err = plainDelete(*r.Delete)
		case r.Txn != nil:
			one, err = plainTxn(r.Txn)
		}
		if err != nil {
			return nil, err
		}
		res.Responses = append(res.Responses, one)
	}
	return res, nil
}
