package raftnode

import (
	"log/slog"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// stageWatch watches one stage of the member's pipeline. It counts in ticks: a process that was suspended gets none, and its disk is not slow.
type stageWatch struct {
	steps uint64 // at the last tick
	// still counts the ticks in a row in which there was work of which no step ended, overtaken, at a leader, those in which another
	// member was ahead at that.
	still, overtaken int
}

// observe takes the state of the stage at a tick: whether work waits or is under way, and how many steps have ended so far.
func (s *stageWatch) observe(work bool, steps uint64) {
	if work && steps == s.steps {
		s.still++
	} else {
		s.still, s.overtaken = 0, 0
	}
	s.steps = steps
}

// countOvertaken takes whether another member is ahead in the stage, at the tick that was observed last.
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

// progress is whether this member does its work: see DESIGN.md. It is owned by the turn stage.
type progress struct {
	stages [stages]stageWatch
	// applied is the index that was applied at the last tick.
	applied uint64
	// stalled is set while a stage has stood still for an election timeout.
	stalled bool
	// commits are the commit indexes of the last ticks, lateTimeouts election timeouts of them, from the next one on.
	commits []uint64
	next    int
	// mark is an index that was committed while this member was late, 0 if it is not: its time goes on when that is applied.
	mark uint64
	// unfit counts the ticks down for which this member is not asked to lead: it was stalled or late lately.
	unfit int
	// elections counts those that this member has begun since it is stalled.
	elections int
	relief    relief
}

// relief is what a leader knows about members that could lead better. It is empty at other members.
type relief struct {
	reports map[uint64]report
	// ticks counts the ticks of the leader: a member that has not reported for half an election timeout may be gone.
	ticks int
	// asked is set when another member was asked to take over, silent when that was in vain: then nothing is sent any more.
	asked, silent bool
}

// report is what another member has said of itself in its last answer to a heartbeat.
type report struct {
	applied uint64
	// hung is set if it cannot write, not even a vote.
	hung, unfit bool
	tick        int
}

// unfitTimeouts is for how many election timeouts a member that has stalled is not asked to lead. Where all disks need longer than an
// election timeout for a sync, each member is ahead of the others for a moment again and again, and leadership must not follow that: such
// a member is not stalled for one election timeout after each sync.
const unfitTimeouts = 2

// stampReport adds a report about this member to an answer to a heartbeat, in fields that raft leaves alone there. An older member does not
// report: it looks like one that has applied nothing.
func (p *progress) stampReport(m *raftpb.Message) {
	hung := p.stalled && p.stages[appending].still > 0
	m.Index, m.Reject, m.RejectHint = new(p.applied), new(hung), new(uint64(p.unfit))
}

// lateTimeouts is how many election timeouts after its commit an entry must be applied here. A disk that syncs in a little less than an
// election timeout needs almost two for an entry that arrives during a sync. One that does less than it gets needs ever more.
const lateTimeouts = 2

// rotateCommits takes the commit index of a tick, and returns that of lateTimeouts election timeouts ago, which must be applied by now.
func (p *progress) rotateCommits(commit uint64, ticks int) (index uint64) {
	if p.commits == nil {
		p.commits = make([]uint64, lateTimeouts*ticks)
	}
	index, p.commits[p.next] = p.commits[p.next], commit
	p.next = (p.next + 1) % len(p.commits)
	return index
}

// takeReport takes the report of another member. This member leads.
func (p *progress) takeReport(m *raftpb.Message) {
	if p.relief.reports == nil {
		p.relief.reports = map[uint64]report{}
	}
	p.relief.reports[m.GetFrom()] = report{m.GetIndex(), m.GetReject(), m.GetRejectHint() > 0, p.relief.ticks}
}

// heardOf reports whether a member has answered a heartbeat in a number of ticks. This member leads.
func (p *progress) heardOf(id uint64, ticks int) bool {
	said, ok := p.relief.reports[id]
	return ok && p.relief.ticks-said.tick <= ticks
}

// Advance reports that the caller of Committed has got on with what it was given, so that a long run is not taken for one that stands
// still.
func (n *Node) Advance() { n.advanced.Add(1) }

// watchProgress looks at a tick whether this member does its work, and hands leadership over if others do it better. It is called in a turn.
func (c *core) watchProgress(now time.Time) {
	st := c.node.BasicStatus()
	p := &c.work
	p.applied = st.Applied
	p.stages[appending].observe(c.in.busy[appending], c.in.steps[appending])
	p.stages[applying].observe(st.Applied < st.HardState.GetCommit() || c.in.busy[applying], c.in.steps[applying])
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
		log := c.o.Logger.With(slog.Uint64("applied", st.Applied), slog.Uint64("committed", st.HardState.GetCommit()))
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

// relieve hands leadership over after an election timeout in which a stage stood still here, while another member was ahead in it. What
// takes all members as long, such as a large request or disks that all are slow, does not count. It does so as well if what is due is not
// applied here and another member has applied it. A stage stands still for so many ticks.
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
	var best [stages]uint64 // the members with the longest logs of those that are ahead
	able := map[uint64]bool{}
	for id, o := range all {
		said, ok := f.reports[id]
		if !ok || o.Learner || said.hung || f.ticks-said.tick > c.o.ElectionTicks/2 {
			continue
		}
		able[id] = true
		for s, ahead := range [stages]bool{appending: o.Match > own, applying: said.applied > p.applied} {
			if b := best[s]; ahead && !said.unfit && (b == raft.None || o.Match > all[b].Match || o.Match == all[b].Match && id < b) {
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
	log.Warn("handing leadership over: others do what this member has not done in time", slog.Uint64("applied", p.applied), slog.Uint64("due", due))
}

// mayAsk reports whether this member may ask for votes in an election that it begins. One that is stalled would be a leader that is
// stalled. It asks in one of some elections, because it may be the only one that can win. Without pre-votes an election has ended the
// term already.
func (p *progress) mayAsk() bool {
	if !p.stalled {
		return true
	}
	p.elections++
	return p.elections%stalledElections == 0
}

// stalledElections is the number of elections that a stalled member begins for one in which it asks for votes.
const stalledElections = 5

// withoutMuted removes what a stalled member does not send: requests for votes, and as a leader whom nobody relieves, everything.
func (c *core) withoutMuted(msgs []*raftpb.Message) []*raftpb.Message {
	p := &c.work
	if p.relief.silent {
		clear(msgs)
		return msgs[:0]
	}
	asks := func(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgPreVote }
	if p.stalled && slices.ContainsFunc(msgs, asks) && !p.mayAsk() {
		return slices.DeleteFunc(msgs, asks)
	}
	return msgs
}
