package raftnode

import (
	"log/slog"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// stageWatch watches one stage of the pipeline. It counts ticks, because a suspended process gets
// none and must not look like one with a slow disk.
type stageWatch struct {
	steps uint64 // at the last tick
	// still counts the ticks in a row with work and without a completed step. overtaken, on a
	// leader, counts those in which another member was ahead as well.
	still, overtaken int
}

// observe notes at a tick whether the stage has work, and how many steps it has completed so far.
func (s *stageWatch) observe(work bool, steps uint64) {
	if work && steps == s.steps {
		s.still++
	} else {
		s.still, s.overtaken = 0, 0
	}
	s.steps = steps
}

// countOvertaken notes whether another member is ahead in the stage. It follows observe.
func (s *stageWatch) countOvertaken(ahead bool) {
	if ahead && s.still > 0 {
		s.overtaken++
	} else {
		s.overtaken = 0
	}
}

// The stages.
const (
	appending = iota
	applying
	stages
)

// progress knows whether this member does its work; see DESIGN.md. It is owned by the turn stage.
type progress struct {
	stages [stages]stageWatch
	// applied is the applied index at the last tick.
	applied uint64
	// stalled is set while a stage has stood still for an election timeout.
	stalled bool
	// commits is a ring of the commit indexes of the last lateTimeouts election timeouts; next is
	// the oldest.
	commits []uint64
	next    int
	// mark is an index that was committed while this member was late, 0 if it is not late. Current
	// advances when mark is applied.
	mark uint64
	// unfit is the number of ticks for which others do not ask this member to lead, because it was
	// recently stalled or late.
	unfit int
	// elections counts the elections that this member has begun since it stalled.
	elections int
	relief    relief
}

// relief is a leader's knowledge of members that could lead better. It is empty on other members.
type relief struct {
	reports map[uint64]report
	// ticks counts the leader's ticks: a member without a report for half an election timeout may
	// be gone.
	ticks int
	// asked is set when another member was asked to take over. silent is set when that failed: then
	// this member sends nothing.
	asked, silent bool
}

// report is a member's report about itself in its last answer to a heartbeat.
type report struct {
	applied uint64
	// hung is set if it cannot write, not even a vote.
	hung, unfit bool
	tick        int
}

// unfitTimeouts is the number of election timeouts for which a member that stalled is not asked to
// lead. Where all disks need longer than an election timeout for a sync, each member is ahead of
// the others for a moment, and not stalled for one election timeout after each sync. Leadership
// must not follow that.
const unfitTimeouts = 2

// stampReport adds a report about this member to an answer to a heartbeat, in fields that raft does
// not use there.
func (p *progress) stampReport(m *raftpb.Message) {
	hung := p.stalled && p.stages[appending].still > 0
	m.Index, m.Reject, m.RejectHint = new(p.applied), new(hung), new(uint64(p.unfit))
}

// lateTimeouts is the number of election timeouts after its commit within which this member must
// apply an entry. A disk that syncs in a little less than an election timeout needs almost two for
// an entry that arrives during a sync. A disk that falls behind its load needs ever more.
const lateTimeouts = 2

// rotateCommits stores the commit index of a tick, and returns the one of lateTimeouts election
// timeouts ago, which must be applied by now.
func (p *progress) rotateCommits(commit uint64, ticks int) (index uint64) {
	if p.commits == nil {
		p.commits = make([]uint64, lateTimeouts*ticks)
	}
	index, p.commits[p.next] = p.commits[p.next], commit
	p.next = (p.next + 1) % len(p.commits)
	return index
}

// takeReport stores the report of another member. This member leads.
func (p *progress) takeReport(m *raftpb.Message) {
	if p.relief.reports == nil {
		p.relief.reports = map[uint64]report{}
	}
	p.relief.reports[m.GetFrom()] = report{m.GetIndex(), m.GetReject(), m.GetRejectHint() > 0,
		p.relief.ticks}
}

// heardOf reports whether a member has answered a heartbeat within a number of ticks. This member
// leads.
func (p *progress) heardOf(id uint64, ticks int) bool {
	said, ok := p.relief.reports[id]
	return ok && p.relief.ticks-said.tick <= ticks
}

// Advance reports that Machine has made progress with a run, so that a long run does not look like
// a stall.
func (n *Node) Advance() { n.advanced.Add(1) }

// watchProgress checks at a tick whether this member does its work, and hands leadership over if
// others do it better.
func (c *core) watchProgress(now time.Time) {
	st := c.node.BasicStatus()
	p := &c.work
	p.applied = st.Applied
	p.stages[appending].observe(c.in.busy[appending], c.in.steps[appending])
	p.stages[applying].observe(st.Applied < st.HardState.GetCommit() || c.in.busy[applying],
		c.in.steps[applying])
	still := max(p.stages[appending].still, p.stages[applying].still)
	due := p.rotateCommits(st.HardState.GetCommit(), c.o.ElectionTicks)
	late := due > st.Applied
	switch {
	case !late:
		p.mark = 0
	case p.mark == 0:
		p.mark = st.HardState.GetCommit()
	}
	if still == 0 && p.mark <= st.Applied {
		p.mark = 0
		c.current = wall(now)
	}
	if stalled := still >= c.o.ElectionTicks; stalled != p.stalled {
		p.stalled, p.elections = stalled, 0
		log := c.o.Logger.With(slog.Uint64("applied", st.Applied),
			slog.Uint64("committed", st.HardState.GetCommit()))
		switch {
		case !stalled:
			log.Info("this member gets on with its work again")
		case p.stages[appending].still == still:
			log.Warn("the raft log has taken nothing for an election timeout: the disk hangs, is full or is too slow")
		default:
			log.Warn("nothing was applied for an election timeout: the disk of the history hangs or is full, or a request takes long")
		}
	}
	if p.unfit = max(p.unfit-1, 0); p.stalled || late {
		p.unfit = unfitTimeouts * c.o.ElectionTicks
	}
	if c.state != raft.StateLeader {
		p.relief = relief{}
		return
	}
	c.relieve(still, due)
}

// relieve hands leadership over after an election timeout in which a stage stood still here, for
// still ticks now, while another member was ahead in it. Work that takes all members as long, such
// as a large request or slow disks everywhere, does not count. It also hands over if this member
// has not applied due and another one has.
func (c *core) relieve(still int, due uint64) {
	p := &c.work
	f, late := &p.relief, due > p.applied
	f.ticks++
	if still == 0 && !late {
		f.asked = false
		return
	}
	all := c.progress()
	own := all[c.o.ID].Match
	var best [stages]uint64 // of the members that are ahead, the one with the longest log
	able := map[uint64]bool{}
	for id, o := range all {
		said, ok := f.reports[id]
		if !ok || o.Learner || said.hung || f.ticks-said.tick > c.o.ElectionTicks/2 {
			continue
		}
		able[id] = true
		for s, ahead := range [stages]bool{appending: o.Match > own,
			applying: said.applied > p.applied} {
			if b := best[s]; ahead && !said.unfit &&
				(b == raft.None || o.Match > all[b].Match || o.Match == all[b].Match && id < b) {
				best[s] = id
			}
		}
	}
	to := uint64(raft.None)
	for s := range p.stages {
		if p.stages[s].countOvertaken(best[s] != raft.None); p.stages[s].overtaken >= c.o.ElectionTicks {
			to = best[s]
		}
	}
	if late && f.reports[best[applying]].applied >= due {
		to = best[applying]
	}
	if to == raft.None || c.checkHandingOver() || f.silent || !c.storage.majority(able) {
		return
	}
	log := c.o.Logger.With(slog.Uint64("term", c.term), idAttr("to", to))
	if f.asked {
		f.silent = true
		log.Warn("leadership was not taken over: this member is silent, so that another one is elected")
		return
	}
	f.asked, c.transferring, c.moved = true, true, true
	c.node.TransferLeader(to)
	c.relieved++
	log.Warn("handing leadership over: others do what this member has not done in time",
		slog.Uint64("applied", p.applied), slog.Uint64("due", due))
}

// countElection reports whether this member may ask for votes in an election that it begins. A
// stalled member would be a stalled leader, but may be the only one that can win, so it asks in one
// of stalledElections elections. Without pre-votes an election has already ended the term.
func (p *progress) countElection() bool {
	if !p.stalled {
		return true
	}
	p.elections++
	return p.elections%stalledElections == 0
}

// stalledElections is how many elections a stalled member begins for each one in which it asks for
// votes.
const stalledElections = 5

// withoutMuted removes the messages that a stalled member does not send: requests for votes, and
// everything if it leads and nobody takes over.
func (c *core) withoutMuted(msgs []*raftpb.Message) []*raftpb.Message {
	p := &c.work
	if p.relief.silent {
		clear(msgs)
		return msgs[:0]
	}
	asks := func(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgPreVote }
	if p.stalled && slices.ContainsFunc(msgs, asks) && !p.countElection() {
		return slices.DeleteFunc(msgs, asks)
	}
	return msgs
}
