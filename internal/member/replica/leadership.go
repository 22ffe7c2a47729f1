package replica

import (
	"context"
	"log/slog"
	"time"

	"vigil/internal/kv"
)

// Leadership moves the leadership of the cluster between members.
type Leadership struct{ r *Replica }

// Leader returns the id of the leader, 0 if none is known. It costs less than Status.
func (l *Leadership) Leader() uint64 { return l.r.node.Status().Lead }

// MoveLeader hands leadership over to a voter and waits until it leads. Errors: kv.ErrNotLeader,
// kv.ErrBadTransferee, kv.ErrTransferTimeout, kv.ErrStopped.
func (l *Leadership) MoveLeader(ctx context.Context, to uint64) error {
	if l.r.node.Status().Lead != l.r.memberID {
		return kv.ErrNotLeader
	}
	if m, ok := l.r.Members.state.Load().Member(to); !ok || m.Learner {
		return kv.ErrBadTransferee
	}
	if to == l.r.memberID {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.r.cfg.RequestTimeout)
	defer cancel()
	return l.handOver(ctx, to)
}

// HandOver hands leadership over to the best voter, before this member stops. It returns at once if this member does not
// lead.
func (l *Leadership) HandOver(ctx context.Context) {
	if l.r.node.Status().Lead != l.r.memberID {
		return
	}
	members := l.r.Members.state.Load()
	if len(voters(members)) < 2 || members.Removed(l.r.memberID) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(l.r.cfg.ElectionTicks)*l.r.cfg.TickInterval)
	defer cancel()
	if err := l.handOver(ctx, 0); err != nil {
		l.r.cfg.Logger.Warn("leadership was not handed over", slog.Any("error", err))
	}
}

// pollLeader is how often a transfer of leadership checks whether it is complete. It takes a round trip and a write to disk.
const pollLeader = 2 * time.Millisecond

func (l *Leadership) handOver(ctx context.Context, to uint64) error {
	begun := time.Now()
	chosen, err := l.r.node.TransferLeader(to)
	switch {
	case err != nil:
		return kv.ErrStopped
	case chosen == 0:
		if l.r.node.Status().Lead != l.r.memberID {
			return kv.ErrNotLeader
		}
		return kv.ErrUnhealthy
	}
	l.r.cfg.Logger.Info("leadership transfer starting", hexID("local-member-id", l.r.memberID), hexID("transferee-member-id", chosen))
	if err := l.awaitLeader(ctx, chosen); err != nil {
		return err
	}
	l.r.cfg.Logger.Info("leadership transfer finished", hexID("local-member-id", l.r.memberID), hexID("transferee-member-id", chosen),
		slog.Duration("took", time.Since(begun)))
	return nil
}

// takeOverAttempts is how often a leader is asked to hand over. The leader ends an attempt after an election timeout if this
// member was not up to date in time.
const takeOverAttempts = 3

// takeOver asks the leader to hand over to this member, and waits for it a short time.
func (l *Leadership) takeOver(ctx context.Context) {
	var err error
	for range takeOverAttempts {
		attempt, cancel := context.WithTimeout(ctx, time.Duration(l.r.cfg.ElectionTicks)*l.r.cfg.TickInterval)
		if err = l.r.node.TakeLeadership(); err == nil {
			err = l.awaitLeader(attempt, l.r.memberID)
		}
		cancel()
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		l.r.cfg.Logger.Warn("leadership was not taken over", slog.Any("error", err))
	}
}

// awaitLeader waits until this member knows another one as the leader.
func (l *Leadership) awaitLeader(ctx context.Context, id uint64) error {
	tick := time.NewTicker(pollLeader)
	defer tick.Stop()
	for l.r.node.Status().Lead != id {
		select {
		case <-ctx.Done():
			return kv.ErrTransferTimeout
		case <-l.r.node.Failed():
			return kv.ErrStopped
		case <-tick.C:
		}
	}
	return nil
}

const (
	// connectTimeout is how long a member that starts looks for others to hold its first election early. Later one was held, or
	// they are not there.
	connectTimeout  = 5 * time.Second
	connectInterval = 50 * time.Millisecond
	// ticksLeft are those before the first election may begin: a leader that there is gets its heartbeat through.
	ticksLeft = 2
)

// advanceElection makes the first election come early. A member that starts cannot know whether there is a leader, and
// waits for one; when it is connected to a quorum and none was heard of, there is little to wait for.
func (l *Leadership) advanceElection(ctx context.Context) {
	ticks := l.r.cfg.ElectionTicks - ticksLeft
	begun := time.Now()
	if ticks < 1 {
		return
	}
	poll := time.NewTicker(connectInterval)
	defer poll.Stop()
	for time.Since(begun) < connectTimeout && l.r.node.Status().Lead == 0 {
		voters := voters(l.r.Members.state.Load())
		if n := l.r.Members.connected(voters, time.Now()); len(voters) > 1 && n > len(voters)/2 {
			if advanced, err := l.r.node.AdvanceElection(ticks); err == nil && advanced {
				l.r.cfg.Logger.Info("initialized peer connections; fast-forwarding election ticks", slog.Int("forward-ticks", ticks),
					slog.Int("election-ticks", l.r.cfg.ElectionTicks), slog.Int("active-remote-members", n-1))
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
