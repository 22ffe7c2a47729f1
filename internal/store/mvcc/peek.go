package mvcc

import "vigil/internal/kv"

// maxPeek is the size in bytes of the largest record that Peek returns.
const maxPeek = 16 << 10

// Peek is Range for one key at the newest revision, if that waits for no disk and needs little memory; ok is false otherwise. The
// result refers to the memory of the log: it must not be changed, and not be kept for long.
func (s *Store) Peek(r *kv.RangeRequest) (res *kv.RangeResult, ok bool) {
	from, _, single := bounds(r.Key, r.End)
	if !single || r.Revision > 0 || r.CountOnly || r.KeysOnly || r.Filters() {
		return nil, false
	}
	for {
		v := s.read()
		one := &struct {
			kv.RangeResult
			ends [1]int
		}{RangeResult: kv.RangeResult{Revision: v.rev}}
		res := &one.RangeResult
		if at, ok := v.find(from, v.rev); ok {
			b := v.hist.Peek(at.Rev, maxPeek)
			if b == nil || len(b) > maxPeek {
				return nil, false
			}
			res.Count, res.KVs.Buf, one.ends[0] = 1, b[:len(b):len(b)], len(b)
			res.KVs.Ends = one.ends[:]
		}
		if s.overtaken(v.rev, 0) == nil {
			s.counts.ranges.Add(1)
			return res, true
		}
	}
}
