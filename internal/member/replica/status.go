package replica

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/raftnode"
	"vigil/internal/member/replica/access"
	"vigil/internal/member/replica/handle"
	"vigil/internal/member/replica/timing"
	"vigil/internal/member/replica/transfer"
	"vigil/internal/state/auth"
	"vigil/internal/state/cluster"
	"vigil/internal/state/lease"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
	"vigil/internal/store/wal"
	"vigil/internal/store/watch"
)

// Status is the status of a member.
type Status struct {
	ClusterID, MemberID uint64
	// Leader is the id of the leader this member knows, 0 for none.
	Leader uint64
	Term   uint64
	// RaftIndex is the newest index known to be committed, Applied the newest index whose outcome
	// can be read.
	RaftIndex, Applied uint64
	// Learner is set while the member has no vote.
	Learner bool
	// Size is the store's size on disk, InUse the part of it that is not known to be garbage, and
	// LogSize the size of the raft log, in bytes.
	Size, InUse, LogSize int64
	Revision             int64
	CompactRevision      int64
	// DiskFull is set while puts are rejected because the disk is full.
	DiskFull bool
	// ApplyWaits is since when committed entries wait for disk space, LogWaits since when the raft
	// log does. They are the zero time if nothing waits.
	ApplyWaits, LogWaits time.Time
	// Away names the files of the member that are not in their places, and is empty if all are. The
	// member accepts no writes while one is away.
	Away string
	// LeaderLost is when the last leader was lost, the zero time if one is known, or never was.
	LeaderLost time.Time
}

// Status returns the present status. It reads the values in the reverse of the order in which they
// advance, so that none exceeds its limit.
func (r *Replica) Status() Status {
	h, applied := r.current.Load(), r.applied.Load()
	st := r.node.Status()
	size, live := h.Log.Size()
	self, _ := r.roster.State().Member(r.memberID)
	compact := h.Store.CompactRevision()
	applyWaits, logWaits := r.stall.SinceNoSpace(), time.Time{}
	if since, err := r.raftLog.Starved(); errors.Is(err, kv.ErrNoSpace) {
		logWaits = since
	}
	return Status{
		ClusterID:       r.clusterID,
		MemberID:        r.memberID,
		Leader:          st.Lead,
		Term:            st.Term,
		RaftIndex:       st.Committed,
		Applied:         applied,
		Learner:         self.Learner,
		Size:            size,
		InUse:           live,
		LogSize:         r.raftLog.Bytes(),
		Revision:        h.Store.Revision(),
		CompactRevision: compact,
		DiskFull:        r.space.DiskFull() || !applyWaits.IsZero() || !logWaits.IsZero(),
		ApplyWaits:      applyWaits,
		LogWaits:        logWaits,
		Away:            r.custody.Away(),
		LeaderLost:      st.LeadLost,
	}
}

// committed returns the newest index that is known to be committed.
func (r *Replica) committed() uint64 { return r.node.Status().Committed }

// Applied returns the position whose results can be read.
func (r *Replica) Applied() uint64 { return r.applied.Load() }

// LeadTerm returns the term in which this member leads, 0 if it does not lead.
func (r *Replica) LeadTerm() uint64 { return r.node.LeadTerm() }

// Forsaken reports whether the cluster has had no leader for so long that none is about to be
// elected, as far as this member knows, and the member has applied all that it knows to be
// committed. A member that was suspended in that time does not know.
func (r *Replica) Forsaken() bool {
	return r.node.Orphaned() && r.applied.Load() >= r.node.Status().Committed
}

// Header returns the header of an answer that is given now. It does not allocate.
func (r *Replica) Header() kv.Header {
	return kv.Header{
		ClusterID: r.clusterID,
		MemberID:  r.memberID,
		Revision:  r.current.Load().Store.Revision(),
		Term:      r.node.Status().Term,
	}
}

// Membership returns the membership as of the applied position.
func (r *Replica) Membership() *cluster.State { return r.roster.State() }

// AuthState returns users and roles as of the applied position.
func (r *Replica) AuthState() *auth.State { return r.Access.AuthState() }

// Untrusted reports whether this member must not serve because its data differ from the data of the
// others, and returns a channel that is closed when that changes.
func (r *Replica) Untrusted() (bool, <-chan struct{}) { return r.trust.Lost() }

// Hub returns the hub that serves watchers. It is closed by Stop.
func (r *Replica) Hub() *watch.Hub { return r.hub }

// proposals counts requests.
type proposals struct {
	applied atomic.Uint64
}

// Metrics are counters and sizes of a member's parts.
type Metrics struct {
	// Committed and Applied are positions of the log. Requests counts the requests that were
	// applied since the start, Pending the requests under way, Failed the requests without an
	// outcome.
	Committed, Applied, Requests, Pending, Failed uint64
	// AuthRevision is the revision of users and roles. Tokens counts the simple tokens.
	AuthRevision uint64
	Tokens       access.TokenStats
	// LeaderChanges counts how often a leader became known, LateHeartbeats how often this member,
	// leading, sent heartbeats too far apart.
	LeaderChanges, LateHeartbeats uint64
	// Elections counts the elections that this member has begun, by cause.
	Elections map[raftnode.Cause]uint64
	// Stalled and Relieved come from raftnode.Node.
	Stalled  bool
	Relieved uint64
	// Scrubbed are the bytes that the scrubber read, ScrubRounds how often it read everything;
	// Damaged counts the places on disk where it or a read met data that cannot be read, at most
	// damage.mostPlaces.
	Scrubbed, ScrubRounds, Damaged uint64
	// Comparisons counts how often this member, leading, has compared the data of all; Differences
	// how often it found some that differ.
	Comparisons, Differences uint64
	Sent                     transfer.SendStats
	Received                 transfer.ReceiveStats
	WAL                      wal.Metrics
	Store                    mvcc.Stats
	Counts                   mvcc.Counts
	Reclaim                  history.ReclaimStats
}

// Timings returns how long requests and their steps took.
func (r *Replica) Timings() timing.Snapshot { return r.timings.Snapshot() }

// Metrics returns the present figures.
func (r *Replica) Metrics() Metrics {
	st := r.node.Status()
	var scrubbed, rounds uint64
	if r.scrubber != nil {
		scrubbed, rounds = r.scrubber.Stats()
	}
	return Metrics{
		Committed:     st.Committed,
		Applied:       r.applied.Load(),
		Requests:      r.proposals.applied.Load(),
		Pending:       uint64(r.queue.Pending()),
		Failed:        r.queue.Failed(),
		AuthRevision:  r.Access.Revision(),
		Tokens:        r.Access.Tokens(),
		LeaderChanges: st.LeaderChanges, LateHeartbeats: st.LateHeartbeats,
		Elections:   r.node.Elections(),
		Stalled:     st.Stalled,
		Relieved:    st.Relieved,
		Scrubbed:    scrubbed,
		ScrubRounds: rounds,
		Damaged:     uint64(r.damage.Count()),
		Comparisons: r.audit.Stats().Rounds,
		Differences: r.audit.Stats().Differences,
		Sent:        r.sender.Stats(),
		Received:    r.receiver.Stats(),
		WAL:         r.raftLog.Metrics(),
		Store:       r.current.Load().Store.Stats(),
		Counts:      r.current.Load().Store.Counts(),
		Reclaim:     r.current.Load().Log.ReclaimStats(),
	}
}

// LeaseState returns the leases as of the applied position.
func (r *Replica) LeaseState() *lease.State { return r.current.Load().Leases }

// Store returns the present store. A snapshot may replace it.
func (r *Replica) Store() *mvcc.Store { return r.current.Load().Store }

// newestTime returns the time of the newest revision that is applied.
func (r *Replica) newestTime() int64 { return r.current.Load().Store.NewestTime() }

// ReadStore calls read with the present store, and again if a snapshot replaces the store during
// the read.
func (r *Replica) ReadStore(ctx context.Context, read func(*mvcc.Store) error) error {
	_, err := handle.Read(ctx, r.current,
		func(h *handle.Handle) (struct{}, error) { return struct{}{}, read(h.Store) })
	return err
}
