package mvcc

import "vigil/internal/store/mvcc/index"

const (
	// cleanMoves limits the entries that a slice moves to 1/cleanMoves of TrimKeys: moving an entry
	// takes longer than visiting it.
	cleanMoves = 4
	// cleanWords is the number of words that a slice may move, plus the words of one entry.
	cleanWords = 16 << 10
)

// clean moves entries and blocks out of partly released slabs, if enough words are released, to
// free the memory. Like trimming it visits the keys in slices. It returns false if the trimmer was
// stopped.
func (s *Store) clean() bool {
	if !s.acquire() {
		return false
	}
	pool := s.writer.index.Pool
	begun := pool.Wanted() && pool.BeginClean()
	<-s.lock
	if !begun {
		s.trees.DropOutdated()
		return true
	}
	p := s.newRests()
	for from, more := "", true; more; p.Pause() {
		if !s.acquire() {
			return false
		}
		from, more = s.cleanSlice(from)
		<-s.lock
	}
	if !s.acquire() {
		return false
	}
	left := pool.EndClean()
	<-s.lock
	if left > 0 {
		s.opts.Logger.Warn("cleaning the index left slabs behind", "slabs", left)
	}
	// Later pages of their lists visit the keys to count them.
	s.trees.DropOutdated()
	return true
}

// cleanSlice visits TrimKeys keys, beginning at from, or fewer if it moves much. The caller holds
// the lock.
func (s *Store) cleanSlice(from string) (next string, more bool) {
	x := s.writer.index
	most, words := max(s.opts.TrimKeys/cleanMoves, 1), 0
	var found []index.Entry
	it := x.Tree.View().Range(from, "")
	for n := 0; it.Next(); n++ {
		if n == s.opts.TrimKeys || len(found) == most || words > cleanWords {
			next, more = it.Key(), true
			break
		}
		if e := index.At(&it); x.InVictim(e) {
			found = append(found, e)
			words += e.Words()
		}
	}
	moved := false
	for _, e := range found {
		moved = x.Evacuate(e) || moved
	}
	s.publishIndex(moved)
	return next, more
}
