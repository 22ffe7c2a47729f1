package replica

import (
	"context"
	"crypto/rand"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/state/fsm"
	"vigil/internal/state/lineage"
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

// Leading returns the term in which this member leads, 0 if it does not lead. A member that is becoming the only one of its cluster does
// not count as its leader until it has begun a new incarnation.
func (s Source) Leading() uint64 {
	if s.r.Members.forcing.Load() {
		return 0
	}
	return s.r.node.LeadTerm()
}

// Lineage returns the claims of terms, and a position at or before that of these claims.
func (s Source) Lineage() (*lineage.State, uint64) {
	applied := s.r.applied.Load()
	return s.r.lineage.Load(), applied
}

// Claim claims the term in which this member leads. It returns once that is applied. Errors: those of Propose.
func (s Source) Claim(ctx context.Context, term uint64) error {
	return s.r.claim(ctx, lineage.Claim{Term: term})
}

// NoteArchive notes that the cluster has begun an archive at an address. Errors: as Claim.
func (s Source) NoteArchive(ctx context.Context, address string, id lineage.ID) error {
	return s.r.proposeClaim(ctx, &fsm.Request{Archive: &lineage.Archive{Place: lineage.PlaceOf(address), ID: id}})
}

// claim claims a term with a new id.
func (r *Replica) claim(ctx context.Context, c lineage.Claim) error {
	_, _ = rand.Read(c.ID[:])
	return r.proposeClaim(ctx, &fsm.Request{Claim: &c})
}

func (r *Replica) proposeClaim(ctx context.Context, req *fsm.Request) error {
	_, err := r.Propose(ctx, req)
	return err
}

// beginIncarnation ends the history that others may continue, if there are claims of it. It is called before the membership is changed by
// force.
func (r *Replica) beginIncarnation(ctx context.Context) error {
	if r.lineage.Load().Newest() == (lineage.Mark{}) {
		return nil
	}
	return r.claim(ctx, lineage.Claim{Term: r.node.LeadTerm(), Restart: true})
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

// Entries returns entries from first on and at most up to last, at least one and as many as encode to at most maxBytes. The
// caller must not change them. Errors: raft.ErrCompacted below FirstIndex, and those of the disk. Only entries at or below an
// index that Position returned are final.
func (s Source) Entries(first, last, maxBytes uint64) ([]*raftpb.Entry, error) {
	return s.r.raftLog.Entries(first, last+1, maxBytes)
}
