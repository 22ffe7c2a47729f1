package validate

import (
	"bytes"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"vigil/internal/kv"
)

// written is the set of keys that a list of operations may write, including nested transactions.
type written struct {
	puts    map[string]struct{}
	deletes spans
}

// mayOverlap returns false for most lists that do not overlap.
func mayOverlap(ops []kv.Op) bool {
	puts, deletes := 0, 0
	for i := range ops {
		switch op := &ops[i]; {
		case op.Txn != nil:
			return true
		case op.Put != nil:
			puts++
		case op.Delete != nil:
			deletes++
		}
	}
	return puts > 1 || puts == 1 && deletes > 0
}

// overlap rejects a list of operations that puts a key twice, or puts a key and deletes it. A
// nested transaction may put the same key on both sides, because only one side runs.
//
// As in etcd, a deleted range is compared as it is written: a deletion from a key onwards (an end
// of one zero byte) counts as empty, and the deletions of a later nested transaction do not
// conflict with the puts of an earlier one.
func overlap(ops []kv.Op) (written, error) {
	var w written
	var own []span
	puts, nested := 0, 0
	for i := range ops {
		switch op := &ops[i]; {
		case op.Put != nil:
			puts++
		case op.Txn != nil:
			nested++
		case op.Delete != nil:
			own = append(own, deleted(op.Delete))
		}
	}
	if puts+nested == 0 && len(own) == 0 {
		return w, nil
	}
	w.puts = make(map[string]struct{}, puts)
	w.deletes.add(joinSpans(own))
	for i := range ops {
		if ops[i].Txn != nil {
			if err := w.nested(ops[i].Txn); err != nil {
				return w, err
			}
		}
	}
	for i := range ops {
		if ops[i].Put != nil {
			if err := w.put(string(ops[i].Put.Key), nil); err != nil {
				return w, err
			}
		}
	}
	return w, nil
}

// nested adds the keys that a nested transaction may write.
func (w *written) nested(r *kv.TxnRequest) error {
	success, err := overlap(r.Success)
	if err != nil {
		return err
	}
	failure, err := overlap(r.Failure)
	if err != nil {
		return err
	}
	for key := range success.puts {
		if err := w.put(key, nil); err != nil {
			return err
		}
	}
	for key := range failure.puts {
		if err := w.put(key, success.puts); err != nil {
			return err
		}
	}
	for _, run := range append(success.deletes.runs, failure.deletes.runs...) {
		w.deletes.add(run)
	}
	return nil
}

// put adds a key, which may be present already only if it is in alternative.
func (w *written) put(key string, alternative map[string]struct{}) error {
	if _, twice := w.puts[key]; twice {
		if _, fine := alternative[key]; !fine {
			return rpctypes.ErrGRPCDuplicateKey
		}
	}
	if w.deletes.has(key) {
		return rpctypes.ErrGRPCDuplicateKey
	}
	w.puts[key] = struct{}{}
	return nil
}

// span is the range of keys from from up to, but not including, to.
type span struct{ from, to []byte }

func deleted(r *kv.DeleteRangeRequest) span {
	if len(r.End) == 0 {
		return span{r.Key, append(slices.Clone(r.Key), 0)}
	}
	return span{r.Key, r.End}
}

// joinSpans sorts spans, joins those that touch and drops empty ones. The result is a run.
func joinSpans(list []span) []span {
	list = slices.DeleteFunc(list, func(s span) bool { return bytes.Compare(s.from, s.to) >= 0 })
	slices.SortFunc(list, func(a, b span) int { return bytes.Compare(a.from, b.from) })
	n := 0
	for _, s := range list {
		if n > 0 && bytes.Compare(s.from, list[n-1].to) <= 0 {
			if bytes.Compare(s.to, list[n-1].to) > 0 {
				list[n-1].to = s.to
			}
			continue
		}
		list[n] = s
		n++
	}
	return list[:n]
}

// spans is a set of keys as a few runs. Each run is more than twice as long as the next, so that
// adding many short ones, as a transaction with thousands of nested ones can, stays cheap.
type spans struct{ runs [][]span }

func (s *spans) add(run []span) {
	if len(run) == 0 {
		return
	}
	s.runs = append(s.runs, run)
	for n := len(s.runs); n > 1 && len(s.runs[n-2]) <= 2*len(s.runs[n-1]); n-- {
		s.runs[n-2] = joinSpans(slices.Concat(s.runs[n-2], s.runs[n-1]))
		s.runs = s.runs[:n-1]
	}
}

func (s *spans) has(key string) bool {
	for _, run := range s.runs {
		// The first span that begins after the key; the one before it may contain the key.
		i, _ := slices.BinarySearchFunc(run, key, func(sp span, key string) int {
			if string(sp.from) <= key {
				return -1
			}
			return 1
		})
		if i > 0 && key < string(run[i-1].to) {
			return true
		}
	}
	return false
}
