package space

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/replica/proposal"
)

const (
	// clearPercent is the part of the quota below which the alarm is cleared. The gap keeps a
	// member whose data is about as large as the quota from raising and clearing it by turns.
	clearPercent = 90
	// prepareInterval is how often a segment of the raft log is tried for while the disk is full.
	prepareInterval = time.Second
)

// Alarms are the alarms of the cluster.
type Alarms interface {
	// Raised reports whether an alarm is active as far as this member knows, AnyNoSpace whether any
	// member has raised NOSPACE.
	Raised(kv.Alarm) bool
	AnyNoSpace() bool
	// Propose proposes a change, logs it with attrs, and reports whether it was applied.
	Propose(ctx context.Context, c *kv.AlarmChange, attrs ...any) bool
}

// Damage is the damage that was found on the disks of the member.
type Damage interface {
	// Found receives when there is new damage. Report makes it receive again.
	Found() <-chan struct{}
	Report()
}

// Spare is the raft log, which has a spare segment.
type Spare interface {
	CheckRoom() error
	// PrepareSpare tries to make a spare segment.
	PrepareSpare() error
}

// Truncator gives up entries of the raft log.
type Truncator interface {
	// Shorten truncates the log. full: the disk is full.
	Shorten(full bool) error
}

// MonitorOptions configure a Monitor. All fields are required.
type MonitorOptions struct {
	MemberID  uint64
	Room      *Room
	Alarms    Alarms
	Damage    Damage
	RaftLog   Spare
	Truncator Truncator
}

// Monitor raises and clears the alarms of a member, and keeps room in the raft log.
type Monitor struct {
	o MonitorOptions
	// crossing is the size of live data when a request was last rejected because it would cross the
	// quota.
	crossing atomic.Int64
	// refusal is there while requests that were rejected for it wait for Run to raise the alarm.
	refusal atomic.Pointer[refusal]
	// wake wakes Run. It has room for one.
	wake chan struct{}
}

// refusal is the rejection of requests that would cross the quota. done is closed when the alarm
// was raised, or could not be.
type refusal struct{ done chan struct{} }

// NewMonitor returns a Monitor. Run makes it work.
func NewMonitor(o MonitorOptions) *Monitor { return &Monitor{o: o, wake: make(chan struct{}, 1)} }

// Tick measures how much room there is. One goroutine calls it regularly, and requests are rejected
// or accepted again within that time.
func (m *Monitor) Tick() {
	r := m.o.Room
	log, due := r.o.Current.Load().Log, false
	if r.updateCounted() {
		due = m.dueAlarm(r.sampleSize(log).live, false) != nil
	}
	// Asking makes the store try again to allocate.
	if r.findRoom(0, nil) == proposal.ErrUnmeasured {
		r.o.Gauge.Start() // for DiskFull
	}
	if m.o.RaftLog.CheckRoom() != nil || due {
		m.wakeRun()
	}
}

func (m *Monitor) wakeRun() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// AwaitAlarm has the alarm raised for a request that the quota has no room for, and returns when
// that was done or tried: a client that was rejected finds the alarm.
func (m *Monitor) AwaitAlarm(ctx context.Context) {
	r := m.o.Room
	_, live := r.o.Current.Load().Log.Size()
	m.crossing.Store(live)
	fresh := &refusal{done: make(chan struct{})}
	s := fresh
	for !m.refusal.CompareAndSwap(nil, fresh) {
		if s = m.refusal.Load(); s != nil {
			break
		}
		s = fresh
	}
	m.wakeRun()
	select {
	case <-s.done:
	case <-ctx.Done():
	case <-r.o.Stopping:
	}
}

// dueAlarm returns the change that the alarm NOSPACE of this member needs, nil for none; refused
// says that a request was rejected because it would cross the quota. A member whose data have grown
// to the quota without a refusal, by writes of others, raises the alarm only if no other member
// has: writes are stopped by any. The alarm is cleared when the data have really become less, and
// not because the request that was rejected was large.
func (m *Monitor) dueAlarm(live int64, refused bool) *kv.AlarmChange {
	own := kv.Alarm{MemberID: m.o.MemberID, Type: kv.AlarmNoSpace}
	quota := m.o.Room.o.QuotaBytes
	full := quota
	if at := m.crossing.Load(); at > 0 {
		full = min(full, at)
	}
	switch raised := m.o.Alarms.Raised(own); {
	case !raised && quota > 0 && (refused || live >= quota && !m.o.Alarms.AnyNoSpace()):
		return &kv.AlarmChange{Alarm: own}
	case raised && (quota <= 0 || live < full/100*clearPercent):
		return &kv.AlarmChange{Alarm: own, Clear: true}
	}
	return nil
}

// Run raises and clears alarms and prepares segments until ctx ends or the member stops. Errors:
// from Truncator.
func (m *Monitor) Run(ctx context.Context) error {
	var prepared time.Time
	r, corrupt := m.o.Room, false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.o.Stopping:
			return nil
		case <-m.o.Damage.Found():
			corrupt = true
		case <-m.wake:
		}
		refusal := m.refusal.Swap(nil)
		_, live := r.o.Current.Load().Log.Size()
		if c := m.dueAlarm(live, refusal != nil); c != nil && (refusal != nil || r.Counted()) {
			m.o.Alarms.Propose(ctx, c, slog.Int64("live-bytes", live),
				slog.Int64("quota-bytes", r.o.QuotaBytes))
		}
		if refusal != nil {
			close(refusal.done)
		}
		if m.o.RaftLog.CheckRoom() != nil && time.Since(prepared) >= prepareInterval {
			if m.o.RaftLog.PrepareSpare() != nil {
				// Recycle a segment that is no longer needed.
				if err := m.o.Truncator.Shorten(true); err != nil {
					return err
				}
			}
			prepared = time.Now()
		}
		if corrupt {
			own := kv.Alarm{MemberID: m.o.MemberID, Type: kv.AlarmCorrupt}
			corrupt = !m.o.Alarms.Raised(own) &&
				!m.o.Alarms.Propose(ctx, &kv.AlarmChange{Alarm: own})
			if corrupt {
				m.o.Damage.Report() // tried again
			}
		}
	}
}
