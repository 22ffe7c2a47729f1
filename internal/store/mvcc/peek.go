package mvcc

import "vigil/internal/kv"

// maxPeek is the size in bytes of the largest record that Peek returns.
const maxPeek = 16 << 10

// Peek is Range for one key at the newest revision, if the read does not wait for the disk and
// needs little memory; it returns false otherwise. The result refers to the memory of the log: the
// caller must not change it, nor keep it for long.
func (s *Store) Peek(r *kv.RangeRequest, res *kv.GetResult) (ok bool) {
	from, _, single := bounds(r.Key, r.End)
	if !single || r.Revision > 0 || r.CountOnly || r.KeysOnly || r.Filters() {
		return false
	}
	for {
		v := s.read()
		*res = kv.GetResult{RangeResult: kv.RangeResult{Revision: v.rev}}
		if at, ok := v.find(from, v.rev); ok {
			b := v.hist.Peek(at.Rev, maxPeek)
			if b == nil || len(b) > maxPeek {
				return false
			}
			res.SetRecord(b)
		}
		if s.overtaken(v.rev, 0) == nil {
			s.counts.ranges.Add(1)
			return true
		}
	}
}
