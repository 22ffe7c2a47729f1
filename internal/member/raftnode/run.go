package raftnode

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// runClock lets time pass for raft until the node ends.
func (n *Node) runClock() {
	early := n.raft.early.timer.C
	if !n.beQuiet() {
		return
	}
	n.turnAfter(n.begin)
	for {
		select {
		case <-early:
			n.wake()
		case <-n.cfg.Ticks:
			n.turnAfter(n.tick)
		case <-n.stop:
			return
		case <-n.failed:
			return
		}
	}
}

// punctual notes a tick, and counts heartbeats of a leader that are late because of it.
func (n *Node) punctual(now time.Time) {
	r := &n.raft
	gap, most := now.Sub(r.ticked), 2*time.Duration(n.cfg.HeartbeatTicks)*n.cfg.TickInterval
	if r.state == raft.StateLeader && !r.single && most > 0 && gap > most && !r.ticked.IsZero() {
		n.late.Add(1)
		n.cfg.Logger.Warn("leader failed to send out heartbeat on time; it gets too little processor time, or was stopped",
			"expected-duration", most, "exceeded-duration", gap-most)
	}
	r.ticked = now
}

// turn does everything there is to do.
func (n *Node) turn() {
	r := &n.raft
	r.cause = CauseTimeout
	r.msgs, r.calls = n.inbox.take(r.msgs, r.calls)
	lead, follows, heard := n.lead.Load(), r.state == raft.StateFollower, false
	for _, m := range r.msgs {
		r.moved = true
		heard = heard || follows && m.GetFrom() == lead
		if m.GetType() == raftpb.MsgProp {
			n.takeForwarded(m)
			continue
		}
		switch m.GetType() {
		case raftpb.MsgTransferLeader:
			r.transferring = true
		case raftpb.MsgReadIndex:
			if n.knowsTooLittle() {
				continue // who asks will ask again
			}
		case raftpb.MsgTimeoutNow:
			if r.progress.stalled {
				continue // it would be a leader that is stalled
			}
			r.cause = CauseTransfer
		case raftpb.MsgVoteResp:
			if m.GetReject() {
				r.early.contested = m.GetTerm()
			}
		case raftpb.MsgHeartbeatResp:
			if r.state == raft.StateLeader {
				r.progress.takeReport(m)
			}
		}
		// A message that raft refuses is one that came too late or from a stranger.
		if err := r.node.Step(m); err != nil {
			n.cfg.Logger.Debug("message refused", "type", m.GetType(), "from", m.GetFrom(), "error", err)
		}
		if e := m.GetEntries(); m.GetType() == raftpb.MsgStorageApplyResp && len(e) > 0 {
			n.acknowledged.Store(e[len(e)-1].GetIndex())
		}
	}
	if heard {
		r.early.heard = time.Now()
	}
	n.takeSettled()
	for _, id := range n.inbox.takeLost() {
		r.moved = true
		r.node.ReportUnreachable(id)
	}
	for _, c := range r.calls {
		r.moved = true
		n.serve(c)
	}
	n.takeFetched()
	n.retryHeld()
	// Carrying out what raft wants can commit entries, which makes room for proposals: what
	// waits for that is tried again until nothing moves.
	n.carryOut()
	n.electEarly()
	n.carryOut()
	for n.propose() || n.readIndex() {
		n.carryOut()
	}
}

func (n *Node) serve(c call) {
	switch {
	case c.report != nil:
		c.report(n.raft.node)
	case c.snap != nil:
		n.takeSnapshot(c)
	case c.propose:
		st := n.raft.node.BasicStatus()
		p := proposed{term: st.HardState.GetTerm()}
		if n.confPending(st) {
			p.err = fmt.Errorf("%w: another configuration change is under way", ErrNotNow)
		} else if err := n.raft.node.ProposeConfChange(c.cc); err != nil {
			p.err = fmt.Errorf("%w: %w", ErrNotNow, err)
		} else {
			n.raft.confStepped = true
		}
		c.proposed <- p
	default:
		if c.index > n.raft.restored {
			n.configured(n.raft.node.ApplyConfChange(c.cc))
			n.publish()
		}
		close(c.done)
	}
}

// configured notes the configuration.
func (n *Node) configured(cs *raftpb.ConfState) {
	r := &n.raft
	r.storage.conf = cs
	r.voter = slices.Contains(cs.GetVoters(), n.cfg.ID) || slices.Contains(cs.GetVotersOutgoing(), n.cfg.ID)
	r.single = r.voter && len(cs.GetVoters()) == 1 && len(cs.GetVotersOutgoing()) == 0
	n.among.Store(!r.single)
}

// propose hands waiting proposals to raft as far as there is room in flight.
func (n *Node) propose() (any bool) {
	r := &n.raft
	// A leader that was removed gets no entries into its log any more: what it is asked for waits for the end of its
	// leadership, or of the member.
	if n.lead.Load() == raft.None || n.handingOver() || r.state == raft.StateLeader && !r.voter {
		return false
	}
	term := n.term.Load()
	for {
		leading := r.state == raft.StateLeader
		// What other members forward counts for them: a leader that is busy with that must not be
		// kept from proposing its own.
		if (!leading || r.last+r.proposed-n.committed.Load() >= uint64(n.cfg.MaxInFlight)) && (r.single || !r.forward.room(n, term)) {
			return any
		}
		if leading && n.holdsOwn() {
			return any // later ones wait behind it
		}
		data := n.cfg.Proposals.Next(term)
		if data == nil {
			return any
		}
		if !leading {
			// The message that forwards it keeps the bytes; a leader copies them into its log.
			data = append([]byte(nil), data...)
		}
		if err := r.node.Propose(data); err != nil {
			if leading && errors.Is(err, raft.ErrProposalDropped) {
				n.holdOwn(data)
				return any
			}
			n.cfg.Logger.Debug("proposal dropped", "error", err)
			n.cfg.Proposals.Dropped()
			return any
		}
		any, r.moved = true, true
		if leading {
			r.proposed++
		}
	}
}

// carryOut hands out the work that raft wants done. Asking raft costs, so it is asked only when
// something happened to it; and one Ready leaves nothing but entries to apply that did not
// fit in.
func (n *Node) carryOut() {
	r := &n.raft
	more := r.moved
	r.moved = false
	for more && r.node.HasReady() {
		r.storage.handingOut, r.storage.short = true, false
		rd := r.node.Ready()
		r.storage.handingOut = false
		if len(rd.CommittedEntries) > 0 {
			n.eager.Store(r.storage.short)
		}
		more = len(rd.CommittedEntries) > 0
		n.handle(rd)
	}
}

func (n *Node) handle(rd raft.Ready) {
	r := &n.raft
	commitOnly := rd.HardState != nil && rd.HardState.GetTerm() == n.term.Load() && rd.HardState.GetVote() == r.vote &&
		len(rd.Entries) == 0 && raft.IsEmptySnap(rd.Snapshot)
	if rd.HardState != nil {
		r.vote = rd.HardState.GetVote()
		n.term.Store(rd.HardState.GetTerm())
		n.committed.Store(rd.HardState.GetCommit())
	}
	if s := rd.Snapshot; !raft.IsEmptySnap(s) {
		r.restored = s.GetMetadata().GetIndex()
		r.last, r.proposed = r.restored, 0
		n.configured(s.GetMetadata().GetConfState())
	}
	r.confStepped = false
	if len(rd.Entries) > 0 {
		// They replace what the log has from there on.
		r.lastConf = min(r.lastConf, rd.Entries[0].GetIndex()-1)
	}
	for _, e := range rd.Entries {
		if isConfChange(e) {
			r.lastConf = e.GetIndex()
		}
	}
	r.noteConfs(rd.Entries)
	if len(rd.Entries) > 0 {
		r.last = rd.Entries[len(rd.Entries)-1].GetIndex()
		r.proposed = 0
	}
	if rd.SoftState != nil {
		n.changed(rd)
	}
	if was, lead, term := n.led.Load(), n.lead.Load(), n.term.Load(); lead != was.lead || term != was.term {
		n.led.Store(newLeading(lead, term))
		go was.end() // of as many questions as there are
	}
	n.publish()
	for _, rs := range rd.ReadStates {
		n.reads.confirmed(rs.RequestCtx, rs.Index)
	}
	r.out = r.out[:0]
	for _, m := range rd.Messages {
		switch {
		case m.GetTo() == raft.LocalAppendThread && commitOnly && len(m.GetResponses()) == 0:
			n.appends.putQuiet(m) // the appender writes it with the next entries
		case m.GetTo() == raft.LocalAppendThread:
			n.appends.put(m)
			n.appending.PostNext()
		case m.GetTo() == raft.LocalApplyThread:
			n.applies.put(m)
			n.applying.PostNext()
		case m.GetType() == raftpb.MsgSnap:
			n.cfg.Snapshots.Send(m)
		default:
			switch m.GetType() {
			case raftpb.MsgProp:
				n.stamp(m)
			case raftpb.MsgTimeoutNow:
				n.handedOver.Store(m.GetTerm())
			case raftpb.MsgHeartbeatResp:
				r.progress.stamp(m)
			}
			r.withhold(m)
			r.out = append(r.out, m)
		}
	}
	n.settleCommitted()
	r.out = n.mute(r.out)
	n.send(r.out)
	clear(r.out)
}

// changed notes a change of leader or of this member's part.
func (n *Node) changed(rd raft.Ready) {
	r := &n.raft
	was, lead := n.lead.Load(), rd.SoftState.Lead
	if r.state != raft.StateLeader && rd.SoftState.RaftState == raft.StateLeader {
		r.begin = math.MaxUint64
		for _, e := range rd.Entries {
			if e.GetTerm() == n.term.Load() {
				r.begin = e.GetIndex()
				// Raft takes what it finds in the log for configuration changes.
				r.lastConf = max(r.lastConf, r.begin-1)
				break
			}
		}
	}
	if s := rd.SoftState.RaftState; r.state == raft.StateFollower && (s == raft.StatePreCandidate || s == raft.StateCandidate) {
		n.noteElection()
	}
	r.state = rd.SoftState.RaftState
	if r.state != raft.StateLeader {
		r.proposed = 0
	}
	if was != lead {
		if lead != raft.None {
			now := time.Now()
			r.early.heard = now
			n.leadSince.Store(now.UnixNano())
			n.leaders.Add(1)
			n.leadLost.Store(0)
		} else {
			n.leadLost.Store(time.Now().UnixNano())
		}
		n.lead.Store(lead)
		// Whatever was asked of the leader before may be lost.
		n.reads.forget()
		n.cfg.Logger.Info("raft leader changed", slog.Uint64("term", n.term.Load()), idAttr("from", was), idAttr("to", lead))
	}
}

// publish stores whether reads need no question to other members: see Node.alone. It comes before the
// messages that let another member become leader leave.
func (n *Node) publish() {
	r := &n.raft
	alone := r.single && r.state == raft.StateLeader && n.committed.Load() >= r.begin
	if alone != n.alone.Load() {
		n.alone.Store(alone)
	}
}

// readIndex asks raft for a read index if readers wait and none is outstanding, or if that took too
// long.
func (n *Node) readIndex() bool {
	r := &n.raft
	if n.lead.Load() == raft.None {
		return false
	}
	if n.knowsTooLittle() {
		return false
	}
	ctx := n.reads.ask(r.ticks >= max(n.cfg.ElectionTicks/2, 1))
	if ctx == nil {
		return false
	}
	r.ticks = 0
	r.node.ReadIndex(ctx)
	r.moved = true
	return true
}

// knowsTooLittle reports whether this member leads and raft would answer a read index at once although it may be
// old. That is so for the only voter until it has committed an entry of its term: raft knows the commit index it
// restarted with, and later entries may be committed already, and acknowledged before the restart. It is so for
// a leader that was removed, too: the only voter that is left may lead by now.
func (n *Node) knowsTooLittle() bool {
	r := &n.raft
	return (!r.voter || r.single && !n.alone.Load()) && r.node.BasicStatus().RaftState == raft.StateLeader
}

func idAttr(key string, id uint64) slog.Attr {
	if id == raft.None {
		return slog.String(key, "none")
	}
	return slog.String(key, strconv.FormatUint(id, 16))
}
