package raftnode

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// Progress is how far the leader knows another member, or itself, to be.
type Progress struct {
	// Match is the last index of the member's log that is known to be the leader's.
	Match   uint64
	Learner bool
	// Active is set if messages can be sent to it, and it was heard of since about an election timeout.
	Active bool
	// Heard is set if it has answered one of the last heartbeats, as it does without delay.
	Heard bool
}

// ask runs a function in a turn, which must not block.
func (n *Node) ask(f func(*raft.RawNode)) error {
	done := make(chan struct{})
	n.inbox.call(call{report: func(rn *raft.RawNode) {
		f(rn)
		close(done)
	}})
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
	err := n.ask(func(rn *raft.RawNode) {
		if rn.BasicStatus().RaftState == raft.StateLeader {
			out = n.progress(rn)
		}
	})
	return out, err
}

func (n *Node) progress(rn *raft.RawNode) map[uint64]Progress {
	out := map[uint64]Progress{}
	rn.WithProgress(func(id uint64, typ raft.ProgressType, pr tracker.Progress) {
		// Raft forgets what it has heard at the end of each election timeout.
		heard := n.raft.progress.heardOf(id, heardHeartbeats*n.cfg.HeartbeatTicks)
		active := id == n.cfg.ID || n.connectedTo(id) && (heard || pr.RecentActive)
		out[id] = Progress{Match: pr.Match, Learner: typ == raft.ProgressTypeLearner, Active: active, Heard: heard}
	})
	return out
}

// heardHeartbeats is how many heartbeats a member that works may leave unanswered: the answer to the last one is on its way.
const heardHeartbeats = 3

// connectedTo reports whether messages can be sent to a member. Raft itself takes one for active until an election timeout has ended in
// which nothing was heard of it.
func (n *Node) connectedTo(id uint64) bool {
	return n.cfg.Transport != nil && !n.cfg.Transport.ConnectedSince(id).IsZero()
}

// TransferLeader begins to hand leadership over to a voter, 0 for the one that is farthest, if this
// member leads. It returns the chosen member, 0 if there is none or this is not the leader. Proposals wait
// until raft has given up, after an election timeout, or there is another leader.
func (n *Node) TransferLeader(to uint64) (chosen uint64, err error) {
	err = n.ask(func(rn *raft.RawNode) {
		if rn.BasicStatus().RaftState != raft.StateLeader {
			return
		}
		chosen = n.transfer(rn, to)
	})
	return chosen, err
}

// transfer begins to hand leadership over. This member leads. A member that does not answer is the last choice: it may be stopped, or
// behind a cable that was pulled.
func (n *Node) transfer(rn *raft.RawNode, to uint64) (chosen uint64) {
	var best Progress
	for id, p := range n.progress(rn) {
		switch {
		case p.Learner || id == n.cfg.ID || to != 0 && id != to || to == 0 && !p.Active:
		case chosen == 0 || p.Heard && !best.Heard || p.Heard == best.Heard && (p.Match > best.Match || p.Match == best.Match && id < chosen):
			chosen, best = id, p
		}
	}
	if chosen != 0 {
		rn.TransferLeader(chosen)
		n.raft.transferring = true
	}
	return chosen
}

// retire hands leadership over if this member leads and is no voter any more. Until that has happened it goes
// on to send entries and heartbeats. Raft's StepDownOnRemoval would end that at once: of two voters, the one that
// is left could lack entries of this member's log, or not know that the removal is committed, and would ask for
// a vote that it never gets.
func (n *Node) retire() {
	if r := &n.raft; r.state == raft.StateLeader && !r.voter && !n.handingOver() {
		n.transfer(r.node, 0)
	}
}

// TakeLeadership asks the leader to hand over to this member, if it follows one.
func (n *Node) TakeLeadership() error {
	return n.ask(func(rn *raft.RawNode) {
		if rn.BasicStatus().RaftState == raft.StateFollower {
			rn.TransferLeader(n.cfg.ID)
		}
	})
}

// Among reports whether there are other members, so that a proposal may wait for an outcome of another.
func (n *Node) Among() bool { return n.among.Load() }

// AdvanceElection lets the clock of the next election jump ahead by ticks, if this member hears of no leader. It
// reports whether it did.
func (n *Node) AdvanceElection(ticks int) (advanced bool, err error) {
	err = n.ask(func(rn *raft.RawNode) {
		if st := rn.BasicStatus(); st.RaftState != raft.StateFollower || st.Lead != raft.None {
			return
		}
		for range ticks {
			rn.Tick()
		}
		advanced = true
	})
	return advanced, err
}
