package raftnode

import (
	"bytes"
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
	if !n.awaitQuietTime() {
		return
	}
	n.turnAt(clockEvent{begin: true})
	for {
		select {
		case <-n.early.C:
			n.wake()
		case <-n.cfg.Ticks:
			n.turnAt(clockEvent{tick: true})
		case <-n.stop:
			return
		case <-n.failed:
			return
		}
	}
}

// noteLateTick counts heartbeats of a leader that are late because of it.
func (c *core) noteLateTick(now time.Time) {
	gap, most := now.Sub(c.ticked), 2*time.Duration(c.o.HeartbeatTicks)*c.o.TickInterval
	if c.state == raft.StateLeader && !c.single && most > 0 && gap > most && !c.ticked.IsZero() {
		c.late++
		c.o.Logger.Warn("leader failed to send out heartbeat on time; it gets too little processor time, or was stopped",
			"expected-duration", most, "exceeded-duration", gap-most)
	}
}

// countOrphaned counts the ticks in a row without a leader. A process that was suspended, or whose
// turns took long, missed what happened since the last tick, so it starts at 0 again.
func (c *core) countOrphaned(now time.Time) {
	if c.lead == raft.None && !c.ticked.IsZero() && !missed(c.o.electionTimeout(), c.ticked, now) {
		c.orphaned++
	} else {
		c.orphaned = 0
	}
	c.ticked = now
}

// missed reports whether an election timeout or more passed between two ticks, so that a leader may
// have been elected. While a machine sleeps its monotonic clock stands still, and a correction of
// the time moves the other clock: the longer time counts.
func missed(timeout time.Duration, from, to time.Time) bool {
	return timeout > 0 && max(to.Sub(from), to.Round(0).Sub(from.Round(0))) > timeout
}

// electionTimeout returns the election timeout, 0 if the length of ticks is not known.
func (c *settings) electionTimeout() time.Duration {
	return time.Duration(c.ElectionTicks) * c.TickInterval
}

// openTurns lets turns be done.
func (c *core) openTurns() {
	c.open = true
	if c.single {
		// There is no other member to wait for.
		if err := c.node.Campaign(); err != nil {
			c.o.Logger.Debug("campaign", "error", err)
		}
		c.moved = true
	}
}

// tick lets raft's clock advance.
func (c *core) tick() {
	c.noteLateTick(c.in.now)
	c.countOrphaned(c.in.now)
	c.watchProgress(c.in.now)
	c.node.Tick()
	c.moved = true
	c.ticks++
	c.forward.tick(&c.o, c.single, c.in.outstanding)
	c.handOverIfRemoved()
}

// wall returns t without its monotonic reading: differences then include the time that the machine
// slept.
func wall(t time.Time) time.Time { return time.Unix(0, t.UnixNano()) }

// stepMessage steps a message.
func (c *core) stepMessage(m *raftpb.Message) {
	c.moved = true
	switch m.GetType() {
	case raftpb.MsgProp:
		c.takeForwarded(m)
		return
	case raftpb.MsgTransferLeader:
		c.transferring = true
	case raftpb.MsgReadIndex:
		if c.knowsTooLittle() {
			return // who asks will ask again
		}
	case raftpb.MsgTimeoutNow:
		if c.work.stalled {
			return // it would be a leader that is stalled
		}
		c.cause = CauseTransfer
	case raftpb.MsgVoteResp:
		if m.GetReject() {
			c.early.contested = m.GetTerm()
		}
	case raftpb.MsgHeartbeatResp:
		if c.state == raft.StateLeader {
			c.work.takeReport(m)
		}
	}
	// A message that raft refuses is one that came too late or from a stranger.
	if err := c.node.Step(m); err != nil {
		c.o.Logger.Debug("message refused", "type", m.GetType(), "from", m.GetFrom(), "error", err)
	}
	if e := m.GetEntries(); m.GetType() == raftpb.MsgStorageApplyResp && len(e) > 0 {
		c.acknowledged = e[len(e)-1].GetIndex()
	}
}

// proposeConfChange proposes a configuration change, and returns the term in which it does.
func (c *core) proposeConfChange(cc raftpb.ConfChangeI) (term uint64, err error) {
	st := c.node.BasicStatus()
	term = st.HardState.GetTerm()
	if c.confPending(st) {
		return term, fmt.Errorf("%w: another configuration change is under way", ErrNotNow)
	}
	if err := c.node.ProposeConfChange(cc); err != nil {
		return term, fmt.Errorf("%w: %w", ErrNotNow, err)
	}
	c.confStepped = true
	return term, nil
}

// applyConfChange takes the configuration change of the entry at index.
func (c *core) applyConfChange(index uint64, cc raftpb.ConfChangeI) {
	if index > c.restored {
		c.setConfState(c.node.ApplyConfChange(cc))
		c.noteAlone()
	}
}

// setConfState notes the configuration.
func (c *core) setConfState(cs *raftpb.ConfState) {
	c.storage.conf = cs
	c.voter = slices.Contains(cs.GetVoters(), c.o.ID) ||
		slices.Contains(cs.GetVotersOutgoing(), c.o.ID)
	c.single = c.voter && len(cs.GetVoters()) == 1 && len(cs.GetVotersOutgoing()) == 0
}

// mayPropose reports whether raft may get a proposal. If ifRoom is set it may get one only while
// few proposals of this member have no outcome; see forwarding.room.
func (c *core) mayPropose() (may, ifRoom bool) {
	leading := c.state == raft.StateLeader
	// A leader that was removed can no longer add entries to its log. Proposals wait until its
	// leadership or the member ends.
	if c.lead == raft.None || c.checkHandingOver() || leading && !c.voter {
		return false, false
	}
	if leading && c.holdsOwnProposal() {
		return false, false // later ones wait behind it
	}
	// Forwarded proposals count for the members that forwarded them: they must not keep the leader
	// from proposing its own groups.
	full := !leading || c.last+c.proposed-c.committed >= uint64(c.o.MaxInFlight)
	return !full || !c.single, full
}

// fate says what happened to a proposal.
type fate int

const (
	proposed fate = iota
	dropped       // it will never be proposed
	held          // it waits for room
)

// propose hands a proposal to raft.
func (c *core) propose(data []byte) fate {
	leading := c.state == raft.StateLeader
	if leading {
		c.o.Stamp(c.term, data)
	} else {
		// The message that forwards it keeps the bytes; a leader copies them into its log.
		data = bytes.Clone(data)
	}
	if err := c.node.Propose(data); err != nil {
		if leading && errors.Is(err, raft.ErrProposalDropped) {
			c.holdOwnProposal(data)
			return held
		}
		c.o.Logger.Debug("proposal dropped", "error", err)
		return dropped
	}
	c.moved = true
	if leading {
		c.proposed++
	}
	return proposed
}

// collectReady adds the next Ready to the output, and returns false if there is none. Asking raft
// is expensive, so it asks only after something happened to raft. After one Ready, only entries to
// apply that did not fit can be left.
func (c *core) collectReady() bool {
	c.more, c.moved = c.more || c.moved, false
	if !c.more || !c.node.HasReady() {
		c.more = false
		return false
	}
	c.storage.handingOut, c.storage.short = true, false
	rd := c.node.Ready()
	c.storage.handingOut = false
	if c.more = len(rd.CommittedEntries) > 0; c.more {
		c.eager = c.storage.short
	}
	c.handleReady(rd)
	return true
}

func (c *core) handleReady(rd raft.Ready) {
	commitOnly := rd.HardState != nil && rd.HardState.GetTerm() == c.term &&
		rd.HardState.GetVote() == c.vote &&
		len(rd.Entries) == 0 && raft.IsEmptySnap(rd.Snapshot)
	if rd.HardState != nil {
		c.vote = rd.HardState.GetVote()
		c.term = rd.HardState.GetTerm()
		c.committed = rd.HardState.GetCommit()
	}
	if s := rd.Snapshot; !raft.IsEmptySnap(s) {
		c.restored = s.GetMetadata().GetIndex()
		c.last, c.proposed = c.restored, 0
		c.setConfState(s.GetMetadata().GetConfState())
	}
	c.confStepped = false
	if len(rd.Entries) > 0 {
		// They replace what the log has from there on.
		c.lastConf = min(c.lastConf, rd.Entries[0].GetIndex()-1)
	}
	for _, e := range rd.Entries {
		if isConfChange(e) {
			c.lastConf = e.GetIndex()
		}
	}
	c.noteConfs(rd.Entries)
	if len(rd.Entries) > 0 {
		c.last = rd.Entries[len(rd.Entries)-1].GetIndex()
		c.proposed = 0
	}
	if rd.SoftState != nil {
		c.noteSoftState(rd)
	}
	c.noteAlone()
	out := &c.out
	out.confirmed = append(out.confirmed, rd.ReadStates...)
	from := len(out.messages)
	for _, m := range rd.Messages {
		switch {
		case m.GetTo() == raft.LocalAppendThread:
			// A new commit index alone is written with the next entries.
			out.appends = append(out.appends,
				appendMessage{m, commitOnly && len(m.GetResponses()) == 0})
		case m.GetTo() == raft.LocalApplyThread:
			out.applies = append(out.applies, m)
		case m.GetType() == raftpb.MsgSnap:
			out.snapshots = append(out.snapshots, m)
		default:
			switch m.GetType() {
			case raftpb.MsgProp:
				c.stampTerm(m)
			case raftpb.MsgTimeoutNow:
				c.handedOver = m.GetTerm()
			case raftpb.MsgHeartbeatResp:
				c.work.stampReport(m)
			}
			c.withhold(m)
			out.messages = append(out.messages, m)
		}
	}
	c.settleCommitted()
	out.messages = append(out.messages[:from], c.withoutMuted(out.messages[from:])...)
}

// noteSoftState notes a new leader, and a new role of this member.
func (c *core) noteSoftState(rd raft.Ready) {
	was, lead := c.lead, rd.SoftState.Lead
	if c.state != raft.StateLeader && rd.SoftState.RaftState == raft.StateLeader {
		c.begin = math.MaxUint64
		for _, e := range rd.Entries {
			if e.GetTerm() == c.term {
				c.begin = e.GetIndex()
				// Raft takes what it finds in the log for configuration changes.
				c.lastConf = max(c.lastConf, c.begin-1)
				break
			}
		}
	}
	if s := rd.SoftState.RaftState; c.state == raft.StateFollower &&
		(s == raft.StatePreCandidate || s == raft.StateCandidate) {
		c.noteElection()
	}
	c.state = rd.SoftState.RaftState
	if c.state != raft.StateLeader {
		c.proposed = 0
	}
	if was != lead {
		if lead != raft.None {
			c.early.heard, c.leadSince, c.leadLost = c.in.now, wall(c.in.now), time.Time{}
			c.leads++
		} else {
			c.leadLost = wall(c.in.now)
		}
		c.lead, c.out.forgetReads = lead, true
		c.o.Logger.Info("raft leader changed", slog.Uint64("term", c.term), idAttr("from", was),
			idAttr("to", lead))
	}
}

// noteAlone notes whether this member can answer reads without asking other members.
func (c *core) noteAlone() {
	c.alone = c.single && c.state == raft.StateLeader && c.committed >= c.begin
}

// answersReads reports whether a read index may be asked for.
func (c *core) answersReads() bool { return c.lead != raft.None && !c.knowsTooLittle() }

// readTakesLong reports whether the outstanding read index should be asked for again.
func (c *core) readTakesLong() bool { return c.ticks >= max(c.o.ElectionTicks/2, 1) }

// readIndex asks raft for a read index.
func (c *core) readIndex(ctx []byte) {
	c.ticks = 0
	c.node.ReadIndex(ctx)
	c.moved = true
}

// knowsTooLittle reports whether this member leads, and raft would answer a read index at once with
// an index that may be old. Before the only voter has committed an entry of its term, raft knows
// only the commit index from before the restart, and later entries may have been committed and
// acknowledged. After a leader was removed, the only remaining voter may lead.
func (c *core) knowsTooLittle() bool {
	return (!c.voter || c.single && !c.alone) && c.node.BasicStatus().RaftState == raft.StateLeader
}

func idAttr(key string, id uint64) slog.Attr {
	if id == raft.None {
		return slog.String(key, "none")
	}
	return slog.String(key, strconv.FormatUint(id, 16))
}
