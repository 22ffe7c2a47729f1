package raftnode

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// InstallSnapshot passes raft a MsgSnap whose state is complete, verified and durable, next to the
// member's own. If raft accepts it, Machine gets the snapshot in its turn, or the member fails. If
// raft does not, because the member has come as far by itself or the sender's term is over, the
// state may be deleted. If the message is not a snapshot, the error says so. After ErrStopped it is
// unknown whether raft has accepted the snapshot, and the state must stay for the next start.
func (n *Node) InstallSnapshot(m *raftpb.Message) (accepted bool, err error) {
	if s := m.GetSnapshot(); m.GetType() != raftpb.MsgSnap || raft.IsEmptySnap(s) ||
		m.GetTo() != n.cfg.ID || m.GetFrom() == 0 || m.GetTerm() == 0 {
		return false, fmt.Errorf("raftnode: %v from %x to %x is no snapshot for %x", m.GetType(),
			m.GetFrom(), m.GetTo(), n.cfg.ID)
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

// ReportSnapshot reports the end of a snapshot that Snapshots sent to a member: ok if the member
// has installed it, or does not need it.
func (n *Node) ReportSnapshot(id uint64, ok bool) {
	status := raft.SnapshotFinish
	if !ok {
		status = raft.SnapshotFailure
	}
	n.inbox.addCall(call{do: func(c *core) { c.node.ReportSnapshot(id, status) }})
	n.wake()
}

// ReportUnreachable reports that messages to a member were lost.
func (n *Node) ReportUnreachable(id uint64) {
	n.inbox.addUnreachable(id)
	n.wake()
}
