package raftnode

import (
	"bytes"
	"errors"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// A proposal that is forwarded carries the term in which it was made, in a field that raft does not
// use there, and is taken only by the leader of that term. So an entry of a later term settles what
// became of it: what the log does not hold in front of that entry is never going to be in it.

// stamp marks a proposal for the leader of the present term.
func (n *Node) stamp(m *raftpb.Message) { m.LogTerm = new(n.term.Load()) }

// takeForwarded steps a proposal of another member, or takes the leader's refusal of an own one.
func (n *Node) takeForwarded(m *raftpb.Message) {
	if m.GetReject() {
		for _, e := range m.GetEntries() {
			n.cfg.Proposals.Refused(e.GetData())
		}
		return
	}
	st := n.raft.node.BasicStatus()
	if st.RaftState != raft.StateLeader || st.HardState.GetTerm() != m.GetLogTerm() {
		n.cfg.Logger.Debug("proposal for another term dropped", "from", m.GetFrom(), "term", m.GetLogTerm())
		return
	}
	conf := slices.ContainsFunc(m.GetEntries(), isConfChange)
	if len(n.raft.held) == 0 && !(conf && n.confPending(st)) {
		err := n.raft.node.Step(m)
		n.raft.confStepped = n.raft.confStepped || conf && err == nil
		if !errors.Is(err, raft.ErrProposalDropped) {
			return
		}
	}
	// Leadership is being handed over, too much is uncommitted, or a configuration change is under way.
	// All of it ends.
	size := uint64(0)
	for _, e := range m.GetEntries() {
		size += uint64(len(e.GetData()))
	}
	own := m.GetFrom() == n.cfg.ID // of which there is one at most
	if held := len(n.raft.held); !own && (held > 0 && n.raft.heldBytes+size > n.cfg.MaxUncommitted || held >= maxPeerMessages) {
		n.send([]*raftpb.Message{refusal(m, n.cfg.ID)})
		return
	}
	n.hold(m, size)
}

// hold keeps a proposal until there is room for it.
func (n *Node) hold(m *raftpb.Message, size uint64) {
	n.raft.held = append(n.raft.held, m)
	n.raft.heldBytes += size
	n.holding.Store(true)
	n.wake() // entries may have been acknowledged just before
}

// holdOwn keeps a proposal of the leader itself until there is room: too much is uncommitted. It would fail otherwise, with all requests in
// it, because of one large request before.
func (n *Node) holdOwn(data []byte) {
	m := &raftpb.Message{Type: raftpb.MsgProp.Enum(), From: new(n.cfg.ID), To: new(n.cfg.ID), Entries: []*raftpb.Entry{{Data: bytes.Clone(data)}}}
	n.stamp(m)
	n.hold(m, uint64(len(data)))
}

// holdsOwn reports whether a proposal of the leader itself waits for room.
func (n *Node) holdsOwn() bool {
	return slices.ContainsFunc(n.raft.held, func(m *raftpb.Message) bool { return m.GetFrom() == n.cfg.ID })
}

// refusedHead is how much of a refused proposal is sent back: it begins with a number of its own.
const refusedHead = 64

// refusal is the answer to a proposal that the leader does not take. It never will be taken: no other leader has its term. A member
// of an older version takes the answer for a proposal of a term that it does not lead, and waits until its requests expire, as it does
// if the answer is lost. So does the proposer of a configuration change.
func refusal(m *raftpb.Message, leader uint64) *raftpb.Message {
	answer := &raftpb.Message{Type: raftpb.MsgProp.Enum(), From: new(leader), To: new(m.GetFrom()), LogTerm: new(m.GetLogTerm()), Reject: new(true)}
	for _, e := range m.GetEntries() {
		if data := e.GetData(); !isConfChange(e) {
			// A copy, or the answer would keep all of the proposal in memory until it is sent.
			answer.Entries = append(answer.Entries, &raftpb.Entry{Data: bytes.Clone(data[:min(len(data), refusedHead)])})
		}
	}
	return answer
}

func isConfChange(e *raftpb.Entry) bool { return e.GetType() != raftpb.EntryNormal }

// confPending reports whether raft would replace a configuration change by an empty entry, because it does
// not know the one before to be applied. The proposer would wait in vain.
func (n *Node) confPending(st raft.BasicStatus) bool {
	return st.RaftState == raft.StateLeader && (n.raft.confStepped || n.raft.lastConf > st.Applied)
}

// room is what taking a proposal depends on: raft frees what was uncommitted when it is applied.
type room struct {
	acknowledged, term uint64
	state              raft.StateType
	handingOver        bool
}

// retryHeld tries again what could not be taken, if anything has changed: raft logs each that it drops.
func (n *Node) retryHeld() {
	if len(n.raft.held) == 0 {
		return
	}
	now := room{n.acknowledged.Load(), n.term.Load(), n.raft.state, n.handingOver()}
	if now == n.raft.heldAt {
		return
	}
	n.raft.heldAt = now
	list := n.raft.held
	n.raft.held, n.raft.heldBytes = nil, 0
	n.holding.Store(false)
	for _, m := range list {
		n.takeForwarded(m)
	}
	n.raft.moved = true
}

// handingOver reports whether leadership is being handed over, so that raft would drop proposals.
func (n *Node) handingOver() bool {
	r := &n.raft
	if r.transferring {
		st := r.node.BasicStatus()
		r.transferring = st.RaftState == raft.StateLeader && st.LeadTransferee != raft.None
	}
	return r.transferring
}

// forwarding bounds the proposals of this member that have no outcome yet. One that got lost keeps its
// place only until there was no outcome of any for half an election timeout.
type forwarding struct {
	term uint64
	// seen is the number outstanding at the last tick, still since how many ticks it is unchanged.
	seen, still int
	// lost are those that are given up.
	lost int
}

// room reports whether another proposal may be handed out in a term.
func (f *forwarding) room(n *Node, term uint64) bool {
	out := n.cfg.Proposals.Outstanding(term)
	if f.term != term {
		*f = forwarding{term: term}
	}
	f.lost = min(f.lost, out)
	return out-f.lost < n.cfg.MaxInFlight
}

func (f *forwarding) tick(n *Node) {
	if n.raft.single {
		return
	}
	out := n.cfg.Proposals.Outstanding(n.term.Load())
	if out != f.seen || out == 0 {
		f.seen, f.still = out, 0
		return
	}
	if f.still++; f.still >= max(n.cfg.ElectionTicks/2, 1) {
		f.lost, f.still = out, 0
	}
}
