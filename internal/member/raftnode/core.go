package raftnode

import (
	"log/slog"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// core is raft as this member uses it: a state machine around RawNode. Its methods take inputs and
// add to the output, which the Node carries out. It has no goroutine and no I/O, and no clock but
// settings.Stamp, which sets the time of a group. Like RawNode it reads entries from its storage,
// which returns those in memory.
type core struct {
	o       settings
	node    *raft.RawNode
	storage *storage
	in      *input // of the step under way
	out     output

	// open is set while turns are done: from QuietTime until the end.
	open  bool
	state raft.StateType
	// lead leads in term, 0 if that is not known. leads counts the leaders.
	lead, term          uint64
	leads               uint64
	leadSince, leadLost time.Time // leadLost is zero while a leader is known, or none ever was
	committed           uint64
	// acknowledged is the index up to which raft knows that entries are applied.
	acknowledged uint64
	// handedOver is the last term in which this member has asked another one to take over.
	handedOver uint64
	// alone is set while this member is leader, the only voter, and has committed an entry of its
	// term: every commit of the cluster is then made here.
	alone bool
	// eager is set while raft has handed out fewer entries than there are: it hands out no more
	// before these are acknowledged.
	eager bool
	// orphaned counts the ticks in a row without a leader, ticked is the time of the last tick.
	orphaned int
	ticked   time.Time
	// current is Status.Current.
	current time.Time
	// late and relieved are Status.LateHeartbeats and Status.Relieved.
	late, relieved uint64
	elections      [causes]uint64

	// single is whether this member is the only voter, voter whether it is one.
	single, voter bool
	// vote is the vote of the newest hard state.
	vote uint64
	// last is the last index of the log, proposed counts the proposals that are not in it yet.
	last, proposed uint64
	// begin is the index of the entry that begins this member's term as leader.
	begin uint64
	// restored is the index of the last snapshot that raft accepted.
	restored uint64
	// ticks counts the ticks since the outstanding read index was requested.
	ticks int
	// forward limits the proposals of this member among several.
	forward forwarding
	// transferring is set from the wish to hand leadership over until raft says that it is over.
	transferring bool
	// lastConf is the index at which the log last had a configuration change, or may have had one;
	// confStepped is set while one is on its way into the log.
	lastConf    uint64
	confStepped bool
	// confs are the configuration changes in the log whose commit is not settled, in order.
	// withheld is set while others do not know that one of them is committed, settling is the
	// newest that the log was asked to settle: see settle.go.
	confs    []uint64
	withheld bool
	settling uint64
	// held are proposals of other members that could not be taken at once, and one of this member
	// at most; heldBytes is their size.
	held      []*raftpb.Message
	heldBytes uint64
	// heldAt is the room when they were last tried.
	heldAt room
	early  early
	// work knows whether this member does its work.
	work progress
	// cause is why raft begins an election, if it begins one in this turn.
	cause Cause
	// moved is set when raft may have something to do, more when it may have more after a Ready.
	moved, more bool
}

// settings is the part of the Config that a core needs.
type settings struct {
	ID                            uint64
	ElectionTicks, HeartbeatTicks int
	TickInterval                  time.Duration
	NoPreVote                     bool
	MaxUncommitted                uint64
	MaxInFlight                   int
	Logger                        *slog.Logger
	// Stamp sets the time of a group that is added to the log in a term.
	Stamp func(term uint64, group []byte)
}

// input is what has happened since the last turn.
type input struct {
	now         time.Time
	begin, tick bool // the node begins, a tick has passed
	messages    []*raftpb.Message
	calls       []call
	unreachable []uint64
	// fetched is set if entries were read that raft lacked.
	fetched bool
	// settled is the settled commit index; see settle.go.
	settled uint64
	// writeTime is about the longest of the recent writes to the log.
	writeTime time.Duration
	// connected are the members that messages can be sent to. It is set at a tick, with calls, and
	// with fetched.
	connected map[uint64]bool

	// At a tick: whether the stages have work, how many steps they have completed so far, and how
	// many proposals of this member have no outcome.
	busy        [stages]bool
	steps       [stages]uint64
	outstanding int
}

// output is what the Node carries out after a step, in this order, once the status is published.
type output struct {
	forgetReads bool             // requests to the last leader may be lost
	confirmed   []raft.ReadState // answers to reads
	appends     []appendMessage
	applies     []*raftpb.Message
	snapshots   []*raftpb.Message // to be sent with their state
	settle      uint64            // the commit index to settle, 0 for none
	messages    []*raftpb.Message // to other members
	refused     [][]byte          // heads of proposals that the leader has refused
	answered    []chan struct{}   // to be closed: their calls are done
	wakeIn      time.Duration     // until the next early election, if wake is set
	wake        bool
	again       bool // another turn must follow
}

// appendMessage is a message for the append stage. A quiet one can wait for the next one.
type appendMessage struct {
	*raftpb.Message
	quiet bool
}

// reset empties the output, and keeps its memory.
func (o *output) reset() {
	for _, list := range []*[]*raftpb.Message{&o.applies, &o.snapshots, &o.messages} {
		clear(*list)
		*list = (*list)[:0]
	}
	clear(o.answered)
	clear(o.appends)
	*o = output{appends: o.appends[:0], applies: o.applies, snapshots: o.snapshots,
		messages: o.messages,
		answered: o.answered[:0], confirmed: o.confirmed[:0]}
}

func (c *core) init(cfg *Config) {
	c.o = settings{ID: cfg.ID, Stamp: cfg.Proposals.StampGroup, ElectionTicks: cfg.ElectionTicks,
		HeartbeatTicks: cfg.HeartbeatTicks,
		TickInterval:   cfg.TickInterval,
		NoPreVote:      cfg.NoPreVote, MaxUncommitted: cfg.MaxUncommitted,
		MaxInFlight: cfg.MaxInFlight,
		Logger:      cfg.Logger}
	c.early.absent = map[uint64]bool{}
}

// step takes an input. The caller goes on with collectReady.
func (c *core) step(in *input) {
	c.in = in
	switch {
	case in.begin:
		c.openTurns()
	case in.tick:
		c.tick()
	}
	c.cause = CauseTimeout
	lead, follows, heard := c.lead, c.state == raft.StateFollower, false
	for _, m := range in.messages {
		heard = heard || follows && m.GetFrom() == lead
		c.stepMessage(m)
	}
	if heard {
		c.early.heard = in.now
	}
	c.takeSettled()
	for _, id := range in.unreachable {
		c.moved = true
		c.node.ReportUnreachable(id)
	}
	for _, call := range in.calls {
		c.moved = true
		if call.do(c); call.done != nil {
			c.out.answered = append(c.out.answered, call.done)
		}
	}
	c.retryFetched()
	c.retryHeld()
}

// Status is what the node knows about raft.
type Status struct {
	Lead, Term, Committed uint64 // Lead leads in Term
	// LeadSince is when Lead became known, LeaderChanges the number of times a leader did.
	LeadSince time.Time
	// LeadLost is when the last leader was lost, the zero time if one is known, or never was.
	LeadLost      time.Time
	LeaderChanges uint64
	// HandedOver is the last term in which this member, as the leader, has asked another one to
	// take over, 0 if there is none. That member may be elected at any later time, because others
	// vote for it although they hear this leader.
	HandedOver uint64
	// Among is set while there are other members, so that a proposal may wait for an outcome of
	// another.
	Among bool
	// Stalled is set if, for an election timeout, this member had work and neither wrote to its log
	// nor applied anything.
	Stalled bool
	// Current is the time of the last tick at which no work waited for the disk or for apply, or a
	// step had ended since the tick before. For a member that applies late, it is the last tick at
	// which the member had applied what was committed when Current last advanced: it must advance,
	// because leases that nobody renews must end, but not at every tick, because few renewals get
	// through. If turns take long there are no ticks, so it stands still as well.
	Current time.Time
	// LateHeartbeats is how often this member, as the leader, sent heartbeats too far apart.
	// Relieved is how often it handed leadership over because others were ahead of it.
	LateHeartbeats, Relieved uint64

	elections             [causes]uint64
	acknowledged          uint64
	alone, eager, holding bool
	orphaned              int
	ticked                time.Time
}

func (c *core) status() Status {
	return Status{Lead: c.lead, Term: c.term, Committed: c.committed, LeadSince: c.leadSince,
		LeadLost: c.leadLost, LeaderChanges: c.leads,
		HandedOver: c.handedOver, Among: !c.single, Stalled: c.work.stalled, Current: c.current,
		LateHeartbeats: c.late, Relieved: c.relieved,
		elections: c.elections, acknowledged: c.acknowledged, alone: c.alone && c.open,
		eager: c.eager, holding: len(c.held) > 0,
		orphaned: c.orphaned, ticked: c.ticked}
}
