// Package alarms serves and changes the alarms of the cluster, and decides by them whether a member
// may serve.
package alarms

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/replica/audit"
	"vigil/internal/state/fsm"
)

// Pipeline is the pipeline of the member.
type Pipeline interface {
	// AwaitReadable waits until the state may be read: unless that is serializable, until the
	// member has applied everything that any member had applied at the time of the call.
	AwaitReadable(ctx context.Context, serializable bool) (waited time.Duration, err error)
	// Propose proposes a request and waits for its result.
	Propose(context.Context, *fsm.Request) (fsm.Result, error)
}

// Membership is the membership as of the applied position.
type Membership interface {
	// Alone reports whether the cluster has no other member.
	Alone() bool
}

// Damage is the damage that was found on the disks of the member.
type Damage interface{ Count() int }

// Options configure Alarms. All fields are required.
type Options struct {
	MemberID   uint64
	Pipeline   Pipeline
	Membership Membership
	Damage     Damage
	// Trust is told whether the alarm CORRUPT names this member.
	Trust *audit.Trust
	// RequestTimeout limits how long a request of the member itself waits for its result,
	// TickInterval is the pause after one that failed.
	RequestTimeout, TickInterval time.Duration
	Logger                       *slog.Logger
}

// Alarms are the alarms of the cluster.
type Alarms struct {
	o Options
	// active are the alarms as of the applied position, sorted by type and member. Stored by the
	// apply goroutine.
	active atomic.Pointer[[]kv.Alarm]
}

// New returns the Alarms that begin with a list.
func New(o Options, list []kv.Alarm) *Alarms {
	a := &Alarms{o: o}
	a.active.Store(&[]kv.Alarm{})
	a.Follow(list)
	return a
}

// Active returns the active alarms as far as this member knows, at once. The slice must not be
// modified.
func (a *Alarms) Active() []kv.Alarm { return *a.active.Load() }

// Raised reports whether an alarm is active as far as this member knows.
func (a *Alarms) Raised(alarm kv.Alarm) bool {
	_, ok := slices.BinarySearchFunc(a.Active(), alarm, kv.Alarm.Compare)
	return ok
}

// AnyNoSpace reports whether any member has raised the alarm NOSPACE.
func (a *Alarms) AnyNoSpace() bool {
	return slices.ContainsFunc(a.Active(),
		func(x kv.Alarm) bool { return x.Type == kv.AlarmNoSpace })
}

// Follow takes over the alarms of a commit. The apply goroutine calls it, after the membership of
// the commit is known.
func (a *Alarms) Follow(list []kv.Alarm) {
	if len(list)+len(a.Active()) == 0 {
		return
	}
	kept := list // so that only this allocates
	a.active.Store(&kept)
	named := a.Raised(kv.Alarm{MemberID: a.o.MemberID, Type: kv.AlarmCorrupt})
	// A member that is alone differs from no other.
	a.o.Trust.SetNamed(named && !a.o.Membership.Alone(), a.o.Damage.Count() > 0)
}

// Alarms returns the active alarms of all members, sorted by type and member, as of a moment after
// the call began. The slice must not be modified. Errors: as Range.
func (a *Alarms) Alarms(ctx context.Context) ([]kv.Alarm, error) {
	if _, err := a.o.Pipeline.AwaitReadable(ctx, false); err != nil {
		return nil, err
	}
	return a.Active(), nil
}

// ChangeAlarm raises or clears an alarm. The result is the alarm if it is active now that it was
// raised, or was active before it was cleared, and otherwise nil. Errors: as Put.
func (a *Alarms) ChangeAlarm(ctx context.Context, c kv.AlarmChange) (*kv.Alarm, error) {
	res, err := a.o.Pipeline.Propose(ctx, &fsm.Request{Alarm: &c})
	return res.Alarm, err
}

// Propose changes an alarm on behalf of this member, logs that with attrs, and reports whether it
// was applied.
func (a *Alarms) Propose(ctx context.Context, c *kv.AlarmChange, attrs ...any) bool {
	ctx, cancel := context.WithTimeout(kv.AsMember(ctx), a.o.RequestTimeout)
	defer cancel()
	_, err := a.ChangeAlarm(ctx, *c)
	attrs = append(attrs, slog.String("alarm", c.Alarm.Type.String()))
	switch {
	case err != nil:
		a.o.Logger.Debug("alarm not changed yet", append(attrs, slog.Any("error", err))...)
		// The reason lasts longer than one attempt.
		select {
		case <-ctx.Done():
		case <-time.After(a.o.TickInterval):
		}
	case c.Clear:
		a.o.Logger.Info("the cause of an alarm is gone: cleared it", attrs...)
	default:
		a.o.Logger.Warn("raised an alarm", attrs...)
	}
	return err == nil
}
