package lessor

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"vigil/internal/member/calls"
	"vigil/internal/member/raftnode"
	"vigil/internal/state/auth"
	"vigil/internal/state/fsm"
	"vigil/internal/state/lease"
)

// Pipeline is the pipeline of the member that the leases belong to.
type Pipeline interface {
	// LeaseState and AuthState return the leases, and users and roles, as of the applied position.
	LeaseState() *lease.State
	AuthState() *auth.State
	// Applied returns the applied position.
	Applied() uint64
	// Linearize waits until the member has applied everything that any member had applied at the
	// time of the call.
	Linearize(context.Context) error
	// Propose proposes a request and waits for its result.
	Propose(context.Context, *fsm.Request) (fsm.Result, error)
	// TimeoutCause returns the error of a request that began at a time and has had no result for
	// too long.
	TimeoutCause(begun time.Time) error
}

// Raft is the member's raft node.
type Raft interface {
	Status() raftnode.Status
	// Leader returns the leader, and a context that lasts as long as it leads as far as this member
	// knows.
	Leader() (lead uint64, while context.Context)
	// LeadTerm returns the term in which this member leads, 0 if it does not lead.
	LeadTerm() uint64
	// TryReadIndex returns the commit index if this member leads without other voters.
	TryReadIndex() (index uint64, ok bool)
}

// Options configure a Lessor. All fields but Calls are required.
type Options struct {
	MemberID uint64
	Pipeline Pipeline
	Raft     Raft
	// Calls reaches the leader; nil if the member has no others.
	Calls calls.Caller
	// Stopping is closed when the member stops.
	Stopping <-chan struct{}
	// TickInterval is the unit of the election clock, ElectionTimeout how long a member waits for a
	// leader.
	TickInterval, ElectionTimeout time.Duration
	// CheckpointInterval is how often the remaining TTL of a lease is replicated.
	CheckpointInterval time.Duration
	// RequestTimeout limits how long a request waits for its result.
	RequestTimeout time.Duration
	Logger         *slog.Logger
}

// Lessor counts down the TTLs of leases while its member leads, and answers calls about them.
//
// A term of counting begins when the apply goroutine has applied an entry of the term in which this
// member leads. At that point the member knows all that earlier leaders have replicated about
// leases. Each lease starts with its replicated remaining TTL, or its whole TTL, plus one election
// timeout. The extra time covers the promises of the previous leader: it promises a TTL only within
// an election timeout of having been confirmed as the leader, and this leader was elected after
// that.
type Lessor struct {
	o      Options
	ticker *time.Ticker // owned by Run
	mu     struct {
		sync.Mutex
		// term is the one in which timers count, 0 while they do not.
		term   uint64
		timers *lease.Timers
		// removals is the number of removals that timers know of.
		removals uint64
		// demoted is closed when the term of counting ends.
		demoted chan struct{}
		// settled is closed, and replaced, when the revocation of expired leases has succeeded or
		// failed.
		settled chan struct{}
		// confirmedUntil is the time until which this member need not ask a quorum whether it still
		// leads: raftnode.QuietTime after the start of the last confirmation. No other member is
		// elected that soon, unless this member has asked it to take over. The others may hold an
		// election even during time that does not count here.
		confirmedUntil time.Time
		// clock is the time counted until last.
		clock time.Duration
		last  time.Time
	}
	granted, revoked, renewed, expired atomic.Uint64
	ttls                               ttlCounts
}

// New returns a Lessor. Run makes it count.
func New(o Options) *Lessor {
	l := &Lessor{o: o, ticker: time.NewTicker(o.TickInterval)}
	l.mu.last = time.Now()
	l.mu.settled = make(chan struct{})
	return l
}

// now returns the counted time. At most one election timeout counts between two ticks: if more has
// passed, this process was suspended and clients could not keep their leases alive. mu is held.
func (l *Lessor) now() time.Duration { return l.at(time.Now()) }

// at returns the time that is counted at t, which is not before the last tick. mu is held.
func (l *Lessor) at(t time.Time) time.Duration {
	return l.mu.clock + min(t.Sub(l.mu.last), l.o.ElectionTimeout)
}

// tick advances the clock, and returns false while the clock stands still. Keep-alives need all
// committed entries to be applied here, and revocations do not, so no lease ends because of time in
// which this member makes no progress with applying. At most one election timeout of that time
// counts afterwards. mu is held.
func (l *Lessor) tick() (now time.Duration, runs bool) {
	t := time.Now()
	if t.Sub(l.o.Raft.Status().Current) > stillTicks*l.o.TickInterval {
		return 0, false
	}
	l.mu.clock, l.mu.last = l.at(t), t
	return l.mu.clock, true
}

// stillTicks is the number of ticks without progress after which the clock stands still.
const stillTicks = 2

// stopCounting ends the term of counting. mu is held.
func (l *Lessor) stopCounting() {
	if l.mu.term != 0 {
		l.mu.term, l.mu.timers, l.mu.confirmedUntil = 0, nil, time.Time{}
		close(l.mu.demoted)
	}
}

// wakeWaiters wakes keep-alives that wait for the revocation of expired leases. mu is held.
func (l *Lessor) wakeWaiters() {
	close(l.mu.settled)
	l.mu.settled = make(chan struct{})
}

// Follow updates the timers after a batch: it follows the changes of leases, and starts or stops
// counting with the leadership of this member. The apply goroutine calls it before the batch counts
// as applied; entryTerm is the term of the batch's last entry.
func (l *Lessor) Follow(state *lease.State, entryTerm uint64) {
	changes := state.TakeTransitions()
	for _, c := range changes {
		if c.Ended {
			l.revoked.Add(1)
		} else {
			l.granted.Add(1)
			l.ttls.add(c.TTL)
		}
	}
	term := l.o.Raft.LeadTerm()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.removals = state.Removals()
	switch {
	case l.mu.term != 0 && l.mu.term == term:
		now := l.now()
		for _, c := range changes {
			if c.Ended {
				l.mu.timers.Remove(c.ID)
			} else {
				l.mu.timers.Add(c.Lease, now)
			}
		}
	case term != 0 && term == entryTerm:
		l.stopCounting()
		l.mu.term, l.mu.demoted = term, make(chan struct{})
		l.mu.timers = lease.Fill(l.o.CheckpointInterval, state.All(), l.now(), l.o.ElectionTimeout)
	default:
		l.stopCounting()
	}
}

// sortAtOnce is how many leases SortByExpiry looks up each time it takes the lock, which apply
// waits for.
const sortAtOnce = 256

// SortByExpiry sorts leases by the time they expire, if this member counts time.
func (l *Lessor) SortByExpiry(leases []lease.Lease) {
	ends := make(map[int64]time.Duration, len(leases))
	for some := range slices.Chunk(leases, sortAtOnce) {
		if !l.lookUpEnds(some, ends) {
			return
		}
	}
	slices.SortStableFunc(leases,
		func(a, b lease.Lease) int { return cmp.Compare(ends[a.ID], ends[b.ID]) })
}

// lookUpEnds adds the expiry times of leases to ends. It returns false if this member does not
// count time.
func (l *Lessor) lookUpEnds(leases []lease.Lease, ends map[int64]time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.timers == nil {
		return false
	}
	for i := range leases {
		ends[leases[i].ID], _, _ = l.mu.timers.Get(leases[i].ID)
	}
	return true
}

// MinTTL returns the smallest TTL that is granted, in seconds: a lease must outlive an election.
func (l *Lessor) MinTTL() int64 {
	ticks := 3 * (l.o.ElectionTimeout / l.o.TickInterval) / 2
	return int64((ticks*l.o.TickInterval + time.Second - 1) / time.Second)
}
