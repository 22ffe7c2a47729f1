package raftnode

import (
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
)

// QuietTime returns the shortest time without a message from the leader after which a member helps
// to elect another one. All members have the same length of ticks. So for that time after a quorum
// has answered a leader, no other member is elected unless the leader hands over; see
// Status.HandedOver.
func QuietTime(tick time.Duration) time.Duration { return tick / 2 }

// awaitQuietTime waits for QuietTime, because a member that starts does not know whether it
// answered a leader just before. Messages wait in the inbox. It returns false if the node stops
// first.
func (n *Node) awaitQuietTime() bool {
	quiet := QuietTime(n.cfg.TickInterval)
	if !n.Status().Among || quiet <= 0 {
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

// slots is the number of slots in an election timeout. Early elections are timed in slots. A slot
// is longer than an election usually takes.
const slots = 40

// early is the state of elections before the election timeout; see DESIGN.md.
type early struct {
	// absent are the members whose processes have ended, according to the transport.
	absent map[uint64]bool
	// heard is the time of the last message from the leader.
	heard time.Time
	// gone is the last leader that was forgotten.
	gone uint64
	// until is the end of the time for early elections, zero if there are none.
	until time.Time
	// next is the time of the next election.
	next time.Time
	// term is the newest term whose election postponed next, terms counts such terms.
	term  uint64
	terms int
	// contested is the newest term in which another member denied its vote.
	contested uint64
}

const (
	// voteWrites is the largest number of writes to logs in an election. Votes are synced before
	// they are sent: first the candidate's, then the others', which may be writing at that
	// moment.
	voteWrites = 3
	// earlyTerms is the number of terms in which elections are early. The last one gets the full
	// election timeout.
	earlyTerms = 3
)

// Cause says why a member began an election.
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
	return [causes]string{CauseTimeout: "timeout", CauseAbsent: "leader-absent",
		CauseTransfer: "transfer"}[c]
}

// Elections returns how many elections this member has begun, by cause.
func (n *Node) Elections() map[Cause]uint64 {
	out := map[Cause]uint64{}
	for c, count := range n.published.Load().elections {
		out[Cause(c)] = count
	}
	return out
}

// noteElection notes that raft has begun an election.
func (c *core) noteElection() {
	c.elections[c.cause]++
	c.o.Logger.Info("raft election started", slog.Uint64("term", c.term),
		slog.String("cause", c.cause.String()))
}

// ReportAbsent reports whether the process of a member has ended, as far as this member can see.
func (n *Node) ReportAbsent(id uint64, absent bool) {
	n.inbox.addCall(call{do: func(c *core) { c.noteAbsent(id, absent) }})
	n.wake()
}

// noteAbsent notes whether the process of a member has ended.
func (c *core) noteAbsent(id uint64, absent bool) {
	e := &c.early
	if absent {
		e.absent[id] = true
		return
	}
	delete(e.absent, id)
	if id == e.gone && !e.until.IsZero() {
		// If it still leads, its next heartbeat ends the election.
		e.next = c.in.now.Add(2 * time.Duration(c.o.HeartbeatTicks) * c.o.TickInterval)
	}
}

// slot returns the length of a slot.
func (c *settings) slot() time.Duration {
	return time.Duration(c.ElectionTicks) * c.TickInterval / slots
}

// electEarly forgets a leader that is absent, and begins elections until there is a new leader. The
// others decide whether this member wins: those that still have their leader do not answer a
// pre-vote. The caller has carried out what raft wanted.
func (c *core) electEarly() {
	e := &c.early
	if len(e.absent) == 0 && e.until.IsZero() || c.o.NoPreVote || c.o.TickInterval == 0 {
		return
	}
	now := c.in.now
	lead, term := c.lead, c.term
	switch {
	case lead != raft.None && e.absent[lead] && c.state == raft.StateFollower:
		if rest := QuietTime(c.o.TickInterval) - now.Sub(e.heard); rest > 0 {
			c.out.wakeIn, c.out.wake = rest, true
			return
		}
		c.o.Logger.Warn("raft leader is absent: its streams have ended, and its ports refuse connections",
			slog.Uint64("term", term), idAttr("leader", lead))
		c.moved = true
		if err := c.node.ForgetLeader(); err != nil {
			c.o.Logger.Debug("leader not forgotten", "error", err)
			return
		}
		e.gone = lead
		e.until = now.Add(time.Duration(c.o.ElectionTicks) * c.o.TickInterval)
		e.next, e.term, e.terms = now.Add(c.firstElectionDelay(lead)), term, 0
	case now.After(e.until) || !c.voter:
		e.until = time.Time{}
		return
	case lead != raft.None:
		return // the leader may still lose an election that began before it was known
	case term != e.term && c.state != raft.StatePreCandidate:
		// An election is under way, this member's or another's.
		if e.term, e.terms = term, e.terms+1; e.terms > earlyTerms {
			e.until = time.Time{}
			return
		}
		e.next = now.Add(c.o.pause(4) + voteWrites*c.in.writeTime)
	case !now.Before(e.next) && e.terms > 0 && e.contested != term:
		// Nothing says that the current election is lost: votes may take long on the disks of
		// others, which this member cannot measure, and a new term would waste them.
		e.until = time.Time{}
		return
	case !now.Before(e.next):
		c.moved, c.cause = true, CauseAbsent
		if err := c.node.Campaign(); err != nil {
			c.o.Logger.Debug("campaign", "error", err)
		}
		e.next = now.Add(c.o.pause(2))
	}
	c.out.wakeIn, c.out.wake = max(e.next.Sub(now), 0), true
}

// pause returns a random time between least slots and three times as many.
func (c *settings) pause(least int) time.Duration {
	d := time.Duration(least) * c.slot()
	return d + rand.N(2*d+1)
}

// firstElectionDelay returns how long this member waits before its first election. Members that
// lose a leader at the same moment take turns in the order of their ids. The first one waits a
// short time too, in which the others lose the leader.
func (c *core) firstElectionDelay(gone uint64) time.Duration {
	before := map[uint64]bool{}
	for _, id := range slices.Concat(c.storage.conf.GetVoters(),
		c.storage.conf.GetVotersOutgoing()) {
		if id < c.o.ID && id != gone && !c.early.absent[id] {
			before[id] = true
		}
	}
	return c.o.slot()/4 + time.Duration(len(before))*c.o.slot()
}
