package mvcc

import "vigil/internal/store/mvcc/index"

const (
	// cleanMoves is the part of the keys of a slice that may be moved in it, which takes longer than a look at them.
	cleanMoves = 4
	// cleanWords is the number of words that may be moved in a slice, and what one entry has.
	cleanWords = 16 << 10
)

// clean moves entries and blocks out of slabs that are partly released, if enough is, so that the memory returns. Like
// trimming it visits the keys in slices. It returns false if the trimmer was stopped.
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
	// Their pages are counted by visiting the keys.
	s.trees.DropOutdated()
	return true
}

// cleanSlice visits TrimKeys keys, beginning at from, or fewer if much is moved. The caller holds the lock.
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
