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

// keep is the keeper goroutine: it fails what has waited too long, and the member when one of its
// parts has failed.
func (r *Replica) keep(ctx context.Context) {
	defer r.rounds.Stop()
	for {
		log := r.current.Load().Log
		select {
		case <-ctx.Done():
			return
		case <-r.node.Failed():
			r.fail(r.node.Err())
			return
		case <-log.Failed():
			if log != r.current.Load().Log {
				continue // another store has taken its place since
			}
			r.fail(log.Err())
			return
		case err := <-log.Damage():
			_ = r.damage.Note(err)
		case <-r.custody.Declared():
			// What waits for the raft log need not wait until its time is up.
			r.queue.Reject(kv.ErrAway, func(g *proposal.Group) error { return r.TimeoutCause(g.Begun()) })
			// Another leader need not wait for this disk at the next write.
			r.background.Go(func() { r.Leadership.HandOver(context.Background()) })
		case now := <-r.rounds.C:
			before := now.Add(-r.cfg.RequestTimeout)
			for _, g := range r.queue.Expire(before) {
				g.Fail(r.expired(g))
			}
			r.applied.Expire(before, kv.ErrTimeoutWaitApplied)
			r.monitor.Tick()
			r.custody.Tick()
			if r.roster.Alone() {
				// Applied entries are for members that lag, of which there is none.
				r.raftLog.Uncache(r.node.Acknowledged())
			}
		}
	}
}

// expired says why a group had no outcome in time. One that never was proposed because there is no leader
// ends as a call does whose own time is up, as in etcd.
func (r *Replica) expired(g *proposal.Group) error {
	if !g.Proposed() && r.node.Status().Lead == 0 {
		return context.DeadlineExceeded
	}
	return r.TimeoutCause(g.Begun())
}

// publish waits until the member can serve, makes its name and client URLs known if the cluster has
// others, and declares the member ready.
func (r *Replica) publish(ctx context.Context) {
	// Nothing is taken on before it is known whether there is room.
	r.current.Load().Log.WaitNext()
	for last := ""; ; {
		err := r.Linearize(ctx)
		if err == nil && r.Members.Forcing() {
			err = r.becomeOnly(ctx)
		}
		if err == nil {
			m, _ := r.roster.State().Member(r.memberID)
			if m.Name == r.cfg.Name && m.Level == fsm.Level && slices.Equal(m.ClientURLs, r.cfg.ClientURLs) {
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
				// What the member waits for is told by others, and not with every try.
				level := slog.LevelDebug
				if text := err.Error(); text != last {
					level, last = slog.LevelWarn, text
				}
				r.cfg.Logger.Log(ctx, level, "the member's attributes are not published yet", slog.Any("error", err))
			}
			// Whatever stood in the way lasts longer than one try.
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

// becomeOnly makes this member the only one of its cluster. The others may go on with the history, so it begins a new incarnation first.
func (r *Replica) becomeOnly(ctx context.Context) error {
	if r.Members.MustForce() {
		if err := r.Source.BeginIncarnation(ctx); err != nil {
			return err
		}
	}
	return r.Members.BeAlone(ctx)
}
