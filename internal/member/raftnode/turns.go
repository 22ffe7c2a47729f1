package raftnode

import "time"

// carryTurn is the work of the turn stage: all there is to do with raft. It does not wait. The library
// panics where it cannot go on, which ends the node.
func (n *Node) carryTurn(bool) (left bool) {
	defer func() {
		if p := recover(); p != nil {
			n.fail(n.panicked(p))
			n.open = false
		}
	}()
	select {
	case first := <-n.clock:
		first()
		n.turn()
		n.clocked <- struct{}{}
	default:
		if n.open {
			n.turn()
		}
	}
	return false
}

// turnAfter does something in a turn, and waits for that. It is called by the goroutine of the clock.
func (n *Node) turnAfter(first func()) {
	n.clock <- first
	n.turns.Post()
	select {
	case <-n.clocked:
	case <-n.failed:
	}
}

// begin lets turns be done. It is called in a turn.
func (n *Node) begin() {
	n.open = true
	if n.raft.single {
		// There is no other member to wait for.
		if err := n.raft.node.Campaign(); err != nil {
			n.cfg.Logger.Debug("campaign", "error", err)
		}
		n.raft.moved = true
	}
}

// tick lets raft's clock advance. It is called in a turn.
func (n *Node) tick() {
	now := time.Now()
	n.punctual(now)
	n.countOrphaned(now)
	n.watchProgress(now)
	n.raft.node.Tick()
	n.raft.moved = true
	n.raft.ticks++
	n.raft.forward.tick(n)
	n.retire()
	n.fetcher.tick(n.cfg.ElectionTicks)
}
