// Package leadership moves the leadership of the cluster between members.
package leadership

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/raftnode"
	"vigil/internal/state/cluster"
)

// Raft is the member's raft node.
type Raft interface {
	Status() raftnode.Status
	// TransferLeader begins to hand over to a member, 0 for the best one, and returns whom it has
	// chosen.
	TransferLeader(to uint64) (chosen uint64, err error)
	// TakeLeadership asks the leader to hand over to this member.
	TakeLeadership() error
	// AdvanceElection brings the first election forward, unless a leader is known.
	AdvanceElection(ticks int) (advanced bool, err error)
	// Failed is closed when the node has failed.
	Failed() <-chan struct{}
}

// Membership is the membership as of the applied position.
type Membership interface{ State() *cluster.State }

// Contacts are the connections to other members.
type Contacts interface {
	// CountConnected counts the members that were connected ever since a time, including this one.
	CountConnected(members []cluster.Member, since time.Time) int
}

// Options configure a Leadership. All fields are required.
type Options struct {
	MemberID   uint64
	Raft       Raft
	Membership Membership
	Contacts   Contacts
	// ElectionTicks is how many ticks a member waits for a leader, ElectionTimeout how long that
	// is.
	ElectionTicks                   int
	ElectionTimeout, RequestTimeout time.Duration
	Logger                          *slog.Logger
}

// Leadership is the leadership of the cluster.
type Leadership struct{ o Options }

// New returns a Leadership.
func New(o Options) *Leadership { return &Leadership{o} }

// Leader returns the id of the leader, 0 if none is known. It costs less than Status.
func (l *Leadership) Leader() uint64 { return l.o.Raft.Status().Lead }

// MoveLeader hands leadership over to a voter and waits until it leads. Errors: kv.ErrNotLeader,
// kv.ErrBadTransferee, kv.ErrTransferTimeout, kv.ErrStopped.
func (l *Leadership) MoveLeader(ctx context.Context, to uint64) error {
	if l.o.Raft.Status().Lead != l.o.MemberID {
		return kv.ErrNotLeader
	}
	if m, ok := l.o.Membership.State().Member(to); !ok || m.Learner {
		return kv.ErrBadTransferee
	}
	if to == l.o.MemberID {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.o.RequestTimeout)
	defer cancel()
	return l.handOver(ctx, to)
}

// HandOver hands leadership over to the best voter, before this member stops. It returns at once if
// this member does not lead.
func (l *Leadership) HandOver(ctx context.Context) {
	if l.o.Raft.Status().Lead != l.o.MemberID {
		return
	}
	members := l.o.Membership.State()
	if len(members.Voters()) < 2 || members.Removed(l.o.MemberID) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, l.o.ElectionTimeout)
	defer cancel()
	if err := l.handOver(ctx, 0); err != nil {
		l.o.Logger.Warn("leadership was not handed over", slog.Any("error", err))
	}
}

// pollLeader is how often a transfer of leadership checks whether it is complete. It takes a round
// trip and a write to disk.
const pollLeader = 2 * time.Millisecond

func (l *Leadership) handOver(ctx context.Context, to uint64) error {
	begun := time.Now()
	chosen, err := l.o.Raft.TransferLeader(to)
	switch {
	case err != nil:
		return kv.ErrStopped
	case chosen == 0:
		if l.o.Raft.Status().Lead != l.o.MemberID {
			return kv.ErrNotLeader
		}
		return kv.ErrUnhealthy
	}
	l.o.Logger.Info("leadership transfer starting", hexID("local-member-id", l.o.MemberID),
		hexID("transferee-member-id", chosen))
	if err := l.awaitLeader(ctx, chosen); err != nil {
		return err
	}
	l.o.Logger.Info("leadership transfer finished", hexID("local-member-id", l.o.MemberID),
		hexID("transferee-member-id", chosen),
		slog.Duration("took", time.Since(begun)))
	return nil
}

// takeOverAttempts is how often a leader is asked to hand over. The leader ends an attempt after an
// election timeout if this member was not up to date in time.
const takeOverAttempts = 3

// TakeOver asks the leader to hand over to this member, and waits for it a short time.
func (l *Leadership) TakeOver(ctx context.Context) {
	var err error
	for range takeOverAttempts {
		attempt, cancel := context.WithTimeout(ctx, l.o.ElectionTimeout)
		if err = l.o.Raft.TakeLeadership(); err == nil {
			err = l.awaitLeader(attempt, l.o.MemberID)
		}
		cancel()
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		l.o.Logger.Warn("leadership was not taken over", slog.Any("error", err))
	}
}

// awaitLeader waits until this member knows another one as the leader.
func (l *Leadership) awaitLeader(ctx context.Context, id uint64) error {
	tick := time.NewTicker(pollLeader)
	defer tick.Stop()
	for l.o.Raft.Status().Lead != id {
		select {
		case <-ctx.Done():
			return kv.ErrTransferTimeout
		case <-l.o.Raft.Failed():
			return kv.ErrStopped
		case <-tick.C:
		}
	}
	return nil
}

const (
	// connectTimeout is how long a member that starts looks for others to hold its first election
	// early. Later one was held, or they are not there.
	connectTimeout  = 5 * time.Second
	connectInterval = 50 * time.Millisecond
	// ticksLeft are those before the first election may begin: a leader that there is gets its
	// heartbeat through.
	ticksLeft = 2
)

// AdvanceElection makes the first election come early. A member that starts cannot know whether
// there is a leader, and waits for one; when it is connected to a quorum and none was heard of,
// there is little to wait for.
func (l *Leadership) AdvanceElection(ctx context.Context) {
	ticks := l.o.ElectionTicks - ticksLeft
	begun := time.Now()
	if ticks < 1 {
		return
	}
	poll := time.NewTicker(connectInterval)
	defer poll.Stop()
	for time.Since(begun) < connectTimeout && l.o.Raft.Status().Lead == 0 {
		voters := l.o.Membership.State().Voters()
		if n := l.o.Contacts.CountConnected(voters, time.Now()); len(voters) > 1 &&
			n > len(voters)/2 {
			if advanced, err := l.o.Raft.AdvanceElection(ticks); err == nil && advanced {
				l.o.Logger.Info("initialized peer connections; fast-forwarding election ticks",
					slog.Int("forward-ticks", ticks),
					slog.Int("election-ticks", l.o.ElectionTicks),
					slog.Int("active-remote-members", n-1))
			}
			return
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return
		}
	}
}

func hexID(key string, id uint64) slog.Attr { return slog.String(key, fmt.Sprintf("%x", id)) }
