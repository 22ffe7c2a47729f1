package raftnode

import (
	"bytes"
	"errors"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// A forwarded proposal carries the term in which it was made, in a field that raft does not use
// there, and only the leader of that term accepts it. So an entry of a later term settles its fate:
// if the log does not hold the proposal before that entry, it never will.

// stampTerm marks a proposal for the leader of the present term.
func (c *core) stampTerm(m *raftpb.Message) { m.LogTerm = new(c.term) }

// takeForwarded steps a proposal of another member, or notes that a leader refused one of this
// member.
func (c *core) takeForwarded(m *raftpb.Message) {
	if m.GetReject() {
		for _, e := range m.GetEntries() {
			c.out.refused = append(c.out.refused, e.GetData())
		}
		return
	}
	st := c.node.BasicStatus()
	if st.RaftState != raft.StateLeader || st.HardState.GetTerm() != m.GetLogTerm() {
		c.o.Logger.Debug("proposal for another term dropped", "from", m.GetFrom(), "term",
			m.GetLogTerm())
		return
	}
	conf := slices.ContainsFunc(m.GetEntries(), isConfChange)
	if len(c.held) == 0 && !(conf && c.confPending(st)) {
		for _, e := range m.GetEntries() {
			if !isConfChange(e) {
				c.o.Stamp(c.term, e.GetData())
			}
		}
		err := c.node.Step(m)
		c.confStepped = c.confStepped || conf && err == nil
		if !errors.Is(err, raft.ErrProposalDropped) {
			return
		}
	}
	// Leadership is being handed over, too much is uncommitted, or a configuration change is under
	// way. All of these end.
	size := uint64(0)
	for _, e := range m.GetEntries() {
		size += uint64(len(e.GetData()))
	}
	own := m.GetFrom() == c.o.ID // of which there is one at most
	if held := len(c.held); !own &&
		(held > 0 && c.heldBytes+size > c.o.MaxUncommitted || held >= maxPeerMessages) {
		c.out.messages = append(c.out.messages, refusal(m, c.o.ID))
		return
	}
	c.holdProposal(m, size)
}

// holdProposal keeps a proposal until there is room for it.
func (c *core) holdProposal(m *raftpb.Message, size uint64) {
	c.held = append(c.held, m)
	c.heldBytes += size
	c.out.again = true // entries may have been acknowledged before the status says that it is held
}

// holdOwnProposal keeps a proposal of the leader itself until enough is committed. Otherwise one
// large request would fail all requests of the next group.
func (c *core) holdOwnProposal(data []byte) {
	m := &raftpb.Message{Type: raftpb.MsgProp.Enum(), From: new(c.o.ID), To: new(c.o.ID),
		Entries: []*raftpb.Entry{{Data: bytes.Clone(data)}}}
	c.stampTerm(m)
	c.holdProposal(m, uint64(len(data)))
}

// holdsOwnProposal reports whether a proposal of the leader itself waits for room.
func (c *core) holdsOwnProposal() bool {
	return slices.ContainsFunc(c.held,
		func(m *raftpb.Message) bool { return m.GetFrom() == c.o.ID })
}

// refusedHead is the number of bytes of a refused proposal that are sent back: they contain its
// sequence number.
const refusedHead = 64

// refusal returns the answer to a proposal that the leader refuses. No leader will ever accept it,
// because no other leader has its term. If the answer is lost, the proposer waits until its
// requests expire. So does the proposer of a configuration change.
func refusal(m *raftpb.Message, leader uint64) *raftpb.Message {
	answer := &raftpb.Message{Type: raftpb.MsgProp.Enum(), From: new(leader), To: new(m.GetFrom()),
		LogTerm: new(m.GetLogTerm()), Reject: new(true)}
	for _, e := range m.GetEntries() {
		if data := e.GetData(); !isConfChange(e) {
			// A copy, because the answer would otherwise keep the whole proposal in memory until it
			// is sent.
			answer.Entries = append(answer.Entries,
				&raftpb.Entry{Data: bytes.Clone(data[:min(len(data), refusedHead)])})
		}
	}
	return answer
}

func isConfChange(e *raftpb.Entry) bool { return e.GetType() != raftpb.EntryNormal }

// confPending reports whether raft would replace a configuration change with an empty entry,
// because it does not know that the previous one is applied. Its proposer would wait for nothing.
func (c *core) confPending(st raft.BasicStatus) bool {
	return st.RaftState == raft.StateLeader && (c.confStepped || c.lastConf > st.Applied)
}

// room is what decides whether a held proposal fits: raft frees uncommitted bytes when they are
// applied.
type room struct {
	acknowledged, term uint64
	state              raft.StateType
	handingOver        bool
}

// retryHeld retries held proposals, but only if the room has changed, because raft logs each one
// that it drops.
func (c *core) retryHeld() {
	if len(c.held) == 0 {
		return
	}
	now := room{c.acknowledged, c.term, c.state, c.checkHandingOver()}
	if now == c.heldAt {
		return
	}
	c.heldAt = now
	list := c.held
	c.held, c.heldBytes = nil, 0
	for _, m := range list {
		c.takeForwarded(m)
	}
	c.moved = true
}

// checkHandingOver reports whether leadership is being handed over, so that raft would drop
// proposals.
func (c *core) checkHandingOver() bool {
	if c.transferring {
		st := c.node.BasicStatus()
		c.transferring = st.RaftState == raft.StateLeader && st.LeadTransferee != raft.None
	}
	return c.transferring
}

// forwarding bounds the proposals of this member without an outcome. A lost one counts until no
// outcome has arrived for half an election timeout.
type forwarding struct {
	term uint64
	// seen is the number outstanding at the last tick, still the number of ticks since it changed.
	seen, still int
	// lost is the number that was given up.
	lost int
}

// room reports whether another proposal may be proposed in a term.
func (f *forwarding) room(o *settings, term uint64, outstanding int) bool {
	if f.term != term {
		*f = forwarding{term: term}
	}
	f.lost = min(f.lost, outstanding)
	return outstanding-f.lost < o.MaxInFlight
}

// tick notes the number of proposals without an outcome at a tick.
func (f *forwarding) tick(o *settings, single bool, outstanding int) {
	if single {
		return
	}
	if outstanding != f.seen || outstanding == 0 {
		f.seen, f.still = outstanding, 0
		return
	}
	if f.still++; f.still >= max(o.ElectionTicks/2, 1) {
		f.lost, f.still = outstanding, 0
	}
}
