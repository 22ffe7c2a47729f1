package replica

import (
	"context"
	"log/slog"
	"time"
)

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
