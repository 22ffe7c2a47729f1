package raftnode

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// Progress is what the leader knows about the position of a member.
type Progress struct {
	// Match is the last index up to which the member's log is known to equal the leader's.
	Match   uint64
	Learner bool
	// Active is set if messages can be sent to it, and it was heard within about an election
	// timeout.
	Active bool
	// Heard is set if it has answered one of the last heartbeats.
	Heard bool
}

// runInTurn runs a function in a turn, which must not block.
func (n *Node) runInTurn(f func(*core)) error {
	done := make(chan struct{})
	n.inbox.addCall(call{f, done})
	n.wake()
	select {
	case <-done:
		return nil
	case <-n.dead:
		return ErrStopped
	}
}

// Progress returns how far each member is, if this one is the leader, and nil otherwise.
func (n *Node) Progress() (map[uint64]Progress, error) {
	var out map[uint64]Progress
	err := n.runInTurn(func(c *core) {
		if c.node.BasicStatus().RaftState == raft.StateLeader {
			out = c.progress()
		}
	})
	return out, err
}

func (c *core) progress() map[uint64]Progress {
	out := map[uint64]Progress{}
	c.node.WithProgress(func(id uint64, typ raft.ProgressType, pr tracker.Progress) {
		// Raft resets RecentActive at the end of each election timeout, so it may be wrong for that
		// long.
		heard := c.work.heardOf(id, heardHeartbeats*c.o.HeartbeatTicks)
		active := id == c.o.ID || c.in.connected[id] && (heard || pr.RecentActive)
		out[id] = Progress{Match: pr.Match, Learner: typ == raft.ProgressTypeLearner,
			Active: active, Heard: heard}
	})
	return out
}

// heardHeartbeats is the number of recent heartbeats of which a healthy member has answered at
// least one: the last answers may be on their way.
const heardHeartbeats = 3

// TransferLeader begins to hand leadership over to a voter, 0 for the most advanced one, if this
// member leads. It returns the chosen member, 0 if there is none or this member does not lead.
// Proposals wait until there is another leader, or raft gives up after an election timeout.
func (n *Node) TransferLeader(to uint64) (chosen uint64, err error) {
	err = n.runInTurn(func(c *core) {
		if c.node.BasicStatus().RaftState == raft.StateLeader {
			chosen = c.transfer(to)
		}
	})
	return chosen, err
}

// transfer begins to hand leadership over. This member leads. A member that does not answer is the
// last choice: it may be stopped or disconnected.
func (c *core) transfer(to uint64) (chosen uint64) {
	var best Progress
	for id, p := range c.progress() {
		switch {
		case p.Learner || id == c.o.ID || to != 0 && id != to || to == 0 && !p.Active:
		case chosen == 0 || p.Heard && !best.Heard || p.Heard == best.Heard &&
			(p.Match > best.Match || p.Match == best.Match && id < chosen):
			chosen, best = id, p
		}
	}
	if chosen != 0 {
		c.node.TransferLeader(chosen)
		c.transferring = true
	}
	return chosen
}

// handOverIfRemoved hands leadership over if this member leads and is not a voter any more. Until
// then it goes on to send entries and heartbeats. Raft's StepDownOnRemoval would stop at once: of
// two voters, the remaining one could lack entries of this member's log, or not know that the
// removal is committed, and would ask for a vote that never comes.
func (c *core) handOverIfRemoved() {
	if c.state == raft.StateLeader && !c.voter && !c.checkHandingOver() {
		c.transfer(0)
	}
}

// TakeLeadership asks the leader to hand over to this member, if it follows one.
func (n *Node) TakeLeadership() error {
	return n.runInTurn(func(c *core) {
		if c.node.BasicStatus().RaftState == raft.StateFollower {
			c.node.TransferLeader(c.o.ID)
		}
	})
}

// AdvanceElection advances the clock of the next election by ticks, if this member hears of no
// leader. It reports whether it did.
func (n *Node) AdvanceElection(ticks int) (advanced bool, err error) {
	err = n.runInTurn(func(c *core) {
		if st := c.node.BasicStatus(); st.RaftState != raft.StateFollower || st.Lead != raft.None {
			return
		}
		for range ticks {
			c.node.Tick()
		}
		advanced = true
	})
	return advanced, err
}
