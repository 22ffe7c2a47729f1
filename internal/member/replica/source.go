package replica

import (
	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/store/history"
)

// LogHold keeps entries of the raft log that are needed elsewhere.
type LogHold interface {
	// LimitTruncation returns the index up to which the log may be truncated, at most cut. first is the first index of the log,
	// extra how many bytes it has beyond what the member keeps anyway. It does not block.
	LimitTruncation(first, cut uint64, extra int64) uint64
}

// Source is what a log archive is made of: the applied entries. It may be used until Stop.
type Source struct{ r *Replica }

// Leading returns the term in which this member leads, 0 if it does not lead, and an index that is committed. If this member leads,
// the index is at or above all that was committed in earlier terms, or 0 as long as that is not known.
func (s Source) Leading() (term, committed uint64) {
	st := s.r.node.Status()
	if st.Lead != s.r.memberID {
		return 0, 0
	}
	if t, err := s.r.raftLog.Term(st.Committed); err != nil || t != st.Term {
		return st.Term, 0
	}
	return st.Term, st.Committed
}

// Position returns the position that the newest commit of the store left, and the newest revision then.
func (s Source) Position() (history.Applied, int64) {
	for {
		h := s.r.handle()
		view := h.log.View()
		// A snapshot that was installed may end with a revision whose record was compacted.
		revision := max(view.Last(), 1)
		if compact := h.store.CompactRevision(); compact <= revision || view.Applied() == h.log.View().Applied() {
			return view.Applied(), max(revision, compact)
		}
	}
}

// FirstIndex returns the index of the first entry in the log.
func (s Source) FirstIndex() uint64 {
	first, _ := s.r.raftLog.FirstIndex()
	return first
}

// Term returns the term of an entry, false if the log does not know it.
func (s Source) Term(index uint64) (uint64, bool) {
	t, err := s.r.raftLog.Term(index)
	return t, err == nil
}

// Entries returns entries from first on and at most up to last, at least one and as many as encode to at most maxBytes. The
// caller must not change them. Errors: raft.ErrCompacted below FirstIndex, and those of the disk. Only entries at or below an
// index that Position returned are final.
func (s Source) Entries(first, last, maxBytes uint64) ([]*raftpb.Entry, error) {
	return s.r.raftLog.Entries(first, last+1, maxBytes)
}
