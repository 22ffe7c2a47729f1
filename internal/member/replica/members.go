package replica

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/member/raftnode"
	"vigil/internal/member/replica/proposal"
	"vigil/internal/state/auth"
	"vigil/internal/state/cluster"
	"vigil/internal/state/fsm"
)

// ErrRemoved reports that this member was removed from its cluster.
var ErrRemoved = errors.New("the member was removed from its cluster; to join again it needs an empty data directory and a new member add")

// healthyAfter is how long another member must have been connected to count as healthy.
const healthyAfter = 5 * time.Second

// Members serves and changes the membership of the cluster.
type Members struct {
	r *Replica
	// state is the membership as of the applied position. Stored by the apply goroutine.
	state      atomic.Pointer[cluster.State]
	forcing    atomic.Bool   // this member is becoming the only one, see force.go
	removed    chan struct{} // closed when this member has applied its own removal
	reported   chan struct{} // closed when others report the removal of this member
	reportOnce sync.Once
	changing   chan struct{} // has room for one: a change of the membership is under way
}

func newMembers(r *Replica) *Members {
	return &Members{r: r, removed: make(chan struct{}), reported: make(chan struct{}), changing: make(chan struct{}, 1)}
}

// Removed is closed when the member has applied its own removal. It should be stopped soon: other members no longer send it
// anything.
func (ms *Members) Removed() <-chan struct{} { return ms.removed }

// NoteRemoved notes that another member reports the removal of this one, and reports whether that settles it. This member may never
// apply it: they send it nothing any more. The word of a learner does not settle it while this member leads: the learner knows it from
// this member, and the voters that are left may still need this one to find out.
func (ms *Members) NoteRemoved(by uint64) bool {
	if m, ok := ms.state.Load().Member(by); ok && m.Learner && ms.r.node.LeadTerm() != 0 {
		return false
	}
	ms.reportOnce.Do(func() { close(ms.reported) })
	return true
}

// Leave rejects the requests of clients and ends those that wait, because this member was removed: they get no outcome here any more. It
// goes on with its part in raft, which the others may need.
func (ms *Members) Leave() {
	ms.r.refuse()
	ms.r.queue.Abandon(kv.ErrStopped)
}

// List returns the members, sorted by id. The result must not be modified. Errors: as Range.
func (ms *Members) List(ctx context.Context, linearizable bool) ([]cluster.Member, error) {
	if _, err := ms.r.readable(ctx, !linearizable); err != nil {
		return nil, err
	}
	return ms.state.Load().Members(), nil
}

// Alone reports whether the cluster has no other member.
func (ms *Members) Alone() bool { return len(ms.state.Load().Members()) == 1 }

// follow takes over the membership of a commit, and gives a new one to the parts that use it. The apply goroutine calls it.
func (ms *Members) follow(m *cluster.State, index uint64) {
	if ms.state.Swap(m) == m {
		return
	}
	if n := ms.r.network; n != nil {
		n.SetMembers(index, m)
	}
	if m.Removed(ms.r.memberID) {
		select {
		case <-ms.removed:
		default:
			close(ms.removed)
		}
	}
}

// connectedTo reports whether messages could be sent to a member ever since a time.
func (ms *Members) connectedTo(id uint64, since time.Time) bool {
	if ms.r.network == nil {
		return true // there are no other members
	}
	t := ms.r.network.ConnectedSince(id)
	return !t.IsZero() && t.Before(since)
}

// connected counts the members that were connected ever since a time, including this one.
func (ms *Members) connected(members []cluster.Member, since time.Time) (n int) {
	for _, m := range members {
		if m.ID == ms.r.memberID || ms.connectedTo(m.ID, since) {
			n++
		}
	}
	return n
}

// AddMember adds a member that is reached at peer URLs, a learner if asked for, and returns it with all
// members. Errors of this and of all changes of the membership: those of access.Control.Admin, and those of a write. Others: kv.ErrMemberExists, kv.ErrPeerURLExists, kv.ErrTooManyLearners, kv.ErrNotEnoughStarted,
// kv.ErrUnhealthy, and as Put.
func (ms *Members) AddMember(ctx context.Context, peerURLs []string, learner bool) (cluster.Member, []cluster.Member, error) {
	m := cluster.Member{PeerURLs: slices.Sorted(slices.Values(peerURLs)), Learner: learner}
	who, err := ms.r.Access.Admin(ctx)
	if err != nil {
		return m, nil, err
	}
	members := ms.state.Load()
	for added := time.Now().Unix(); ; added++ {
		// A member that was added and removed within a second had the same id.
		if m.ID = cluster.MemberID(m.PeerURLs, "", added); m.ID != 0 && !members.Removed(m.ID) {
			break
		}
	}
	change := ms.limited(cluster.Change{Op: cluster.Add, Member: m})
	if err := ms.precheck(change); err != nil {
		return m, nil, err
	}
	if voters := voters(members); !ms.r.cfg.LaxReconfig && len(voters) > 1 && ms.connected(voters, time.Now().Add(-healthyAfter)) < (len(voters)+1)/2+1 {
		// The new member counts as not connected.
		return m, nil, ms.logRejected("add", m.ID, kv.ErrUnhealthy)
	}
	all, err := ms.reconfigure(ctx, change, who)
	return m, all, err
}

// RemoveMember removes a member and returns the others. Errors: kv.ErrMemberNotFound,
// kv.ErrNotEnoughStarted, kv.ErrUnhealthy, and as Put.
func (ms *Members) RemoveMember(ctx context.Context, id uint64) ([]cluster.Member, error) {
	who, err := ms.r.Access.Admin(ctx)
	if err != nil {
		return nil, err
	}
	members := ms.state.Load()
	m, known := members.Member(id)
	change := ms.limited(cluster.Change{Op: cluster.Remove, Member: cluster.Member{ID: id}})
	if err := ms.precheck(change); err != nil {
		return nil, err
	}
	if !ms.r.cfg.LaxReconfig && !(known && m.Learner) {
		voters := voters(members)
		// A member that is not connected is not part of the present quorum.
		away := id != ms.r.memberID && ms.r.network != nil && ms.r.network.ConnectedSince(id).IsZero()
		if !away && ms.connected(voters, time.Now().Add(-healthyAfter))-1 < 1+(len(voters)-1)/2 {
			return nil, ms.logRejected("remove", id, kv.ErrUnhealthy)
		}
	}
	if lead := ms.r.node.Status().Lead; known && lead == id {
		// After the removal of the leader the others would wait for an election.
		if id == ms.r.memberID {
			ms.r.Leadership.HandOver(ctx)
		} else if self, _ := members.Member(ms.r.memberID); !self.Learner {
			ms.r.Leadership.takeOver(ctx)
		}
	}
	return ms.reconfigure(ctx, change, who)
}

// UpdateMember replaces the peer URLs of a member and returns all members. Errors: kv.ErrMemberNotFound,
// kv.ErrPeerURLExists, and as Put.
func (ms *Members) UpdateMember(ctx context.Context, id uint64, peerURLs []string) ([]cluster.Member, error) {
	who, err := ms.r.Access.Admin(ctx)
	if err != nil {
		return nil, err
	}
	return ms.reconfigure(ctx, cluster.Change{Op: cluster.Update, Member: cluster.Member{ID: id, PeerURLs: slices.Sorted(slices.Values(peerURLs))}}, who)
}

// PromoteMember makes a voter of a learner that is in sync, and returns all members. Only the leader
// knows that: others return kv.ErrNotLeader. Other errors: kv.ErrMemberNotFound, kv.ErrNotLearner,
// kv.ErrLearnerNotReady, kv.ErrNotEnoughStarted, and as Put.
func (ms *Members) PromoteMember(ctx context.Context, id uint64) ([]cluster.Member, error) {
	who, err := ms.r.Access.Admin(ctx)
	if err != nil {
		return nil, err
	}
	return ms.promote(ctx, id, who)
}

// ServePromotion answers another member, whose client wants a learner promoted (calls.Promote): PromoteMember in the name of that
// client. The payload is made by EncodePromotion.
func (ms *Members) ServePromotion(ctx context.Context, payload []byte) error {
	id, who, err := decodePromotion(payload)
	if err != nil {
		return err
	}
	_, err = ms.promote(ctx, id, who)
	return err
}

// EncodePromotion returns the payload of a call for ServePromotion in the name of the caller: the id of the learner as u64, little
// endian, and the identity.
func (ms *Members) EncodePromotion(ctx context.Context, id uint64) ([]byte, error) {
	who, err := ms.r.Access.Admin(ctx)
	if err != nil {
		return nil, err
	}
	return fsm.AppendIdentity(binary.LittleEndian.AppendUint64(nil, id), who), nil
}

func decodePromotion(payload []byte) (id uint64, who auth.Identity, err error) {
	if len(payload) < 8 {
		return 0, who, fmt.Errorf("replica: malformed call for a promotion of %d bytes", len(payload))
	}
	id = binary.LittleEndian.Uint64(payload)
	if who, payload, err = fsm.ParseIdentity(payload[8:]); err == nil && len(payload) > 0 {
		err = fmt.Errorf("replica: a call for a promotion has %d bytes too many", len(payload))
	}
	return id, who, err
}

func (ms *Members) promote(ctx context.Context, id uint64, who auth.Identity) ([]cluster.Member, error) {
	progress, err := ms.r.node.Progress()
	if err != nil {
		return nil, kv.ErrStopped
	}
	if progress == nil {
		return nil, kv.ErrNotLeader
	}
	p, ok := progress[id]
	if !ok {
		return nil, kv.ErrMemberNotFound
	}
	if m, ok := ms.state.Load().Member(id); ok && !m.Learner {
		return nil, kv.ErrNotLearner // however much it lags
	}
	// In sync means nine tenths of the leader's log.
	if own := progress[ms.r.memberID].Match; float64(p.Match) < 0.9*float64(own) {
		ms.r.cfg.Logger.Warn("rejecting promote learner: learner is not ready", hexID("learner-id", id),
			slog.Uint64("learner-match", p.Match), slog.Uint64("leader-match", own))
		return nil, kv.ErrLearnerNotReady
	}
	change := ms.limited(cluster.Change{Op: cluster.Promote, Member: cluster.Member{ID: id}})
	if err := ms.precheck(change); err != nil {
		return nil, err
	}
	return ms.reconfigure(ctx, change, who)
}

// limited returns a change with the limits of this member, which apply checks again.
func (ms *Members) limited(c cluster.Change) cluster.Change {
	c.Strict = !ms.r.cfg.LaxReconfig
	if c.Op == cluster.Add && c.Member.Learner {
		c.MaxLearners = uint32(ms.r.cfg.MaxLearners)
	}
	return c
}

// precheck rejects a change that its limits forbid as far as this member knows, so that it does not get into the log. Apply
// finds other mistakes: the membership here may be old.
func (ms *Members) precheck(c cluster.Change) error {
	members := ms.state.Load()
	if c.Op == cluster.Add && c.Member.Learner && ms.r.cfg.MaxLearners < 0 {
		return kv.ErrTooManyLearners
	}
	if c.Strict && !members.EnoughNamed(c) {
		return ms.logRejected(opNames[c.Op], c.Member.ID, kv.ErrNotEnoughStarted)
	}
	if _, _, err := members.Change(c); errors.Is(err, cluster.ErrTooManyLearners) || errors.Is(err, cluster.ErrTooManyVoters) {
		return membershipError(err)
	}
	return nil
}

func voters(s *cluster.State) (out []cluster.Member) {
	for _, m := range s.Members() {
		if !m.Learner {
			out = append(out, m)
		}
	}
	return out
}

func (ms *Members) logRejected(what string, id uint64, err error) error {
	ms.r.cfg.Logger.Warn("rejecting member "+what+" request", hexID("local-member-id", ms.r.memberID), hexID("requested-member-id", id), slog.Any("error", err))
	return err
}

// membershipError translates an error of package cluster into the one that clients get.
func membershipError(err error) error {
	for _, t := range [...]struct{ from, to error }{
		{cluster.ErrIDRemoved, kv.ErrMemberNotFound},
		{cluster.ErrIDNotFound, kv.ErrMemberNotFound},
		{cluster.ErrIDExists, kv.ErrMemberExists},
		{cluster.ErrPeerURLExists, kv.ErrPeerURLExists},
		{cluster.ErrNotLearner, kv.ErrNotLearner},
		{cluster.ErrTooManyLearners, kv.ErrTooManyLearners},
		{cluster.ErrNotEnoughStarted, kv.ErrNotEnoughStarted},
		{cluster.ErrLastVoter, kv.ErrNotEnoughStarted},
	} {
		if errors.Is(err, t.from) {
			return t.to
		}
	}
	return err
}

// reconfigure proposes a change of the membership in the name of who and waits for its result. This member has one change under way at a time;
// if two members propose one each, raft may drop one, which then times out.
func (ms *Members) reconfigure(ctx context.Context, c cluster.Change, who auth.Identity) ([]cluster.Member, error) {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, ms.r.cfg.RequestTimeout)
	defer cancel()
	select {
	case ms.changing <- struct{}{}:
		defer func() { <-ms.changing }()
	case <-ctx.Done():
		return nil, ms.r.ctxError(ctx.Err(), begun)
	case <-ms.r.stopping:
		return nil, kv.ErrStopped
	}
	for {
		res, err := ms.proposeChange(ctx, c, who)
		switch {
		case errors.Is(err, raftnode.ErrStopped):
			return nil, kv.ErrStopped
		case errors.Is(err, raftnode.ErrNotNow):
			// Wait for a leader.
			select {
			case <-time.After(ms.r.cfg.TickInterval):
			case <-ctx.Done():
			}
		case err != nil:
			return nil, ms.r.ctxError(err, begun)
		case errors.Is(res.Err, proposal.ErrLost):
		case res.Err != nil:
			return nil, membershipError(res.Err)
		default:
			ms.r.cfg.Logger.Info("applied a configuration change through raft", hexID("local-member-id", ms.r.memberID),
				slog.String("raft-conf-change", opNames[c.Op]), hexID("raft-conf-change-node-id", c.Member.ID))
			// A member that has its removal from a report has not applied it.
			return slices.DeleteFunc(slices.Clone(ms.state.Load().Members()), func(m cluster.Member) bool {
				return c.Op == cluster.Remove && m.ID == c.Member.ID
			}), nil
		}
		if err := ctx.Err(); err != nil {
			return nil, ms.r.ctxError(err, begun)
		}
	}
}

var opNames = map[cluster.ChangeOp]string{cluster.Add: "add", cluster.Remove: "remove", cluster.Update: "update", cluster.Promote: "promote"}

// proposeChange proposes a change once.
func (ms *Members) proposeChange(ctx context.Context, c cluster.Change, who auth.Identity) (fsm.Result, error) {
	change, err := ms.r.queue.Register()
	if err != nil {
		return fsm.Result{}, err
	}
	var cc *raftpb.ConfChangeV2
	if cc, err = fsm.ConfChange(change.Header, c, who); err == nil {
		var term uint64
		if term, err = ms.r.node.ProposeConfChange(cc); err == nil {
			change.NoteProposed(term)
		}
	}
	if err != nil {
		change.Withdraw()
		return fsm.Result{}, err
	}
	if c.Op != cluster.Remove || c.Member.ID != ms.r.memberID {
		return change.Wait(ctx, nil)
	}
	led := ms.r.node.LeadTerm() != 0
	res, err := change.Wait(ctx, ms.reported)
	if err == nil && res.Err == nil && (led || ms.r.node.LeadTerm() != 0) {
		// This member is the one that found the removal committed. The others must know it before they can do without this member.
		select {
		case <-ms.reported:
		case <-ctx.Done():
			err = ctx.Err()
		case <-ms.r.stopping:
			err = raftnode.ErrStopped
		}
	}
	return res, err
}

func hexID(key string, id uint64) slog.Attr { return slog.String(key, fmt.Sprintf("%x", id)) }

// A member that is to be the only one starts raft with itself as the only voter, whatever its store says,
// so that it can commit everything its log holds: some of it may have been acknowledged, and none of it is
// known to be lost. Configuration changes among that change the membership and not raft. Then it promotes
// itself if it had no vote, and removes the others, by ordinary entries: with them the store has the new
// configuration, and later starts need no force. Before that it begins a new incarnation: the others may go on.

// confState is raft's configuration to begin with.
func (ms *Members) confState(stored *raftpb.ConfState) *raftpb.ConfState {
	if !ms.r.cfg.ForceNewCluster {
		return stored
	}
	ms.forcing.Store(true)
	return &raftpb.ConfState{Voters: []uint64{ms.r.memberID}}
}

// nothingFor is a configuration change that changes nothing.
func nothingFor(member uint64) *raftpb.ConfChangeV2 {
	return &raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{{
		Type: raftpb.ConfChangeUpdateNode.Enum(), NodeId: new(member)}}}
}

// beAlone makes the membership what raft's configuration was forced to be.
func (ms *Members) beAlone(ctx context.Context) error {
	if _, ok := ms.nextForced(); ok {
		if err := ms.r.beginIncarnation(ctx); err != nil {
			return err
		}
	}
	for {
		next, ok := ms.nextForced()
		if !ok {
			ms.forcing.Store(false)
			return nil
		}
		who, err := ms.r.Access.Identity(kv.AsMember(ctx))
		if err != nil {
			return err
		}
		if _, err := ms.reconfigure(ctx, next, who); err != nil {
			return err
		}
		ms.r.cfg.Logger.Warn("forced a change of the membership", slog.String("change", opNames[next.Op]), hexID("member-id", next.Member.ID))
	}
}

// nextForced returns a change that is missing. The promotion comes first: the last voter cannot be removed.
func (ms *Members) nextForced() (cluster.Change, bool) {
	members := ms.state.Load()
	if self, ok := members.Member(ms.r.memberID); ok && self.Learner {
		return cluster.Change{Op: cluster.Promote, Member: cluster.Member{ID: ms.r.memberID}}, true
	}
	for _, m := range members.Members() {
		if m.ID != ms.r.memberID {
			return cluster.Change{Op: cluster.Remove, Member: cluster.Member{ID: m.ID}}, true
		}
	}
	return cluster.Change{}, false
}
