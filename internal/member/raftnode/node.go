package raftnode

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/member/stage"
)

// ErrStopped says that the node was stopped or has failed.
var ErrStopped = errors.New("raftnode: stopped")

// ErrNotNow says that there is no leader, or that leadership is being handed over.
var ErrNotNow = errors.New("raftnode: nothing can be proposed now")

// Node is one member's part in raft.
type Node struct {
	cfg Config

	appends queue // from turns to appending
	applies queue // from turns to applying
	inbox   inbox // from everyone to turns

	// The stages, in the order in which they come when several have work.
	appending, turns, applying *stage.Stage
	// run is what is being applied. Owned by the apply stage.
	run []*raftpb.Message

	appender appender
	reads    reads
	fetcher  fetcher
	settled  settled

	// clock passes what the clock's goroutine does in a turn, clocked reports that it is done. Both have room for one.
	clock   chan func()
	clocked chan struct{}
	// open is set while turns are done: after QuietTime. Owned by the turn stage.
	open bool

	stop   chan struct{} // closed by Stop
	start  sync.Once
	halt   sync.Once
	dead   chan struct{} // closed when nothing more is done but to apply
	failed chan struct{} // closed after mu.err is set
	mu     struct {
		sync.Mutex
		err error
	}
	fetching sync.WaitGroup

	// What turns publish for others. led are lead and term as they belong together.
	led       atomic.Pointer[leading]
	lead      atomic.Uint64
	term      atomic.Uint64
	committed atomic.Uint64
	// acknowledged is the index up to which raft knows that entries are applied.
	acknowledged atomic.Uint64

	leadSince atomic.Int64 // unix nanoseconds of the last time a leader became known
	leadLost  atomic.Int64 // unix nanoseconds of the loss of the last leader, 0 if one is known or never was
	leaders   atomic.Uint64
	// orphaned is what the last tick knew of the time without a leader, nil before the first tick.
	orphaned  atomic.Pointer[orphaned]
	elections [causes]atomic.Uint64
	late      atomic.Uint64 // heartbeats
	// writeTime is about the longest that one of the last writes to the log has taken, in nanoseconds.
	writeTime atomic.Int64
	// handedOver is the last term in which this member has asked another one to take over.
	handedOver atomic.Uint64
	// alone is set while this member is leader, the only voter, and has committed an entry of
	// its term: every commit of the cluster is then made here.
	alone atomic.Bool
	// among is set while there are other members that vote or learn.
	among atomic.Bool
	// unacked counts the bytes that were applied since the raft goroutine was last woken for it.
	unacked atomic.Uint64
	// appended and advanced count the steps of the stages, current is the time that Current returns, in unix nanoseconds.
	appended, advanced atomic.Uint64
	current            atomic.Int64
	// stalled is raft.progress.stalled, relieved counts the times this member, leading, has handed over because others did its work.
	stalled  atomic.Bool
	relieved atomic.Uint64
	// eager is set while raft has handed out fewer entries than there are: it hands out no more before these
	// are acknowledged.
	eager atomic.Bool
	// holding is set while proposals are held, which may have room when entries are acknowledged.
	holding atomic.Bool

	raft raftState
}

// leading is a member that leads in a term, or in which none is known to lead. while lasts as long as this one knows no newer.
type leading struct {
	lead, term uint64
	while      context.Context
	end        context.CancelFunc
}

func newLeading(lead, term uint64) *leading {
	while, end := context.WithCancel(context.Background())
	return &leading{lead, term, while, end}
}

// raftState is owned by the turn stage.
type raftState struct {
	node    *raft.RawNode
	storage *storage
	state   raft.StateType
	// single is whether this member is the only voter, voter whether it is one.
	single, voter bool
	// vote is that of the newest hard state.
	vote uint64
	// last is the last index of the log, proposed counts what is not in it yet.
	last, proposed uint64
	// begin is the index of the entry that begins this member's term as leader.
	begin uint64
	// restored is the index of the last snapshot that raft accepted.
	restored uint64
	// ticks counts the ticks since the outstanding read index was asked for.
	ticks int
	// ticked is when the last tick was taken.
	ticked time.Time
	// forward limits what this member has proposed concurrently with others.
	forward forwarding
	// transferring is set from the wish to hand leadership over until raft says that it is over.
	transferring bool
	// lastConf is the index at which the log last had a configuration change, or may have had one;
	// confStepped is set while one is on its way into the log.
	lastConf    uint64
	confStepped bool
	// confs are the configuration changes in the log whose commit is not settled, in order. withheld is set while others were not
	// told that one of them is committed, settling is the newest that the log was asked to settle: see settle.go.
	confs    []uint64
	withheld bool
	settling uint64
	// held are proposals of other members that could not be taken at once, and one of this member at most; heldBytes is their size.
	held      []*raftpb.Message
	heldBytes uint64
	// heldAt is the room there was when they were tried last.
	heldAt room
	early  early
	// progress is whether this member does its work.
	progress progress
	// cause is why raft begins an election, if it does in this turn.
	cause Cause
	// moved is set when raft may have something to do.
	moved bool
	msgs  []*raftpb.Message
	calls []call
	out   []*raftpb.Message
}

// New makes a node that continues where the log and the state machine are. Start begins the work.
func New(cfg Config) (*Node, error) {
	cfg.setDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	n := &Node{
		cfg:     cfg,
		clock:   make(chan func(), 1),
		clocked: make(chan struct{}, 1),
		stop:    make(chan struct{}),
		dead:    make(chan struct{}),
		failed:  make(chan struct{}),
	}
	n.appending = cfg.Line.Add(n.appender.carryOut, 1)
	n.turns = cfg.Line.Add(n.carryTurn, 1)
	n.applying = cfg.Line.Add(n.carryApply, 1)
	n.reads.init()
	n.fetcher.init(&n.cfg)
	n.settled.init()
	n.raft.early.init()

	hard := cfg.Log.HardState()
	if hard == nil {
		hard = &raftpb.HardState{}
	}
	first, err := cfg.Log.FirstIndex()
	if err != nil {
		return nil, fmt.Errorf("raft log: %w", err)
	}
	last, err := cfg.Log.LastIndex()
	if err != nil {
		return nil, fmt.Errorf("raft log: %w", err)
	}
	switch {
	case cfg.Applied > last:
		return nil, fmt.Errorf("raftnode: the state machine is at index %d and the log ends at %d", cfg.Applied, last)
	case cfg.Applied+1 < first:
		return nil, fmt.Errorf("raftnode: the state machine is at index %d and the log begins at %d", cfg.Applied, first)
	case hard.GetCommit() > last:
		return nil, fmt.Errorf("raftnode: index %d is committed and the log ends at %d", hard.GetCommit(), last)
	}
	lastTerm, err := cfg.Log.Term(last)
	if err != nil {
		return nil, fmt.Errorf("raft log: %w", err)
	}
	hard = &raftpb.HardState{
		// A new log begins after an entry of term 1 that no leader wrote. No election may be held in that term, or the
		// entries of its leader could not be distinguished from that one.
		Term:   new(max(hard.GetTerm(), lastTerm)),
		Vote:   new(hard.GetVote()),
		Commit: new(max(hard.GetCommit(), cfg.Applied)),
	}
	if err := n.raft.findConfs(cfg.Log, cfg.Applied, last); err != nil {
		return nil, fmt.Errorf("raft log: %w", err)
	}
	n.raft.storage = &storage{log: cfg.Log, hard: hard, conf: cfg.ConfState, snapshots: cfg.Snapshots, fetcher: &n.fetcher}
	n.appender.init(n, hard)
	n.raft.last, n.raft.vote = last, hard.GetVote()
	n.configured(cfg.ConfState)
	n.term.Store(hard.GetTerm())
	n.led.Store(newLeading(raft.None, hard.GetTerm()))
	n.committed.Store(hard.GetCommit())
	n.acknowledged.Store(cfg.Applied)
	n.current.Store(time.Now().UnixNano())
	return n, n.newRawNode()
}

func (n *Node) newRawNode() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = n.panicked(p)
		}
	}()
	n.raft.node, err = raft.NewRawNode(&raft.Config{
		ID:                        n.cfg.ID,
		ElectionTick:              n.cfg.ElectionTicks,
		HeartbeatTick:             n.cfg.HeartbeatTicks,
		Storage:                   n.raft.storage,
		Applied:                   n.cfg.Applied,
		AsyncStorageWrites:        true,
		MaxSizePerMsg:             n.cfg.MaxMessage,
		MaxCommittedSizePerReady:  n.cfg.MaxApplying,
		MaxUncommittedEntriesSize: n.cfg.MaxUncommitted,
		MaxInflightMsgs:           512,
		MaxInflightBytes:          max(n.cfg.MaxUncommitted, n.cfg.MaxMessage),
		CheckQuorum:               true,
		PreVote:                   !n.cfg.NoPreVote,
		Logger:                    logger{n.cfg.Logger},
	})
	n.raft.storage.node = n.raft.node
	return err
}

// Start begins the work.
func (n *Node) Start() {
	n.start.Do(func() {
		n.fetching.Go(n.fetch)
		go func() {
			defer n.bury()
			n.runClock()
		}()
	})
}

// bury ends the stages, and releases everyone who waits for the node.
func (n *Node) bury() {
	n.turns.Close()
	n.alone.Store(false)
	n.appending.Close()
	n.appender.finish(n.appends.close())
	n.fetcher.close()
	n.fetching.Wait()
	n.applies.close()
	n.reads.close()
	close(n.dead)
}

// Stop ends the work: the append and the run under way are finished, nothing more is applied. It may be called more than once.
func (n *Node) Stop() {
	n.halt.Do(func() { close(n.stop) })
	n.start.Do(n.bury) // there is nothing to wait for if it never began
	<-n.dead
	n.applying.Close()
}

// Failed is closed when the node cannot go on; Err says why.
func (n *Node) Failed() <-chan struct{} { return n.failed }

// Err returns why the node failed, nil if it did not.
func (n *Node) Err() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.err
}

func (n *Node) fail(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.err == nil {
		n.mu.err = err
		close(n.failed)
	}
}

// panicked turns a panic of the library into an error. Its way to say that the log could not be
// read is a panic too.
func (n *Node) panicked(p any) error {
	if err := n.raft.storage.err; err != nil {
		return fmt.Errorf("raft log: %w", err)
	}
	return fmt.Errorf("raftnode: %v\n%s", p, debug.Stack())
}

// maxPeerMessages bounds the messages of other members that wait for the raft goroutine.
const maxPeerMessages = 4096

// Step takes messages from other members. What a member must not send, and what there is no room
// for, is dropped; raft is built for that.
func (n *Node) Step(msgs ...*raftpb.Message) {
	n.inbox.putPeer(msgs)
	n.wake()
}

// Wake notifies the node that Proposals has a group.
func (n *Node) Wake() { n.wake() }

func (n *Node) wake() { n.turns.Post() }

// Propose is Wake where the caller does the turn itself, unless another goroutine does one, and goes on with the stages through; see
// stage.Stage.Carry. The caller must hold no lock that Proposals, Transport or Snapshots take.
func (n *Node) Propose(through ...*stage.Stage) { n.turns.Carry(through...) }

// Stages returns the stages of the node: appending, turns, applying.
func (n *Node) Stages() []*stage.Stage { return []*stage.Stage{n.appending, n.turns, n.applying} }

func (n *Node) send(msgs []*raftpb.Message) {
	if len(msgs) > 0 && n.cfg.Transport != nil {
		n.cfg.Transport.Send(msgs)
	}
}

// carryApply is the work of the apply stage.
func (n *Node) carryApply(prompt bool) (left bool) {
	if len(n.run) == 0 {
		if n.run, left = n.applies.take(n.run, prompt); len(n.run) == 0 {
			return left
		}
	}
	switch err := n.cfg.Machine.Apply(n.run, prompt); err {
	case nil:
		clear(n.run)
		n.run = n.run[:0]
	case ErrLeft:
		return true
	default:
		n.applies.close()
	}
	return false
}

// Applied acknowledges a run that Machine has applied. Raft needs to know in good time and not at once:
// the raft goroutine is woken if much is outstanding, otherwise it learns at its next turn.
//
// The bytes are counted before they are acknowledged. So unacked is never less than what raft does not know yet,
// also while the raft goroutine takes the responses of this call.
func (n *Node) Applied(run []*raftpb.Message) {
	urgent := false
	var size uint64
	for _, m := range run {
		for _, e := range m.GetEntries() {
			size += uint64(len(e.GetData()))
			urgent = urgent || e.GetType() != raftpb.EntryNormal
		}
	}
	n.Advance()
	much := n.unacked.Add(size) >= n.cfg.MaxApplying/4
	for _, m := range run {
		n.inbox.put(m.GetResponses()...)
	}
	if much || urgent || n.eager.Load() || n.holding.Load() {
		n.unacked.Store(0)
		n.turns.PostNext()
	}
}

// Acknowledged returns the index up to which raft knows that entries are applied. It may read the entries after
// that: the log must not give them up.
func (n *Node) Acknowledged() uint64 { return n.acknowledged.Load() }

// ApplyConfChange hands raft the configuration change of the entry at index. Raft must not have one that
// removes the last voter. If raft has accepted a snapshot at index or later, its configuration is newer and
// stays. It takes effect when its commit is settled, which may take a sync of the log.
func (n *Node) ApplyConfChange(index uint64, cc raftpb.ConfChangeI) error {
	if err := n.awaitSettled(index); err != nil {
		return err
	}
	c := call{cc: cc, index: index, done: make(chan struct{})}
	n.inbox.call(c)
	n.wake()
	select {
	case <-c.done:
		return nil
	case <-n.dead:
		return ErrStopped
	}
}

// ProposeConfChange proposes a configuration change and returns the term it was proposed in. No error
// does not mean that it is committed: raft lets one through at a time. ErrNotNow means that nothing
// was proposed.
func (n *Node) ProposeConfChange(cc raftpb.ConfChangeI) (term uint64, err error) {
	c := call{cc: cc, propose: true, proposed: make(chan proposed, 1)}
	n.inbox.call(c)
	n.wake()
	select {
	case p := <-c.proposed:
		return p.term, p.err
	case <-n.dead:
		return 0, ErrStopped
	}
}

// orphaned counts the ticks in a row before which no leader was known.
type orphaned struct {
	ticks int
	at    time.Time // of the newest tick
}

// countOrphaned counts a tick without a leader. A process that was suspended, or whose turns took long, has missed what happened
// since the tick before, and begins again. It is called in a turn.
func (n *Node) countOrphaned(now time.Time) {
	next, last := &orphaned{at: now}, n.orphaned.Load()
	if n.lead.Load() == raft.None && last != nil && !n.missed(last.at, now) {
		next.ticks = last.ticks + 1
	}
	n.orphaned.Store(next)
}

// missed reports whether a time between two ticks is so long that a leader may have been elected in it. While a machine sleeps its
// monotonic clock stands still, and while time is corrected the other one jumps: the longer time counts.
func (n *Node) missed(from, to time.Time) bool {
	most := time.Duration(n.cfg.ElectionTicks) * n.cfg.TickInterval
	return most > 0 && max(to.Sub(from), to.Round(0).Sub(from.Round(0))) > most
}

// Orphaned reports whether this member has heard of no leader for an election timeout during which it was listening: one that was
// suspended since knows nothing. Before it has heard of the first leader it is not.
func (n *Node) Orphaned() bool {
	o := n.orphaned.Load()
	return n.leadLost.Load() != 0 && n.lead.Load() == raft.None && o != nil && o.ticks > n.cfg.ElectionTicks && !n.missed(o.at, time.Now())
}

// Status is what the node knows of raft.
type Status struct {
	Lead, Term, Committed uint64 // Lead leads in Term
	// LeadSince is when Lead became known, LeaderChanges how often one did.
	LeadSince time.Time
	// LeadLost is when the last leader was lost, the zero time if one is known, or never was.
	LeadLost      time.Time
	LeaderChanges uint64
	// HandedOver is the last term in which this member, leading, has asked another one to take over, 0 if there is none. That member
	// may be elected at any later time, since others vote for it though they hear of this leader.
	HandedOver uint64
}

// Leader returns the leader as Status does, and a context that ends when another one leads, in another term, or none is known.
func (n *Node) Leader() (lead uint64, while context.Context) {
	led := n.led.Load()
	return led.lead, led.while
}

// LeadTerm returns the term in which this member leads, 0 if it does not lead.
func (n *Node) LeadTerm() uint64 {
	if st := n.Status(); st.Lead == n.cfg.ID {
		return st.Term
	}
	return 0
}

// LateHeartbeats returns how often this member, leading, sent heartbeats too far apart.
func (n *Node) LateHeartbeats() uint64 { return n.late.Load() }

// Status returns what the node knows of raft now.
func (n *Node) Status() Status {
	led := n.led.Load()
	st := Status{
		Lead:      led.lead,
		Term:      led.term,
		Committed: n.committed.Load(),
		LeadSince: time.Unix(0, n.leadSince.Load()),

		LeaderChanges: n.leaders.Load(),
		HandedOver:    n.handedOver.Load(),
	}
	if lost := n.leadLost.Load(); lost != 0 && st.Lead == raft.None {
		st.LeadLost = time.Unix(0, lost)
	}
	return st
}
