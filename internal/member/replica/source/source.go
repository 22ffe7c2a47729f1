// Package source has the data for a log archive: the applied entries of a member, and the claims of
// terms.
package source

import (
	"context"
	"crypto/rand"
	"sync/atomic"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/member/replica/handle"
	"vigil/internal/state/cluster"
	"vigil/internal/state/fsm"
	"vigil/internal/state/lineage"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
)

// Pipeline is the pipeline of the member.
type Pipeline interface {
	// Applied returns the applied position.
	Applied() uint64
	// LeadTerm returns the term in which this member leads, 0 if it does not lead.
	LeadTerm() uint64
	// Membership returns the members as of the applied position.
	Membership() *cluster.State
	// Propose proposes a request and waits for its result.
	Propose(context.Context, *fsm.Request) (fsm.Result, error)
}

// RaftLog is the raft log of the member.
type RaftLog interface {
	FirstIndex() (uint64, error)
	Entries(lo, hi, maxBytes uint64) ([]*raftpb.Entry, error)
}

// Options configure a Source. All fields are required.
type Options struct {
	Pipeline Pipeline
	RaftLog  RaftLog
	Current  *handle.Current
	// Force tells whether this member is becoming the only one of its cluster.
	Force interface{ Forcing() bool }
}

// Source has the data for a log archive. It may be used until the member stops.
type Source struct {
	o Options
	// lineage are the claims of terms as of the applied position. Stored by the apply goroutine,
	// before that position.
	lineage atomic.Pointer[lineage.State]
}

// New returns the Source that begins with claims.
func New(o Options, claims *lineage.State) *Source {
	s := &Source{o: o}
	s.lineage.Store(claims)
	return s
}

// Follow takes over the claims of a commit. The apply goroutine calls it before the commit counts
// as applied.
func (s *Source) Follow(claims *lineage.State) { s.lineage.Store(claims) }

// Leading returns the term in which this member leads, 0 if it does not lead. A member that is
// becoming the only one of its cluster does not count as its leader until it has begun a new
// incarnation.
func (s *Source) Leading() uint64 {
	if s.o.Force.Forcing() {
		return 0
	}
	return s.o.Pipeline.LeadTerm()
}

// Lineage returns the claims of terms, and a position at or before the position of these claims.
func (s *Source) Lineage() (*lineage.State, uint64) {
	applied := s.o.Pipeline.Applied()
	return s.lineage.Load(), applied
}

// Claims returns the claims of terms as of the applied position.
func (s *Source) Claims() *lineage.State { return s.lineage.Load() }

// Claim claims the term in which this member leads. It returns once the claim is applied. Errors:
// from Propose.
func (s *Source) Claim(ctx context.Context, term uint64) error {
	return s.claim(ctx, lineage.Claim{Term: term})
}

// NoteArchive notes that the cluster has begun an archive at an address. Errors: as Claim.
func (s *Source) NoteArchive(ctx context.Context, address string, id lineage.ID) error {
	return s.proposeClaim(ctx,
		&fsm.Request{Archive: &lineage.Archive{Place: lineage.PlaceOf(address), ID: id}})
}

// claim claims a term with a new id.
func (s *Source) claim(ctx context.Context, c lineage.Claim) error {
	_, _ = rand.Read(c.ID[:])
	return s.proposeClaim(ctx, &fsm.Request{Claim: &c})
}

func (s *Source) proposeClaim(ctx context.Context, req *fsm.Request) error {
	_, err := s.o.Pipeline.Propose(ctx, req)
	return err
}

// BeginIncarnation ends the history that others may continue, if there are claims of it. It is
// called before the membership is changed by force.
func (s *Source) BeginIncarnation(ctx context.Context) error {
	if s.lineage.Load().Newest() == (lineage.Mark{}) {
		return nil
	}
	return s.claim(ctx, lineage.Claim{Term: s.o.Pipeline.LeadTerm(), Restart: true})
}

// Position returns the position that the newest commit of the store left, and the newest revision
// then.
func (s *Source) Position() (history.Applied, int64) {
	for {
		h := s.o.Current.Load()
		view := h.Log.View()
		// A snapshot that was installed may end with a revision whose record was compacted.
		revision := max(view.Last(), 1)
		if compact := h.Store.CompactRevision(); compact <= revision ||
			view.Applied() == h.Log.View().Applied() {
			return view.Applied(), max(revision, compact)
		}
	}
}

// Store returns the present store. A snapshot may replace it.
func (s *Source) Store() *mvcc.Store { return s.o.Current.Load().Store }

// Members returns the membership as of the applied position.
func (s *Source) Members() *cluster.State { return s.o.Pipeline.Membership() }

// FirstIndex returns the index of the first entry in the log.
func (s *Source) FirstIndex() uint64 {
	first, _ := s.o.RaftLog.FirstIndex()
	return first
}

// Entries returns entries from first on and at most up to last, at least one and as many as encode
// to at most maxBytes. The caller must not change them. Errors: raft.ErrCompacted below FirstIndex,
// and from the disk. Only entries at or below an index that Position returned are final.
func (s *Source) Entries(first, last, maxBytes uint64) ([]*raftpb.Entry, error) {
	return s.o.RaftLog.Entries(first, last+1, maxBytes)
}
