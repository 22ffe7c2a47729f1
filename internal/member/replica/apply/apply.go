// Package apply carries out the committed entries of a member, and emits a Commit for each batch of
// the store.
//
// # Invariants
//
//  1. An Applier belongs to the apply stage: one goroutine at a time calls Apply.
//  2. Subscribers.Before hear of a commit before its state can be read, Subscribers.After when it
//     can be read, each list in its order. Applier.Answer is among the latter.
//  3. A batch ends at an entry, or inside one that writes much more than its own size. Then the
//     position stays before that entry.
//  4. A lack of disk space, file descriptors or memory delays entries. Every other error ends the
//     member: nothing is applied after it.
package apply

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/member/raftnode"
	"vigil/internal/member/replica/proposal"
	"vigil/internal/state/auth"
	"vigil/internal/state/fsm"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
)

// Raft is the member's raft node.
type Raft interface {
	// Applied returns a run that is applied.
	Applied(run []*raftpb.Message)
	// ApplyConfChange applies a configuration change to raft.
	ApplyConfChange(index uint64, cc raftpb.ConfChangeI) error
	// Advance notes that apply makes progress.
	Advance()
	// Wake makes the node look for proposals.
	Wake()
	Status() raftnode.Status
}

// Timings measures requests and commits.
type Timings interface {
	CountApplied(req *fsm.Request, res *fsm.Result, took time.Duration)
	CountCommit(took time.Duration)
}

// Installer replaces the store by the state of a snapshot.
type Installer interface {
	// Open opens the state of a snapshot instead of the present store, and returns its state
	// machine. Nothing else can be applied, so it waits while space, file descriptors or memory are
	// short. Its error is ErrStopped, or final.
	Open(at history.Applied) (*fsm.Machine, error)
	// Serve lets reads see the new state, and returns its newest revision.
	Serve() int64
	// Finish ends the installation: everyone knows the new state.
	Finish()
}

// Options configure an Applier. All fields are required.
type Options struct {
	MemberID uint64
	Raft     Raft
	Queue    *proposal.Queue
	// Subscribers follow the commits.
	Subscribers Subscribers
	// Answers is woken when there are results for requests that were started.
	Answers interface{ PostNext() }
	Applied interface{ Load() uint64 }
	Timings Timings
	// Rights logs changes of users and roles.
	Rights interface {
		LogChange(before, after *auth.State, req *kv.AuthRequest, err error)
	}
	// Contacts returns the error of a request that began at a time and has had no result for too
	// long.
	Contacts interface{ TimeoutCause(begun time.Time) error }
	// Force tells whether the member is becoming the only one of its cluster: then configuration
	// changes of entries do not change the configuration of raft.
	Force     interface{ Forcing() bool }
	Installer Installer
	// Stall notes while entries wait for what the system lacks.
	Stall interface {
		Begin(err error, applied, committed uint64)
		End(committed func() uint64)
	}
	// MaxBatchBytes is the size of entries, or of the records that they write, at which a batch
	// ends.
	MaxBatchBytes int
	// RequestTimeout limits how long a request waits for its result.
	RequestTimeout time.Duration
	// Stopping is closed when the member stops.
	Stopping <-chan struct{}
}

// Applier applies entries.
//
// Entries that are queued together share one batch of the store, up to MaxBatchBytes: one write to
// the file and one view for readers instead of many. That costs no request time: the entries are
// committed, and applying the rest of the batch in memory is fast.
type Applier struct {
	o       Options
	machine *fsm.Machine

	// The batch under way.
	at       history.Applied
	bytes    int
	requests uint64
	groups   []*proposal.Group
	// term is the term of the newest entry.
	term uint64
	// confs are the groups of configuration changes in the run under way.
	confs []*proposal.Group
	// open is the entry under way, claimed its group, if its waiters are here. The group joins
	// groups or confs once all of the entry is carried out.
	open    *fsm.Entry
	claimed *proposal.Group
	// began is when the request under way began.
	began time.Time
	// started are requests that were started and have their results, which are not delivered.
	started []*proposal.Call
	prompt  bool // apply leaves work that takes long
	// left is the index up to which the run that was left is carried out, 0 if none was left.
	left   uint64
	failed chan error // has room for one
	ended  bool       // nothing more is applied
	// tokens are the tokens that the batch has issued.
	tokens []fsm.Token
	// users are the users of the state machine after the last request about them, announced the
	// users of the last commit.
	users, announced *auth.State
	// tokensEnd is the index up to which the batch ends unused tokens, 0 if it does not.
	tokensEnd uint64
	// last is the last commit. Its memory is used again for the next one.
	last Commit
}

// Init makes a an Applier of entries after a position. The raft node, which is an option, gets a
// before, and starts after that.
func (a *Applier) Init(o Options, m *fsm.Machine, at history.Applied) {
	*a = Applier{o: o, failed: make(chan error, 1), at: at, term: at.Term}
	a.adopt(m)
	a.announced = a.users
}

// SetSubscribers replaces the subscribers, before the node starts.
func (a *Applier) SetSubscribers(s Subscribers) { a.o.Subscribers = s }

// At returns the position of the batch under way. It belongs to the apply stage.
func (a *Applier) At() history.Applied { return a.at }

// Failed receives the error that ends the member.
func (a *Applier) Failed() <-chan error { return a.failed }

// Machine returns the state machine. It belongs to the apply stage.
func (a *Applier) Machine() *fsm.Machine { return a.machine }

// adopt replaces the state machine.
func (a *Applier) adopt(m *fsm.Machine) {
	a.machine = m
	a.users = m.Auth()
	m.SetBatchBytes(PartFactor * int64(a.o.MaxBatchBytes))
}

// PartFactor times MaxBatchBytes is the size that an entry may write to a batch before the rest of
// it goes to the next one. Most groups fill an entry of that size, and write little more than they
// hold: they are not divided.
const PartFactor = 2

// claim takes the group of an entry from the queue. It returns nil if another member or an earlier
// run has proposed the entry.
func (a *Applier) claim(h fsm.GroupHeader) *proposal.Group {
	if h.Proposer == a.o.MemberID {
		if g := a.o.Queue.Claim(h.Sequence); g != nil {
			g.NoteCommitted(a.began)
			return g
		}
	}
	return nil
}

// countApplied counts and measures a request that was applied.
func (a *Applier) countApplied(req *fsm.Request, res *fsm.Result) {
	now := time.Now()
	took := now.Sub(a.began)
	a.began = now
	a.o.Timings.CountApplied(req, res, took)
}

// Apply implements raftnode.Machine. A prompt goroutine waits neither for room on the disk nor for
// an entry that takes several batches: another one goes on.
func (a *Applier) Apply(run []*raftpb.Message, prompt bool) error {
	if a.ended {
		return ErrStopped
	}
	a.prompt = prompt
	err := a.applyRun(run, a.left)
	if err == raftnode.ErrLeft {
		a.left = a.at.Index
		return err
	}
	if a.left = 0; !a.acknowledge(run, err) {
		return ErrStopped
	}
	return nil
}

// deliver passes on the results of requests that were started.
func (a *Applier) deliver() {
	if len(a.started) > 0 {
		a.started = a.o.Queue.Deliver(a.started)
		a.o.Answers.PostNext()
	}
}

// acknowledge ends a run, with the error of applying it. It returns false if the member has failed
// or was stopped: then nothing more is applied.
func (a *Applier) acknowledge(run []*raftpb.Message, err error) bool {
	if err != nil {
		a.ended = true
		// It is unknown whether these took effect.
		for _, g := range append(a.groups, a.confs...) {
			g.Fail(kv.ErrStopped)
		}
		if a.claimed != nil {
			a.claimed.Fail(kv.ErrStopped)
		}
		if !errors.Is(err, ErrStopped) {
			a.failed <- err
		}
		return false
	}
	a.o.Raft.Applied(run)
	// Only now, because raft rejects the next change until it knows that this one is applied.
	for i, g := range a.confs {
		a.started = g.Resolve(a.started)
		a.confs[i] = nil
	}
	a.confs = a.confs[:0]
	a.deliver()
	return true
}

// ErrStopped reports that the member was stopped while apply waited for something, or has failed.
var ErrStopped = errors.New("stopped")

// applyRun carries out a run of committed entries. After raftnode.ErrLeft it is called again: then
// the entries up to left are carried out already.
func (a *Applier) applyRun(run []*raftpb.Message, left uint64) error {
	if left > 0 && a.open == nil { // nothing is added to a batch that lacks room
		if err := a.commitEntries(); err != nil {
			return err
		}
	}
	for _, m := range run {
		if s := m.GetSnapshot(); s != nil {
			if err := a.commitEntries(); err != nil {
				return err
			}
			if err := a.install(s); err != nil {
				return err
			}
		}
		for _, e := range m.GetEntries() {
			if e.GetIndex() <= left {
				continue
			}
			if a.open == nil && a.bytes > 0 && a.bytes+len(e.GetData()) > a.o.MaxBatchBytes {
				// On a full disk a large batch may not fit into a segment.
				if err := a.commitEntries(); err != nil {
					return err
				}
			}
			if err := a.applyEntry(e); err != nil {
				return err
			}
			if max(a.bytes, a.machine.Pending()) >= a.o.MaxBatchBytes {
				if err := a.commitEntries(); err != nil {
					return err
				}
			}
		}
	}
	return a.commitEntries()
}

// openEntry begins an entry.
func (a *Applier) openEntry(e *raftpb.Entry) (err error) {
	if applied := a.o.Applied.Load(); e.GetIndex() <= applied {
		return fmt.Errorf("replica: entry %d to apply, and %d is applied", e.GetIndex(), applied)
	}
	if e.GetTerm() > a.term {
		a.term = e.GetTerm()
		if a.o.Queue.Requeue(a.term) {
			a.o.Raft.Wake()
		}
	}
	a.began = time.Now()
	if a.open, err = a.machine.Open(e); err != nil {
		return err
	}
	if a.claimed = a.claim(a.open.Header()); a.claimed == nil {
		a.open.DiscardResults()
	}
	return nil
}

// applyEntry carries out an entry, or the rest of the one that was left at the end of a batch.
func (a *Applier) applyEntry(e *raftpb.Entry) (err error) {
	if a.open == nil {
		err = a.openEntry(e)
	} else {
		err = a.commitPart()
	}
	if err != nil {
		return err
	}
	open := a.open
	var conf *raftpb.ConfChangeV2
	out, err := open.Next()
	for ; err == nil && out != nil; out, err = open.Next() {
		conf = out.ConfChange
		if err := a.takeOutcome(out); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	switch g := a.claimed; {
	case g == nil:
	case g.IsChange():
		a.confs = append(a.confs, g)
	default:
		a.groups = append(a.groups, g)
	}
	a.open, a.claimed = nil, nil
	if conf != nil {
		if a.o.Force.Forcing() {
			conf = noChange(a.o.MemberID)
		}
		if err := a.o.Raft.ApplyConfChange(e.GetIndex(), conf); err != nil {
			return ErrStopped
		}
	}
	a.at = history.Applied{Term: e.GetTerm(), Index: e.GetIndex()}
	a.bytes += len(e.GetData())
	a.requests += uint64(max(open.Header().Count, 1))
	return nil
}

// noChange returns a configuration change that changes nothing. It replaces the changes of entries
// while the member is forced to be the only one.
func noChange(member uint64) *raftpb.ConfChangeV2 {
	return &raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{{
		Type: raftpb.ConfChangeUpdateNode.Enum(), NodeId: new(member)}}}
}

// takeOutcome records the outcome of one step of an entry, and commits the batch if it is full.
func (a *Applier) takeOutcome(out *fsm.Outcome) error {
	switch {
	case out.BatchFull && a.prompt:
		return raftnode.ErrLeft
	case out.BatchFull:
		return a.commitPart()
	}
	a.o.Raft.Advance()
	if out.Request != nil {
		a.countApplied(out.Request, &out.Result)
		if r := out.Request.Auth; r != nil {
			before := a.users
			a.users = a.machine.Auth()
			a.o.Rights.LogChange(before, a.users, r, out.Result.Err)
		}
	}
	if a.claimed != nil {
		a.claimed.AddResult(out.Result)
	}
	if out.Token != nil {
		a.tokens = append(a.tokens, *out.Token)
	}
	a.tokensEnd = max(a.tokensEnd, out.TokensEnd)
	return nil
}

// commitEntries commits the batch, if entries are complete that are not committed.
func (a *Applier) commitEntries() error {
	if a.at.Index <= a.o.Applied.Load() {
		return nil
	}
	return a.commitBatch()
}

// commitPart commits the batch in the middle of an entry: the position stays before the entry.
// Requests of the entry that were carried out get their results.
func (a *Applier) commitPart() error {
	if err := a.commitBatch(); err != nil {
		return err
	}
	if g := a.claimed; g != nil {
		a.started = g.Resolve(a.started)
		a.deliver()
	}
	return nil
}

// committed returns the newest index that is known to be committed.
func (a *Applier) committed() uint64 { return a.o.Raft.Status().Committed }

// RetryPause is the pause before apply tries again to get space on a full disk.
const RetryPause = 200 * time.Millisecond

// commitStore commits the batch. Committed entries must be applied: if the disk is full, or there
// are no file descriptors, it waits. New writes are rejected during that time.
func (a *Applier) commitStore() (mvcc.Published, error) {
	for {
		pub, err := a.machine.Commit(a.at)
		switch {
		case !kv.Shortage(err):
			a.o.Stall.End(a.committed)
			return pub, err
		case a.prompt:
			return pub, raftnode.ErrLeft
		}
		a.o.Stall.Begin(err, a.o.Applied.Load(), a.committed())
		a.expireGroups(time.Now().Add(-a.o.RequestTimeout))
		select {
		case <-time.After(RetryPause):
		case <-a.o.Stopping:
			return pub, ErrStopped
		}
	}
}

// expireGroups answers requests of the batch that began before a time and cannot be committed yet:
// the keeper does not see them any more. They may still take effect.
func (a *Applier) expireGroups(before time.Time) {
	groups := a.groups
	if a.claimed != nil {
		groups = append(slices.Clip(groups), a.claimed)
	}
	for _, g := range groups {
		if g.Waits() && g.Begun().Before(before) {
			a.o.Queue.FailClaimed(g, a.o.Contacts.TimeoutCause(g.Begun()))
		}
	}
}

// install replaces the state machine by the one of a snapshot. The raft log begins after it by now,
// so there is no way back: every error is fatal, and the next start continues.
func (a *Applier) install(s *raftpb.Snapshot) error {
	at := history.Applied{Term: s.GetMetadata().GetTerm(), Index: s.GetMetadata().GetIndex()}
	machine, err := a.o.Installer.Open(at)
	if err != nil {
		return err
	}
	a.adopt(machine)
	a.at, a.term = at, max(a.term, at.Term)
	a.tokens, a.tokensEnd = a.tokens[:0], 0
	a.prepareCommit()
	a.last.Revision, a.last.Installed = a.o.Installer.Serve(), true
	a.emitCommit()
	for _, g := range a.o.Queue.TakePending() {
		g.Fail(a.o.Contacts.TimeoutCause(g.Begun()))
	}
	a.o.Installer.Finish()
	return nil
}
