package raftnode

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// InstallSnapshot gives raft a MsgSnap whose state is whole, verified and durable aside. If raft
// accepts it, the snapshot comes out of Committed in its turn, or the member fails. If not, because
// the member has come as far by itself or the sender's term is over, nothing comes of it and the state
// may be thrown away. The error is ErrStopped, or that of a message that is none: then it is not known
// whether raft has accepted it, and the state must stay for the next start.
func (n *Node) InstallSnapshot(m *raftpb.Message) (accepted bool, err error) {
	if s := m.GetSnapshot(); m.GetType() != raftpb.MsgSnap || raft.IsEmptySnap(s) || m.GetTo() != n.cfg.ID || m.GetFrom() == 0 || m.GetTerm() == 0 {
		return false, fmt.Errorf("raftnode: %v from %x to %x is no snapshot for %x", m.GetType(), m.GetFrom(), m.GetTo(), n.cfg.ID)
	}
	if err := n.runInTurn(func(c *core) { accepted = c.takeSnapshot(m) }); err != nil {
		return false, err
	}
	return accepted, nil
}

// takeSnapshot steps a snapshot and reports whether raft accepted it.
func (c *core) takeSnapshot(m *raftpb.Message) (accepted bool) {
	for c.collectReady() {
	}
	before := c.restored
	if err := c.node.Step(m); err != nil {
		c.o.Logger.Debug("snapshot refused", "from", m.GetFrom(), "error", err)
	}
	c.moved = true
	for c.collectReady() {
	}
	// Raft accepts no snapshot twice: the index of the next one is higher.
	return c.restored > before
}

// ReportSnapshot says how the snapshot ended that Snapshots was given for a member: ok if the member
// has installed it, or does not need it.
func (n *Node) ReportSnapshot(id uint64, ok bool) {
	status := raft.SnapshotFinish
	if !ok {
		status = raft.SnapshotFailure
	}
	n.inbox.addCall(call{do: func(c *core) { c.node.ReportSnapshot(id, status) }})
	n.wake()
}

// ReportUnreachable says that messages to a member were lost.
func (n *Node) ReportUnreachable(id uint64) {
	n.inbox.addUnreachable(id)
	n.wake()
}
