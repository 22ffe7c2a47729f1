package audit

import (
	"context"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/calls"
	"vigil/internal/member/raftnode"
	"vigil/internal/state/cluster"
	"vigil/internal/store/mvcc"
)

// Pipeline is the pipeline of the member that compares.
type Pipeline interface {
	// Store returns the present store. A snapshot may replace it.
	Store() *mvcc.Store
	// ReadStore calls read with the present store, and again if a snapshot replaces the store
	// during the read.
	ReadStore(ctx context.Context, read func(*mvcc.Store) error) error
	// WaitApplied waits until the member has applied an index.
	WaitApplied(ctx context.Context, index uint64) error
	// Linearize waits until the member has applied everything that any member had applied at the
	// time of the call.
	Linearize(context.Context) error
	// Membership returns the members as of the applied position.
	Membership() *cluster.State
}

// Alarms are the alarms of the cluster.
type Alarms interface {
	// Active lists the active alarms as far as this member knows.
	Active() []kv.Alarm
	// Raised reports whether an alarm is active as far as this member knows.
	Raised(kv.Alarm) bool
	// Propose proposes a change, logs it with attrs, and reports whether it was applied.
	Propose(ctx context.Context, c *kv.AlarmChange, attrs ...any) bool
}

// Raft is the member's raft node.
type Raft interface{ Status() raftnode.Status }

// Options configure an Auditor. Calls may be nil if there are no other members.
type Options struct {
	MemberID uint64
	Pipeline Pipeline
	Alarms   Alarms
	Raft     Raft
	Calls    calls.Caller
	// HandOver hands leadership over to another member.
	HandOver func(context.Context)
	// Ready is closed when the member serves, Stopping when it stops.
	Ready, Stopping <-chan struct{}

	// CorruptCheckInterval is how often the leader compares all data, CompactHashCheckInterval how
	// often it compares the hashes of compactions. Negative means never.
	CorruptCheckInterval, CompactHashCheckInterval time.Duration
	// ElectionTimeout is how long a member waits for a leader.
	ElectionTimeout time.Duration
	// NoInitialCorruptCheck skips the comparison before the member serves.
	NoInitialCorruptCheck bool
	Logger                *slog.Logger
}

// Auditor compares the data of its member with the data of others.
type Auditor struct {
	o Options
	// compacted is the newest compaction whose hashes were compared. Owned by Run.
	compacted int64
	// reading is how long this member has read its store for comparisons, in nanoseconds.
	reading atomic.Int64

	rounds, differences atomic.Uint64
}

// New returns an Auditor.
func New(o Options) *Auditor { return &Auditor{o: o} }

// Stats counts comparisons.
type Stats struct {
	// Rounds counts comparisons of the newest state, Differences the comparisons that found members
	// to differ.
	Rounds, Differences uint64
}

// Stats returns the present figures.
func (a *Auditor) Stats() Stats { return Stats{a.rounds.Load(), a.differences.Load()} }

// listMembers returns the ids of the voters, the ids of all members, and the number of other
// members.
func (a *Auditor) listMembers() (voters, all []uint64, others int) {
	for _, m := range a.o.Pipeline.Membership().Members() {
		if all = append(all, m.ID); !m.Learner {
			voters = append(voters, m.ID)
		}
		if m.ID != a.o.MemberID {
			others++
		}
	}
	return voters, all, others
}

// namedCorrupt reports whether the alarm CORRUPT is active for a member.
func (a *Auditor) namedCorrupt(id uint64) bool { return a.o.Alarms.Raised(corrupt(id)) }

// corrupt returns the alarm for a member whose data are wrong; member 0 means that members differ
// without a majority.
func corrupt(id uint64) kv.Alarm { return kv.Alarm{MemberID: id, Type: kv.AlarmCorrupt} }

func (a *Auditor) isLeader() bool { return a.o.Raft.Status().Lead == a.o.MemberID }

// untilStop returns a context that ends when the member stops. The caller cancels it.
func (a *Auditor) untilStop(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-a.o.Stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

func memberAttr(id uint64) slog.Attr {
	return slog.String("remote-peer-id", strconv.FormatUint(id, 16))
}
