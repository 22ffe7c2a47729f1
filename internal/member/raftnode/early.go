package raftnode

import (
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
)

// QuietTime returns how long a member has not heard of its leader, at least, before it helps to elect another one, for ticks of
// a length, which all members have in common. So within that time after a quorum has answered a leader, no other member is elected
// unless the leader hands over; see Status.HandedOver.
func QuietTime(tick time.Duration) time.Duration { return tick / 2 }

// beQuiet waits for QuietTime, and returns false if the node has stopped before. A member that starts does not know whether it has
// answered a leader just before. What arrives meanwhile waits in the inbox.
func (n *Node) beQuiet() bool {
	quiet := QuietTime(n.cfg.TickInterval)
	if n.raft.single || quiet <= 0 {
		return true
	}
	select {
	case <-time.After(quiet):
		return true
	case <-n.stop:
	case <-n.failed:
	}
	return false
}

// slots is the number of parts of an election timeout in which elections before that timeout are timed. A part is longer than an
// election usually takes.
const slots = 40

// early is about elections before the election timeout: see DESIGN.md.
type early struct {
	// absent are the members whose processes have ended, as far as the transport sees.
	absent map[uint64]bool
	// heard is when the leader was last heard of, if any member is absent.
	heard time.Time
	// gone is the leader that was forgotten last.
	gone uint64
	// until is when the elections before the election timeout end, zero if there are none.
	until time.Time
	// next is when the next one begins.
	next time.Time
	// term is the newest one in which next was put off because of an election that is under way, terms how many there were.
	term  uint64
	terms int
	// contested is the newest term in which another member has denied this one its vote.
	contested uint64
	// timer wakes the raft goroutine.
	timer *time.Timer
}

func (e *early) init() {
	e.absent = map[uint64]bool{}
	e.timer = time.NewTimer(time.Hour)
	e.timer.Stop()
}

const (
	// voteWrites is how many writes to the log an election takes at most: votes are synced before they are sent, first that of the
	// member that asks, then those of the others, which may be writing when they are asked.
	voteWrites = 3
	// earlyTerms is the number of terms in which elections are early. The last one has the time that raft gives an election.
	earlyTerms = 3
)

// Cause is why a member began an election.
type Cause uint8

const (
	// CauseTimeout: the member heard of no leader for an election timeout.
	CauseTimeout Cause = iota
	// CauseAbsent: the process of the leader has ended.
	CauseAbsent
	// CauseTransfer: the leader has handed over.
	CauseTransfer

	causes = iota
)

func (c Cause) String() string {
	return [causes]string{CauseTimeout: "timeout", CauseAbsent: "leader-absent", CauseTransfer: "transfer"}[c]
}

// Elections returns how many elections this member has begun, by cause.
func (n *Node) Elections() map[Cause]uint64 {
	out := map[Cause]uint64{}
	for c := range n.elections {
		out[Cause(c)] = n.elections[c].Load()
	}
	return out
}

// noteElection notes that raft has begun an election.
func (n *Node) noteElection() {
	c := n.raft.cause
	n.elections[c].Add(1)
	n.cfg.Logger.Info("raft election started", slog.Uint64("term", n.term.Load()), slog.String("cause", c.String()))
}

// ReportAbsent reports that the process of a member has ended, as far as this member can see, or that it is there again.
func (n *Node) ReportAbsent(id uint64, absent bool) {
	n.inbox.call(call{report: func(*raft.RawNode) {
		if absent {
			n.raft.early.absent[id] = true
			return
		}
		delete(n.raft.early.absent, id)
		if e := &n.raft.early; id == e.gone && !e.until.IsZero() {
			// If it still leads, its next heartbeat ends the election.
			e.next = time.Now().Add(2 * time.Duration(n.cfg.HeartbeatTicks) * n.cfg.TickInterval)
		}
	}})
	n.wake()
}

// slot returns the part of the election timeout in which elections before it are timed.
func (c *Config) slot() time.Duration {
	return time.Duration(c.ElectionTicks) * c.TickInterval / slots
}

// electEarly forgets a leader that is absent, and begins elections until there is another one. Whether this member wins is decided
// by the others: those that have not lost their leader do not answer a pre-vote. The state of raft is carried out.
func (n *Node) electEarly() {
	r := &n.raft
	e := &r.early
	if len(e.absent) == 0 && e.until.IsZero() || n.cfg.NoPreVote || n.cfg.TickInterval == 0 {
		return
	}
	now := time.Now()
	lead, term := n.lead.Load(), n.term.Load()
	switch {
	case lead != raft.None && e.absent[lead] && r.state == raft.StateFollower:
		if rest := QuietTime(n.cfg.TickInterval) - now.Sub(e.heard); rest > 0 {
			e.timer.Reset(rest)
			return
		}
		n.cfg.Logger.Warn("raft leader is absent: its streams have ended, and its ports refuse connections",
			slog.Uint64("term", term), idAttr("leader", lead))
		r.moved = true
		if err := r.node.ForgetLeader(); err != nil {
			n.cfg.Logger.Debug("leader not forgotten", "error", err)
			return
		}
		e.gone = lead
		e.until = now.Add(time.Duration(n.cfg.ElectionTicks) * n.cfg.TickInterval)
		e.next, e.term, e.terms = now.Add(n.turnOf(lead)), term, 0
	case now.After(e.until) || !r.voter:
		e.until = time.Time{}
		return
	case lead != raft.None:
		return // it may lose an election that began before it was known
	case term != e.term && r.state != raft.StatePreCandidate:
		// An election is under way, this member's or another's.
		if e.term, e.terms = term, e.terms+1; e.terms > earlyTerms {
			e.until = time.Time{}
			return
		}
		e.next = now.Add(n.cfg.pause(4) + voteWrites*time.Duration(n.writeTime.Load()))
	case !now.Before(e.next) && e.terms > 0 && e.contested != term:
		// Nothing says that the election under way is lost: votes may take long on the disks of others, which this member cannot
		// measure, and a new term would make them vain.
		e.until = time.Time{}
		return
	case !now.Before(e.next):
		r.moved, r.cause = true, CauseAbsent
		if err := r.node.Campaign(); err != nil {
			n.cfg.Logger.Debug("campaign", "error", err)
		}
		e.next = now.Add(n.cfg.pause(2))
	}
	e.timer.Reset(max(e.next.Sub(now), 0))
}

// pause returns a random time of least to three times as many slots.
func (c *Config) pause(least int) time.Duration {
	d := time.Duration(least) * c.slot()
	return d + rand.N(2*d+1)
}

// turnOf returns how long this member waits before its first election: members that lose a leader at the same moment take turns, in
// the order of their ids. The first one waits for a short time, in which the others lose the leader too.
func (n *Node) turnOf(gone uint64) time.Duration {
	r := &n.raft
	before := map[uint64]bool{}
	for _, id := range slices.Concat(r.storage.conf.GetVoters(), r.storage.conf.GetVotersOutgoing()) {
		if id < n.cfg.ID && id != gone && !r.early.absent[id] {
			before[id] = true
		}
	}
	return n.cfg.slot()/4 + time.Duration(len(before))*n.cfg.slot()
}
