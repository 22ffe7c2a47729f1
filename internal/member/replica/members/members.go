// Package members serves and changes the membership of the cluster.
//
// A Roster is the membership as of the applied position. Members changes it: this member has one
// change under way at a time, and apply checks the limits of each change again.
package members

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

// healthyAfter is how long another member must have been connected to count as healthy.
const healthyAfter = 5 * time.Second

// Raft is the member's raft node.
type Raft interface {
	Status() raftnode.Status
	// LeadTerm returns the term in which this member leads, 0 if it does not lead.
	LeadTerm() uint64
	// Progress returns the progress of all members if this one leads, and nil otherwise.
	Progress() (map[uint64]raftnode.Progress, error)
	// ProposeConfChange proposes a change, and returns the term in which it did.
	ProposeConfChange(cc raftpb.ConfChangeI) (term uint64, err error)
}

// Queue gives proposed changes their results.
type Queue interface {
	Register() (*proposal.Change, error)
}

// Access identifies clients.
type Access interface {
	// Admin returns the identity of a caller that has the role root, and an error for others.
	// Identity returns the identity of any caller.
	Admin(context.Context) (auth.Identity, error)
	Identity(context.Context) (auth.Identity, error)
}

// Contacts are the connections to other members.
type Contacts interface {
	// CountConnected counts the members that were connected ever since a time, including this one.
	CountConnected(members []cluster.Member, since time.Time) int
	// Away reports whether messages cannot be sent to another member now.
	Away(id uint64) bool
	// WaitError returns the error of a wait that began at a time and that a context has ended.
	WaitError(err error, begun time.Time) error
}

// Leadership moves the leadership of the cluster.
type Leadership interface {
	// HandOver hands it over to another member, TakeOver to this one.
	HandOver(context.Context)
	TakeOver(context.Context)
}

// Reads tells when the state of the member may be read.
type Reads interface {
	// AwaitReadable waits until the state may be read: unless that is serializable, until the
	// member has applied everything that any member had applied at the time of the call.
	AwaitReadable(ctx context.Context, serializable bool) (waited time.Duration, err error)
}

// Options configure Members.
type Options struct {
	MemberID   uint64
	Roster     *Roster
	Raft       Raft
	Queue      Queue
	Access     Access
	Contacts   Contacts
	Leadership Leadership
	Reads      Reads
	// Stopping is closed when the member stops.
	Stopping <-chan struct{}
	// Forced: the member is becoming the only one of its cluster.
	Forced bool
	// Lax accepts changes that may cost the cluster its quorum. MaxLearners limits the learners.
	Lax         bool
	MaxLearners int
	// RequestTimeout limits how long a change waits for its result. TickInterval is the pause
	// before another attempt.
	RequestTimeout, TickInterval time.Duration
	Logger                       *slog.Logger
}

// Members serves and changes the membership of the cluster.
type Members struct {
	o          Options
	forcing    atomic.Bool   // this member is becoming the only one, see force.go
	reported   chan struct{} // closed when others report the removal of this member
	reportOnce sync.Once
	changing   chan struct{} // has room for one: a change of the membership is under way
}

// New returns the Members of a cluster.
func New(o Options) *Members {
	ms := &Members{o: o, reported: make(chan struct{}), changing: make(chan struct{}, 1)}
	ms.forcing.Store(o.Forced)
	return ms
}

// Removed is closed when the member has applied its own removal. It should be stopped soon: other
// members no longer send it anything.
func (ms *Members) Removed() <-chan struct{} { return ms.o.Roster.removed }

// NoteRemoved notes that another member reports the removal of this one, and reports whether that
// settles it. This member may never apply it: they send it nothing any more. The word of a learner
// does not settle it while this member leads: the learner knows it from this member, and the voters
// that are left may still need this one to find out.
func (ms *Members) NoteRemoved(by uint64) bool {
	if m, ok := ms.o.Roster.State().Member(by); ok && m.Learner && ms.o.Raft.LeadTerm() != 0 {
		return false
	}
	ms.reportOnce.Do(func() { close(ms.reported) })
	return true
}

// List returns the members, sorted by id. The result must not be modified. Errors: as Range.
func (ms *Members) List(ctx context.Context, linearizable bool) ([]cluster.Member, error) {
	if _, err := ms.o.Reads.AwaitReadable(ctx, !linearizable); err != nil {
		return nil, err
	}
	return ms.o.Roster.State().Members(), nil
}

// AddMember adds a member that is reached at peer URLs, a learner if asked for, and returns it with
// all members. Errors: from access.Control.Admin, as a write, and kv.ErrMemberExists,
// kv.ErrPeerURLExists, kv.ErrTooManyLearners, kv.ErrNotEnoughStarted, kv.ErrUnhealthy, and as Put.
func (ms *Members) AddMember(ctx context.Context, peerURLs []string, learner bool) (cluster.Member,
	[]cluster.Member, error) {
	m := cluster.Member{PeerURLs: slices.Sorted(slices.Values(peerURLs)), Learner: learner}
	who, err := ms.o.Access.Admin(ctx)
	if err != nil {
		return m, nil, err
	}
	members := ms.o.Roster.State()
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
	if voters := members.Voters(); !ms.o.Lax && len(voters) > 1 &&
		ms.o.Contacts.CountConnected(voters, time.Now().Add(-healthyAfter)) < (len(voters)+1)/2+1 {
		// The new member counts as not connected.
		return m, nil, ms.logRejected("add", m.ID, kv.ErrUnhealthy)
	}
	all, err := ms.reconfigure(ctx, change, who)
	return m, all, err
}

// RemoveMember removes a member and returns the others. Errors: kv.ErrMemberNotFound,
// kv.ErrNotEnoughStarted, kv.ErrUnhealthy, and as Put.
func (ms *Members) RemoveMember(ctx context.Context, id uint64) ([]cluster.Member, error) {
	who, err := ms.o.Access.Admin(ctx)
	if err != nil {
		return nil, err
	}
	members := ms.o.Roster.State()
	m, known := members.Member(id)
	change := ms.limited(cluster.Change{Op: cluster.Remove, Member: cluster.Member{ID: id}})
	if err := ms.precheck(change); err != nil {
		return nil, err
	}
	if !ms.o.Lax && !(known && m.Learner) {
		voters := members.Voters()
		// A member that is not connected is not part of the present quorum.
		away := ms.o.Contacts.Away(id)
		if !away && ms.o.Contacts.CountConnected(voters, time.Now().Add(-healthyAfter))-1 < 1+
			(len(voters)-1)/2 {
			return nil, ms.logRejected("remove", id, kv.ErrUnhealthy)
		}
	}
	if lead := ms.o.Raft.Status().Lead; known && lead == id {
		// After the removal of the leader the others would wait for an election.
		if id == ms.o.MemberID {
			ms.o.Leadership.HandOver(ctx)
		} else if self, _ := members.Member(ms.o.MemberID); !self.Learner {
			ms.o.Leadership.TakeOver(ctx)
		}
	}
	return ms.reconfigure(ctx, change, who)
}

// UpdateMember replaces the peer URLs of a member and returns all members. Errors:
// kv.ErrMemberNotFound, kv.ErrPeerURLExists, and as Put.
func (ms *Members) UpdateMember(ctx context.Context, id uint64,
	peerURLs []string) ([]cluster.Member, error) {
	who, err := ms.o.Access.Admin(ctx)
	if err != nil {
		return nil, err
	}
	return ms.reconfigure(ctx,
		cluster.Change{Op: cluster.Update,
			Member: cluster.Member{ID: id, PeerURLs: slices.Sorted(slices.Values(peerURLs))}}, who)
}

// PromoteMember makes a voter of a learner that is in sync, and returns all members. Only the
// leader knows that: others return kv.ErrNotLeader. Other errors: kv.ErrMemberNotFound,
// kv.ErrNotLearner, kv.ErrLearnerNotReady, kv.ErrNotEnoughStarted, and as Put.
func (ms *Members) PromoteMember(ctx context.Context, id uint64) ([]cluster.Member, error) {
	who, err := ms.o.Access.Admin(ctx)
	if err != nil {
		return nil, err
	}
	return ms.promote(ctx, id, who)
}

// ServePromotion answers another member, whose client wants a learner promoted (calls.Promote):
// PromoteMember in the name of that client. The payload is made by EncodePromotion.
func (ms *Members) ServePromotion(ctx context.Context, payload []byte) error {
	id, who, err := decodePromotion(payload)
	if err != nil {
		return err
	}
	_, err = ms.promote(ctx, id, who)
	return err
}

// EncodePromotion returns the payload of a call for ServePromotion in the name of the caller: the
// id of the learner as u64, little endian, and the identity.
func (ms *Members) EncodePromotion(ctx context.Context, id uint64) ([]byte, error) {
	who, err := ms.o.Access.Admin(ctx)
	if err != nil {
		return nil, err
	}
	return fsm.AppendIdentity(binary.LittleEndian.AppendUint64(nil, id), who), nil
}

func decodePromotion(payload []byte) (id uint64, who auth.Identity, err error) {
	if len(payload) < 8 {
		return 0, who, fmt.Errorf("replica: malformed call for a promotion of %d bytes",
			len(payload))
	}
	id = binary.LittleEndian.Uint64(payload)
	if who, payload, err = fsm.ParseIdentity(payload[8:]); err == nil && len(payload) > 0 {
		err = fmt.Errorf("replica: a call for a promotion has %d bytes too many", len(payload))
	}
	return id, who, err
}

func (ms *Members) promote(ctx context.Context, id uint64,
	who auth.Identity) ([]cluster.Member, error) {
	progress, err := ms.o.Raft.Progress()
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
	if m, ok := ms.o.Roster.State().Member(id); ok && !m.Learner {
		return nil, kv.ErrNotLearner // however much it lags
	}
	// In sync means nine tenths of the leader's log.
	if own := progress[ms.o.MemberID].Match; float64(p.Match) < 0.9*float64(own) {
		ms.o.Logger.Warn("rejecting promote learner: learner is not ready", hexID("learner-id", id),
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
	c.Strict = !ms.o.Lax
	if c.Op == cluster.Add && c.Member.Learner {
		c.MaxLearners = uint32(ms.o.MaxLearners)
	}
	return c
}

// precheck rejects a change that its limits forbid as far as this member knows, so that it does not
// get into the log. Apply finds other mistakes: the membership here may be old.
func (ms *Members) precheck(c cluster.Change) error {
	members := ms.o.Roster.State()
	if c.Op == cluster.Add && c.Member.Learner && ms.o.MaxLearners < 0 {
		return kv.ErrTooManyLearners
	}
	if c.Strict && !members.EnoughNamed(c) {
		return ms.logRejected(opNames[c.Op], c.Member.ID, kv.ErrNotEnoughStarted)
	}
	if _, _, err := members.Change(c); errors.Is(err, cluster.ErrTooManyLearners) ||
		errors.Is(err, cluster.ErrTooManyVoters) {
		return membershipError(err)
	}
	return nil
}

func (ms *Members) logRejected(change string, id uint64, err error) error {
	ms.o.Logger.Warn("rejecting member "+change+" request", hexID("local-member-id", ms.o.MemberID),
		hexID("requested-member-id", id), slog.Any("error", err))
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

// reconfigure proposes a change of the membership in the name of who and waits for its result. This
// member has one change under way at a time; if two members propose one each, raft may drop one,
// which then times out.
func (ms *Members) reconfigure(ctx context.Context, c cluster.Change,
	who auth.Identity) ([]cluster.Member, error) {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, ms.o.RequestTimeout)
	defer cancel()
	select {
	case ms.changing <- struct{}{}:
		defer func() { <-ms.changing }()
	case <-ctx.Done():
		return nil, ms.o.Contacts.WaitError(ctx.Err(), begun)
	case <-ms.o.Stopping:
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
			case <-time.After(ms.o.TickInterval):
			case <-ctx.Done():
			}
		case err != nil:
			return nil, ms.o.Contacts.WaitError(err, begun)
		case errors.Is(res.Err, proposal.ErrLost):
		case res.Err != nil:
			return nil, membershipError(res.Err)
		default:
			ms.o.Logger.Info("applied a configuration change through raft",
				hexID("local-member-id", ms.o.MemberID),
				slog.String("raft-conf-change", opNames[c.Op]),
				hexID("raft-conf-change-node-id", c.Member.ID))
			// A member that has its removal from a report has not applied it.
			return slices.DeleteFunc(slices.Clone(ms.o.Roster.State().Members()),
				func(m cluster.Member) bool {
					return c.Op == cluster.Remove && m.ID == c.Member.ID
				}), nil
		}
		if err := ctx.Err(); err != nil {
			return nil, ms.o.Contacts.WaitError(err, begun)
		}
	}
}

var opNames = map[cluster.ChangeOp]string{cluster.Add: "add", cluster.Remove: "remove",
	cluster.Update: "update", cluster.Promote: "promote"}

// proposeChange proposes a change once.
func (ms *Members) proposeChange(ctx context.Context, c cluster.Change,
	who auth.Identity) (fsm.Result, error) {
	change, err := ms.o.Queue.Register()
	if err != nil {
		return fsm.Result{}, err
	}
	var cc *raftpb.ConfChangeV2
	if cc, err = fsm.ConfChange(change.Header, c, who); err == nil {
		var term uint64
		if term, err = ms.o.Raft.ProposeConfChange(cc); err == nil {
			change.NoteProposed(term)
		}
	}
	if err != nil {
		change.Withdraw()
		return fsm.Result{}, err
	}
	if c.Op != cluster.Remove || c.Member.ID != ms.o.MemberID {
		return change.Wait(ctx, nil)
	}
	led := ms.o.Raft.LeadTerm() != 0
	res, err := change.Wait(ctx, ms.reported)
	if err == nil && res.Err == nil && (led || ms.o.Raft.LeadTerm() != 0) {
		// This member is the one that found the removal committed. The others must know it before
		// they can do without this member.
		select {
		case <-ms.reported:
		case <-ctx.Done():
			err = ctx.Err()
		case <-ms.o.Stopping:
			err = raftnode.ErrStopped
		}
	}
	return res, err
}

func hexID(key string, id uint64) slog.Attr { return slog.String(key, fmt.Sprintf("%x", id)) }
