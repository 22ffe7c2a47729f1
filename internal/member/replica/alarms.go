package replica

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"vigil/internal/kv"
	"vigil/internal/state/fsm"
)

// Alarms serves and changes the alarms of the cluster.
type Alarms struct {
	r *Replica
	// active are the alarms as of the applied position, sorted by type and member. Stored by the apply goroutine.
	active atomic.Pointer[[]kv.Alarm]
}

// Active returns the active alarms as far as this member knows, at once. The slice must not be modified.
func (a *Alarms) Active() []kv.Alarm { return *a.active.Load() }

// Raised reports whether an alarm is active as far as this member knows.
func (a *Alarms) Raised(alarm kv.Alarm) bool {
	_, ok := slices.BinarySearchFunc(a.Active(), alarm, kv.Alarm.Compare)
	return ok
}

// anyNoSpace reports whether any member has raised the alarm NOSPACE.
func (a *Alarms) anyNoSpace() bool {
	return slices.ContainsFunc(a.Active(), func(x kv.Alarm) bool { return x.Type == kv.AlarmNoSpace })
}

// follow takes over the alarms of a commit. The apply goroutine calls it, after the membership of the commit is known.
func (a *Alarms) follow(list []kv.Alarm) {
	if last := a.active.Load(); last != nil && len(list)+len(*last) == 0 {
		return
	}
	kept := list // so that only this allocates
	a.active.Store(&kept)
	named := a.Raised(kv.Alarm{MemberID: a.r.memberID, Type: kv.AlarmCorrupt})
	// A member that is alone differs from no other.
	a.r.trust.SetNamed(named && !a.r.Members.Alone(), a.r.space.damaged.count() > 0)
}

// Alarms returns the active alarms of all members, sorted by type and member, as of a moment after the call began. The
// slice must not be modified. Errors: as Range.
func (a *Alarms) Alarms(ctx context.Context) ([]kv.Alarm, error) {
	if _, err := a.r.readable(ctx, false); err != nil {
		return nil, err
	}
	return a.Active(), nil
}

// ChangeAlarm raises or clears an alarm. The result is the alarm if it is active now that it was raised, or was active
// before it was cleared, and otherwise nil. Errors: as Put.
func (a *Alarms) ChangeAlarm(ctx context.Context, c kv.AlarmChange) (*kv.Alarm, error) {
	res, err := a.r.Propose(ctx, &fsm.Request{Alarm: &c})
	return res.Alarm, err
}

// Propose changes an alarm on behalf of this member, logs that with attrs, and reports whether it was applied.
func (a *Alarms) Propose(ctx context.Context, c *kv.AlarmChange, attrs ...any) bool {
	ctx, cancel := context.WithTimeout(kv.AsMember(ctx), a.r.cfg.RequestTimeout)
	defer cancel()
	_, err := a.ChangeAlarm(ctx, *c)
	attrs = append(attrs, slog.String("alarm", c.Alarm.Type.String()))
	switch {
	case err != nil:
		a.r.cfg.Logger.Debug("alarm not changed yet", append(attrs, slog.Any("error", err))...)
		// The reason lasts longer than one attempt.
		select {
		case <-ctx.Done():
		case <-time.After(a.r.cfg.TickInterval):
		}
	case c.Clear:
		a.r.cfg.Logger.Info("the cause of an alarm is gone: cleared it", attrs...)
	default:
		a.r.cfg.Logger.Warn("raised an alarm", attrs...)
	}
	return err == nil
}
