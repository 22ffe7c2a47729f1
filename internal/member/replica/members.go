package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/member/raftnode"
	"vigil/internal/state/cluster"
	"vigil/internal/state/fsm"
)

// ErrRemoved says that this member was removed from its cluster.
var ErrRemoved = errors.New("the member was removed from its cluster; to join again it needs an empty data directory and a new member add")

// settled is how long another member must have been connected to count as healthy.
const settled = 5 * time.Second

// Removed is closed when the member has applied its own removal. It should be stopped soon: it hears of
// nothing any more.
func (r *Replica) Removed() <-chan struct{} { return r.removed }

// NoteRemoved says that other members told of this one's removal, which it may never apply: they do not
// send it anything any more.
func (r *Replica) NoteRemoved() {
	r.toldOnce.Do(func() { close(r.told) })
}

// Membership returns the membership as of the last entry applied here.
func (r *Replica) Membership() *cluster.State { return r.members.Load() }

// membersChanged tells the parts that need to know. It is called by the apply goroutine.
func (r *Replica) membersChanged(index uint64) {
	m := r.members.Load()
	if n := r.cfg.Peers; n != nil {
		n.SetMembers(index, m)
	}
	if m.Removed(r.memberID) {
		select {
		case <-r.removed:
		default:
			close(r.removed)
		}
	}
}

// connectedTo reports whether messages could be sent to a member ever since a time.
func (r *Replica) connectedTo(id uint64, since time.Time) bool {
	if r.cfg.Peers == nil {
		return true // nobody here knows
	}
	t := r.cfg.Peers.ConnectedSince(id)
	return !t.IsZero() && t.Before(since)
}

// connected counts the members, this one among them, that were connected ever since a time.
func (r *Replica) connected(members []cluster.Member, since time.Time) (n int) {
	for _, m := range members {
		if m.ID == r.memberID || r.connectedTo(m.ID, since) {
			n++
		}
	}
	return n
}

// AddMember adds a member that is reached at peer URLs, a learner if asked for, and returns it with all
// members. Errors: kv.ErrMemberExists, kv.ErrPeerURLExists, kv.ErrTooManyLearners, kv.ErrNotEnoughStarted,
// kv.ErrUnhealthy, and as Put.
func (r *Replica) AddMember(ctx context.Context, peerURLs []string, learner bool) (cluster.Member, []cluster.Member, error) {
	m := cluster.Member{PeerURLs: slices.Sorted(slices.Values(peerURLs)), Learner: learner}
	members := r.members.Load()
	for added := time.Now().Unix(); ; added++ {
		// One that was added and removed within a second had the id that this one would get.
		if m.ID = cluster.MemberID(m.PeerURLs, "", added); m.ID != 0 && !members.Removed(m.ID) {
			break
		}
	}
	change := r.limited(cluster.Change{Op: cluster.Add, Member: m})
	if err := r.refuseEarly(change); err != nil {
		return m, nil, err
	}
	if voters := voters(members); !r.cfg.LaxReconfig && len(voters) > 1 && r.connected(voters, time.Now().Add(-settled)) < (len(voters)+1)/2+1 {
		// The new member counts as one that is not there.
		return m, nil, r.refused("add", m.ID, kv.ErrUnhealthy)
	}
	all, err := r.reconfigure(ctx, change)
	return m, all, err
}

// RemoveMember removes a member and returns the others. Errors: kv.ErrMemberNotFound,
// kv.ErrNotEnoughStarted, kv.ErrUnhealthy, and as Put.
func (r *Replica) RemoveMember(ctx context.Context, id uint64) ([]cluster.Member, error) {
	members := r.members.Load()
	m, known := members.Member(id)
	change := r.limited(cluster.Change{Op: cluster.Remove, Member: cluster.Member{ID: id}})
	if err := r.refuseEarly(change); err != nil {
		return nil, err
	}
	if !r.cfg.LaxReconfig && !(known && m.Learner) {
		voters := voters(members)
		// One that is not connected is none of the quorum that is there.
		away := id != r.memberID && r.cfg.Peers != nil && r.cfg.Peers.ConnectedSince(id).IsZero()
		if !away && r.connected(voters, time.Now().Add(-settled))-1 < 1+(len(voters)-1)/2 {
			return nil, r.refused("remove", id, kv.ErrUnhealthy)
		}
	}
	if lead := r.node.Status().Lead; known && lead == id {
		// A leader that is removed leaves the others to wait for an election.
		if id == r.memberID {
			r.HandOver(ctx)
		} else if self, _ := members.Member(r.memberID); !self.Learner {
			r.takeOver(ctx)
		}
	}
	return r.reconfigure(ctx, change)
}

// UpdateMember replaces the peer URLs of a member and returns all members. Errors: kv.ErrMemberNotFound,
// kv.ErrPeerURLExists, and as Put.
func (r *Replica) UpdateMember(ctx context.Context, id uint64, peerURLs []string) ([]cluster.Member, error) {
	return r.reconfigure(ctx, cluster.Change{Op: cluster.Update, Member: cluster.Member{ID: id, PeerURLs: slices.Sorted(slices.Values(peerURLs))}})
}

// PromoteMember makes a voter of a learner that is in sync, and returns all members. Only the leader
// knows that: others return kv.ErrNotLeader. Other errors: kv.ErrMemberNotFound, kv.ErrNotLearner,
// kv.ErrLearnerNotReady, kv.ErrNotEnoughStarted, and as Put.
func (r *Replica) PromoteMember(ctx context.Context, id uint64) ([]cluster.Member, error) {
	progress, err := r.node.Progress()
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
	if m, ok := r.members.Load().Member(id); ok && !m.Learner {
		return nil, kv.ErrNotLearner // however far behind it is
	}
	// In sync is who has nine tenths of the leader's log.
	if own := progress[r.memberID].Match; float64(p.Match) < 0.9*float64(own) {
		r.cfg.Logger.Warn("rejecting promote learner: learner is not ready", hexID("learner-id", id),
			slog.Uint64("learner-match", p.Match), slog.Uint64("leader-match", own))
		return nil, kv.ErrLearnerNotReady
	}
	change := r.limited(cluster.Change{Op: cluster.Promote, Member: cluster.Member{ID: id}})
	if err := r.refuseEarly(change); err != nil {
		return nil, err
	}
	return r.reconfigure(ctx, change)
}

// limited returns a change with the limits of this member, which hold when it is applied.
func (r *Replica) limited(c cluster.Change) cluster.Change {
	c.Strict = !r.cfg.LaxReconfig
	if c.Op == cluster.Add && c.Member.Learner {
		c.MaxLearners = uint32(r.cfg.MaxLearners)
	}
	return c
}

// refuseEarly spares the log a change that its limits forbid as far as this member knows. What else is wrong
// with it is found out when it is applied: the membership here may be old.
func (r *Replica) refuseEarly(c cluster.Change) error {
	members := r.members.Load()
	if c.Strict && !members.EnoughNamed(c) {
		return r.refused(opNames[c.Op], c.Member.ID, kv.ErrNotEnoughStarted)
	}
	if _, _, err := members.Change(c); errors.Is(err, cluster.ErrTooManyLearners) {
		return kv.ErrTooManyLearners
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

func (r *Replica) refused(what string, id uint64, err error) error {
	r.cfg.Logger.Warn("rejecting member "+what+" request", hexID("local-member-id", r.memberID), hexID("requested-member-id", id), slog.Any("error", err))
	return err
}

// membershipError gives a refusal of the membership the name it has for clients.
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

// reconfigure proposes a change of the membership and waits for its outcome. This member has one under
// way at a time; if two members propose one each, raft may drop one, which then times out.
func (r *Replica) reconfigure(ctx context.Context, c cluster.Change) ([]cluster.Member, error) {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, r.cfg.RequestTimeout)
	defer cancel()
	select {
	case r.confs <- struct{}{}:
		defer func() { <-r.confs }()
	case <-ctx.Done():
		return nil, r.ctxError(ctx.Err(), begun)
	case <-r.stopping:
		return nil, kv.ErrStopped
	}
	for {
		res, err := r.proposeChange(ctx, c)
		switch {
		case errors.Is(err, raftnode.ErrStopped):
			return nil, kv.ErrStopped
		case errors.Is(err, raftnode.ErrNotNow):
			// There will be a leader again.
			select {
			case <-time.After(r.cfg.TickInterval):
			case <-ctx.Done():
			}
		case err != nil:
			return nil, r.ctxError(err, begun)
		case errors.Is(res.Err, errLost):
		case res.Err != nil:
			return nil, membershipError(res.Err)
		default:
			r.cfg.Logger.Info("applied a configuration change through raft", hexID("local-member-id", r.memberID),
				slog.String("raft-conf-change", opNames[c.Op]), hexID("raft-conf-change-node-id", c.Member.ID))
			// One that was told of its own removal has not applied it.
			return slices.DeleteFunc(slices.Clone(r.members.Load().Members()), func(m cluster.Member) bool {
				return c.Op == cluster.Remove && m.ID == c.Member.ID
			}), nil
		}
		if err := ctx.Err(); err != nil {
			return nil, r.ctxError(err, begun)
		}
	}
}

var opNames = map[cluster.ChangeOp]string{cluster.Add: "add", cluster.Remove: "remove", cluster.Update: "update", cluster.Promote: "promote"}

// proposeChange proposes a change once.
func (r *Replica) proposeChange(ctx context.Context, c cluster.Change) (fsm.Result, error) {
	w := &waiter{done: make(chan struct{}, 1)}
	h, err := r.queue.register(w)
	if err != nil {
		return fsm.Result{}, err
	}
	var cc *raftpb.ConfChangeV2
	if cc, err = fsm.ConfChange(h, c); err == nil {
		var term uint64
		if term, err = r.node.ProposeConfChange(cc); err == nil {
			r.queue.proposed(h.Sequence, term)
		}
	}
	if err != nil {
		r.queue.claim(h.Sequence)
		return fsm.Result{}, err
	}
	var told <-chan struct{}
	if c.Op == cluster.Remove && c.Member.ID == r.memberID {
		told = r.told
	}
	select {
	case <-w.done:
		return w.take(), nil
	case <-told:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if !w.leave() {
		<-w.done
		return w.take(), nil
	}
	r.queue.claim(h.Sequence)
	return fsm.Result{}, err
}

// MoveLeader hands leadership over to a voter and waits until that one leads. Errors: kv.ErrNotLeader,
// kv.ErrBadTransferee, kv.ErrTransferTimeout, kv.ErrStopped.
func (r *Replica) MoveLeader(ctx context.Context, to uint64) error {
	if r.node.Status().Lead != r.memberID {
		return kv.ErrNotLeader
	}
	if m, ok := r.members.Load().Member(to); !ok || m.Learner {
		return kv.ErrBadTransferee
	}
	if to == r.memberID {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.RequestTimeout)
	defer cancel()
	return r.handOver(ctx, to)
}

// HandOver hands leadership over to whichever voter is best, before this member stops. It returns at
// once where there is nothing to hand over.
func (r *Replica) HandOver(ctx context.Context) {
	if r.node.Status().Lead != r.memberID {
		return
	}
	members := r.members.Load()
	if len(voters(members)) < 2 || members.Removed(r.memberID) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(r.cfg.ElectionTicks)*r.cfg.TickInterval)
	defer cancel()
	if err := r.handOver(ctx, 0); err != nil {
		r.cfg.Logger.Warn("leadership was not handed over", slog.Any("error", err))
	}
}

// pollLeader is how often a transfer of leadership looks whether it is over. It takes a round trip and
// a write to disk.
const pollLeader = 2 * time.Millisecond

func (r *Replica) handOver(ctx context.Context, to uint64) error {
	begun := time.Now()
	chosen, err := r.node.TransferLeader(to)
	switch {
	case err != nil:
		return kv.ErrStopped
	case chosen == 0:
		if r.node.Status().Lead != r.memberID {
			return kv.ErrNotLeader
		}
		return kv.ErrUnhealthy
	}
	r.cfg.Logger.Info("leadership transfer starting", hexID("local-member-id", r.memberID), hexID("transferee-member-id", chosen))
	if err := r.awaitLeader(ctx, chosen); err != nil {
		return err
	}
	r.cfg.Logger.Info("leadership transfer finished", hexID("local-member-id", r.memberID), hexID("transferee-member-id", chosen),
		slog.Duration("took", time.Since(begun)))
	return nil
}

// takeOverAttempts is how often a leader is asked to hand over. It gives up an attempt after an election
// timeout, if this member was not up to date in time.
const takeOverAttempts = 3

// takeOver has the leader hand over to this member, if that can be done soon.
func (r *Replica) takeOver(ctx context.Context) {
	var err error
	for range takeOverAttempts {
		attempt, cancel := context.WithTimeout(ctx, time.Duration(r.cfg.ElectionTicks)*r.cfg.TickInterval)
		if err = r.node.TakeLeadership(); err == nil {
			err = r.awaitLeader(attempt, r.memberID)
		}
		cancel()
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		r.cfg.Logger.Warn("leadership was not taken over", slog.Any("error", err))
	}
}

// awaitLeader waits until a member leads, as far as this one knows.
func (r *Replica) awaitLeader(ctx context.Context, id uint64) error {
	tick := time.NewTicker(pollLeader)
	defer tick.Stop()
	for r.node.Status().Lead != id {
		select {
		case <-ctx.Done():
			return kv.ErrTransferTimeout
		case <-r.node.Failed():
			return kv.ErrStopped
		case <-tick.C:
		}
	}
	return nil
}

func hexID(key string, id uint64) slog.Attr { return slog.String(key, fmt.Sprintf("%x", id)) }
