package raftnode

import "time"

// carryTurn is the work of the turn stage: all there is to do with raft. It does not wait. The
// library panics where it cannot go on, which ends the node.
func (n *Node) carryTurn(bool) (left bool) {
	defer func() {
		if p := recover(); p != nil {
			n.fail(n.panicked(p))
			n.core.open, n.broken = false, true
		}
	}()
	if n.broken {
		return false
	}
	select {
	case e := <-n.clock:
		n.turn(e)
		n.clocked <- struct{}{}
	default:
		if n.core.open {
			n.turn(clockEvent{})
		}
	}
	return false
}

// clockEvent is an event of the clock.
type clockEvent struct{ begin, tick bool }

// turnAt begins a turn for an event of the clock, and waits for its end.
func (n *Node) turnAt(e clockEvent) {
	select {
	case n.clock <- e:
	case <-n.failed: // no turn follows, and nobody takes the events
		return
	}
	n.turns.Post()
	select {
	case <-n.clocked:
	case <-n.failed:
	}
}

// turn takes the input and carries out the output until nothing moves: carrying out a Ready can
// commit entries, which makes room for proposals.
func (n *Node) turn(e clockEvent) {
	c := &n.core
	n.collectInput(e)
	c.step(&n.in)
	n.carryOut()
	c.electEarly()
	n.carryOut()
	for n.propose() || n.askReadIndex() {
		n.carryOut()
	}
	n.deliver()
}

// collectInput collects what has happened since the last turn.
func (n *Node) collectInput(e clockEvent) {
	in := &n.in
	in.now, in.begin, in.tick = time.Now(), e.begin, e.tick
	in.messages, in.calls = n.inbox.takeAll(in.messages, in.calls)
	in.unreachable = n.inbox.takeUnreachable()
	in.fetched = n.fetcher.takeArrived()
	in.settled, _ = n.settled.index()
	in.writeTime = time.Duration(n.appender.writeTime.Load())
	if in.tick || len(in.calls) > 0 || in.fetched {
		in.connected = n.connectedMembers()
	}
	if in.tick {
		n.fetcher.dropUnused(n.cfg.ElectionTicks)
		in.busy = [stages]bool{appending: n.appending.Busy() || n.appends.waiting(),
			applying: n.applying.Busy() || n.applies.waiting()}
		in.steps = [stages]uint64{appending: n.appender.steps.Load(), applying: n.advanced.Load()}
		in.outstanding = n.cfg.Proposals.Outstanding(n.core.term)
	}
}

// connectedMembers returns the members that messages can be sent to.
func (n *Node) connectedMembers() map[uint64]bool {
	if n.cfg.Transport == nil {
		return nil
	}
	out, conf := map[uint64]bool{}, n.core.storage.conf
	for _, ids := range [][]uint64{conf.GetVoters(), conf.GetVotersOutgoing(), conf.GetLearners(),
		conf.GetLearnersNext()} {
		for _, id := range ids {
			out[id] = id != n.cfg.ID && !n.cfg.Transport.ConnectedSince(id).IsZero()
		}
	}
	return out
}

// carryOut delivers what raft wants done.
func (n *Node) carryOut() {
	for n.core.collectReady() {
		n.deliver()
	}
}

// propose passes waiting groups to raft while there is room in flight.
func (n *Node) propose() (any bool) {
	c := &n.core
	for {
		may, ifRoom := c.mayPropose()
		if !may || ifRoom && !c.forward.room(&c.o, c.term, n.cfg.Proposals.Outstanding(c.term)) {
			return any
		}
		data := n.cfg.Proposals.NextGroup(c.term)
		if data == nil {
			return any
		}
		switch c.propose(data) {
		case proposed:
			any = true
		case dropped:
			n.cfg.Proposals.FailOffered()
			return any
		case held:
			return any
		}
	}
}

// askReadIndex asks raft for a read index if readers wait and none is outstanding, or if that took
// too long.
func (n *Node) askReadIndex() bool {
	c := &n.core
	if !c.answersReads() {
		return false
	}
	ctx := n.reads.nextRequest(c.readTakesLong())
	if ctx != nil {
		c.readIndex(ctx)
	}
	return ctx != nil
}

// deliver publishes the status of raft and carries out its output. The status comes first: it must
// say that this member no longer leads alone before a message lets another one become leader.
func (n *Node) deliver() {
	out := &n.core.out
	n.publish()
	if out.forgetReads {
		n.reads.forgetAsked()
	}
	for _, r := range out.confirmed {
		n.reads.confirm(r.RequestCtx, r.Index)
	}
	for _, m := range out.appends {
		if m.quiet {
			n.appends.putQuiet(m.Message)
			continue
		}
		n.appends.put(m.Message)
		n.appending.PostNext()
	}
	for _, m := range out.applies {
		n.applies.put(m)
		n.applying.PostNext()
	}
	for _, m := range out.snapshots {
		n.cfg.Snapshots.Send(m)
	}
	if out.settle > 0 {
		n.settle(out.settle)
	}
	n.send(out.messages)
	for _, head := range out.refused {
		n.cfg.Proposals.FailRefused(head)
	}
	for _, done := range out.answered {
		close(done)
	}
	if out.wake {
		n.early.Reset(out.wakeIn)
	}
	if out.again {
		n.turns.PostNext()
	}
	out.reset()
}
