package replica

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/replica/proposal"
	"vigil/internal/state/fsm"
)

// runKeeper is the keeper goroutine: it fails requests that have waited too long, and the member
// when one of its parts has failed.
func (r *Replica) runKeeper(ctx context.Context) {
	defer r.rounds.Stop()
	for {
		log := r.current.Load().Log
		select {
		case <-ctx.Done():
			return
		case <-r.node.Failed():
			r.fail(r.node.Err())
			return
		case err := <-r.applier.Failed():
			r.fail(err)
			return
		case <-log.Failed():
			if log != r.current.Load().Log {
				continue // another store has taken its place since
			}
			r.fail(log.Err())
			return
		case err := <-log.Damage():
			_ = r.damage.Note(err)
		case now := <-r.rounds.C:
			before := now.Add(-r.cfg.RequestTimeout)
			for _, g := range r.queue.Expire(before) {
				g.Fail(r.expiryError(g))
			}
			r.applied.Expire(before, kv.ErrTimeoutWaitApplied)
			r.monitor.Tick()
			if r.custody.Due() {
				r.background.Go(func() {
					if r.custody.Check() {
						r.leaveDisk()
					}
				})
			}
			if r.roster.Alone() {
				// Applied entries are kept for members that lag, and there are no other members.
				r.raftLog.Uncache(r.node.Acknowledged())
			}
		}
	}
}

// leaveDisk ends the part of this member in writes: its files are not in their places.
func (r *Replica) leaveDisk() {
	// Requests that wait for the raft log need not wait until their time is up.
	r.queue.Reject(kv.ErrAway, func(g *proposal.Group) error { return r.TimeoutCause(g.Begun()) })
	// Another leader need not wait for this disk at the next write.
	r.background.Go(func() { r.Leadership.HandOver(context.Background()) })
}

// expiryError returns the error of a group that had no outcome in time. A group that was not
// proposed because there is no leader ends like a call whose deadline has passed, as in etcd.
func (r *Replica) expiryError(g *proposal.Group) error {
	if !g.Proposed() && r.node.Status().Lead == 0 {
		return context.DeadlineExceeded
	}
	return r.TimeoutCause(g.Begun())
}

// announceMember waits until the member can serve, publishes its name and client URLs if the
// cluster has others, and declares the member ready.
func (r *Replica) announceMember(ctx context.Context) {
	// No request is accepted before it is known whether there is room.
	r.current.Load().Log.WaitNext()
	for last := ""; ; {
		err := r.Linearize(ctx)
		if err == nil && r.Members.Forcing() {
			err = r.becomeOnly(ctx)
		}
		if err == nil {
			m, _ := r.roster.State().Member(r.memberID)
			if m.Name == r.cfg.Name && m.Level == fsm.Level &&
				slices.Equal(m.ClientURLs, r.cfg.ClientURLs) {
				break
			}
			err = r.setAttributes(ctx)
		}
		if err != nil {
			select {
			case <-r.stopping:
				return
			case <-ctx.Done():
				return
			default:
				// Other parts log what the member waits for. It is not repeated with every try.
				level := slog.LevelDebug
				if text := err.Error(); text != last {
					level, last = slog.LevelWarn, text
				}
				r.cfg.Logger.Log(ctx, level, "the member's attributes are not published yet",
					slog.Any("error", err))
			}
			// The cause lasts longer than one try.
			select {
			case <-r.stopping:
				return
			case <-time.After(r.cfg.TickInterval):
			}
		}
	}
	if err := r.audit.CheckInitially(ctx); err != nil {
		r.fail(fmt.Errorf("replica: %w", err))
		return
	}
	select {
	case <-r.stopping:
		return
	default:
	}
	close(r.ready)
}

// becomeOnly makes this member the only one of its cluster. The others may go on with the history,
// so it begins a new incarnation first.
func (r *Replica) becomeOnly(ctx context.Context) error {
	if r.Members.MustForce() {
		if err := r.Source.BeginIncarnation(ctx); err != nil {
			return err
		}
	}
	return r.Members.BeAlone(ctx)
}
