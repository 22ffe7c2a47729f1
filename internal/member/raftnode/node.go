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

	// clock passes an event of the clock to a turn, clocked reports that the turn is done. Both
	// have room for one.
	clock   chan clockEvent
	clocked chan struct{}
	// early begins a turn for an early election.
	early *time.Timer
	// timeout is the election timeout, 0 if the length of ticks is not known.
	timeout time.Duration

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

	// published is the newest status.
	published atomic.Pointer[published]

	// unacked counts the bytes that were applied since they last caused a turn.
	unacked atomic.Uint64
	// advanced counts the steps of the apply stage.
	advanced atomic.Uint64

	// core is raft, and in is its input. broken is set after a turn that panicked: there is no
	// other one, because core and its output are left half done. Owned by the turn stage.
	core   core
	in     input
	broken bool
}

// published is a status. while ends when a newer leader or term is known.
type published struct {
	Status
	while context.Context
	end   context.CancelFunc
}

// publish publishes the status of raft, if it has changed.
func (n *Node) publish() {
	was, st := n.published.Load(), n.core.status()
	if was != nil {
		same := st
		if same.acknowledged = was.acknowledged; same == was.Status {
			return // an older acknowledged index is safe, and follows with the next commit or tick
		}
	}
	next := &published{Status: st}
	if was != nil && st.Lead == was.Lead && st.Term == was.Term {
		next.while, next.end = was.while, was.end
		n.published.Store(next)
		return
	}
	next.while, next.end = context.WithCancel(context.Background())
	n.published.Store(next)
	if was != nil {
		go was.end() // which takes as long as there are contexts
	}
}

// New makes a node that continues where the log and the state machine are. Start begins the work.
func New(cfg Config) (*Node, error) {
	cfg.setDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	n := &Node{
		cfg:     cfg,
		clock:   make(chan clockEvent, 1),
		clocked: make(chan struct{}, 1),
		stop:    make(chan struct{}),
		dead:    make(chan struct{}),
		failed:  make(chan struct{}),
	}
	n.appending = cfg.Line.Add(n.carryAppend, 1)
	n.turns = cfg.Line.Add(n.carryTurn, 1)
	n.applying = cfg.Line.Add(n.carryApply, 1)
	n.reads.init()
	n.fetcher.init(&n.cfg)
	n.settled.init()

	c := &n.core
	c.init(&n.cfg)
	n.timeout = c.o.electionTimeout()
	n.early = time.NewTimer(time.Hour)
	n.early.Stop()

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
		return nil, fmt.Errorf("raftnode: the state machine is at index %d and the log ends at %d",
			cfg.Applied, last)
	case cfg.Applied+1 < first:
		return nil, fmt.Errorf("raftnode: the state machine is at index %d and the log begins at %d", cfg.Applied, first)
	case hard.GetCommit() > last:
		return nil, fmt.Errorf("raftnode: index %d is committed and the log ends at %d",
			hard.GetCommit(), last)
	}
	lastTerm, err := cfg.Log.Term(last)
	if err != nil {
		return nil, fmt.Errorf("raft log: %w", err)
	}
	hard = &raftpb.HardState{
		// A new log begins after an entry of term 1 that no leader wrote. There must be no election
		// in that term, because the entries of its leader could not be distinguished from that one.
		Term:   new(max(hard.GetTerm(), lastTerm)),
		Vote:   new(hard.GetVote()),
		Commit: new(max(hard.GetCommit(), cfg.Applied)),
	}
	if err := c.findConfs(cfg.Log, cfg.Applied, last); err != nil {
		return nil, fmt.Errorf("raft log: %w", err)
	}
	c.storage = &storage{log: cfg.Log, hard: hard, conf: cfg.ConfState, snapshots: cfg.Snapshots,
		fetcher: &n.fetcher}
	c.last, c.vote, c.term, c.committed, c.acknowledged = last, hard.GetVote(), hard.GetTerm(),
		hard.GetCommit(), cfg.Applied
	c.current, c.leadSince = wall(time.Now()), time.Unix(0, 0)
	c.setConfState(cfg.ConfState)
	a := &n.appender
	a.id, a.log, a.maxGroup, a.logger, a.stop, a.settled, a.hard = cfg.ID, cfg.Log, cfg.MaxGroup,
		cfg.Logger, n.stop, &n.settled, hard
	n.publish()
	return n, n.newRawNode()
}

func (n *Node) newRawNode() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = n.panicked(p)
		}
	}()
	n.core.node, err = raft.NewRawNode(&raft.Config{
		ID:                        n.cfg.ID,
		ElectionTick:              n.cfg.ElectionTicks,
		HeartbeatTick:             n.cfg.HeartbeatTicks,
		Storage:                   n.core.storage,
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
	n.core.storage.node = n.core.node
	return err
}

// Start begins the work.
func (n *Node) Start() {
	n.start.Do(func() {
		n.fetching.Go(n.runFetcher)
		go func() {
			defer n.endStages()
			n.runClock()
		}()
	})
}

// endStages ends the stages, and releases everyone who waits for the node.
func (n *Node) endStages() {
	n.turns.Close()
	n.core.open = false
	n.publish() // it no longer answers reads alone
	n.appending.Close()
	n.appender.writeLastCommit(n.appends.close())
	n.fetcher.close()
	n.fetching.Wait()
	n.applies.close()
	n.reads.close()
	close(n.dead)
}

// Stop ends the work: the append and the run under way are finished, nothing more is applied. It
// may be called more than once.
func (n *Node) Stop() {
	n.halt.Do(func() { close(n.stop) })
	n.start.Do(n.endStages) // there is nothing to wait for if it never began
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

// panicked turns a panic of the library into an error. The library also panics if the log cannot be
// read.
func (n *Node) panicked(p any) error {
	if err := n.core.storage.err; err != nil {
		return fmt.Errorf("raft log: %w", err)
	}
	return fmt.Errorf("raftnode: %v\n%s", p, debug.Stack())
}

// maxPeerMessages bounds the messages of other members that wait for a turn.
const maxPeerMessages = 4096

// Step takes messages from other members. It drops messages that a member must not send, and those
// without room; raft tolerates the loss.
func (n *Node) Step(msgs ...*raftpb.Message) {
	n.inbox.addPeerMessages(msgs)
	n.wake()
}

// Wake notifies the node that Proposals has a group.
func (n *Node) Wake() { n.wake() }

func (n *Node) wake() { n.turns.Post() }

// Propose is Wake for a caller that does the turn itself, unless another goroutine does one, and
// goes on with the stages through; see stage.Stage.Carry. The caller must hold no lock that
// Proposals, Transport or Snapshots take.
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

// Applied acknowledges a run that Machine has applied. Raft does not need to know at once: a turn
// follows if much is outstanding, and otherwise the next turn takes it.
//
// The bytes are counted before the acknowledgment, so unacked is never less than what raft does not
// know yet, also during a turn that takes it.
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
		n.inbox.addMessages(m.GetResponses()...)
	}
	if st := n.published.Load(); much || urgent || st.eager || st.holding {
		n.unacked.Store(0)
		n.turns.PostNext()
	}
}

// Acknowledged returns the index up to which raft knows that entries are applied. Raft may read
// later entries, so the log must keep them.
func (n *Node) Acknowledged() uint64 { return n.published.Load().acknowledged }

// ApplyConfChange applies the configuration change of the entry at index. It must not remove the
// last voter. If raft has accepted a snapshot at index or later, the newer configuration of the
// snapshot stays. The change takes effect when its commit is settled, which may take a sync of the
// log.
func (n *Node) ApplyConfChange(index uint64, cc raftpb.ConfChangeI) error {
	if err := n.awaitSettled(index); err != nil {
		return err
	}
	return n.runInTurn(func(c *core) { c.applyConfChange(index, cc) })
}

// ProposeConfChange proposes a configuration change and returns the term in which it was proposed.
// Without an error it may still not be committed: raft accepts one at a time. ErrNotNow means that
// nothing was proposed.
func (n *Node) ProposeConfChange(cc raftpb.ConfChangeI) (term uint64, err error) {
	stopped := n.runInTurn(func(c *core) { term, err = c.proposeConfChange(cc) })
	if stopped != nil {
		return 0, stopped
	}
	return term, err
}

// Orphaned reports whether this member has heard of no leader for an election timeout in which it
// listened. A member that was suspended since then knows nothing. It is false before the first
// leader.
func (n *Node) Orphaned() bool {
	st := n.published.Load()
	return st.Lead == raft.None && !st.LeadLost.IsZero() && st.orphaned > n.cfg.ElectionTicks &&
		!missed(n.timeout, st.ticked, time.Now())
}

// Leader returns the leader as Status does, and a context that ends when another one leads, in
// another term, or none is known.
func (n *Node) Leader() (lead uint64, while context.Context) {
	st := n.published.Load()
	return st.Lead, st.while
}

// LeadTerm returns the term in which this member leads, 0 if it does not lead.
func (n *Node) LeadTerm() uint64 {
	if st := n.published.Load(); st.Lead == n.cfg.ID {
		return st.Term
	}
	return 0
}

// Status returns what the node knows of raft now.
func (n *Node) Status() Status { return n.published.Load().Status }
