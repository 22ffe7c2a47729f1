package replica

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/member/raftnode"
	"vigil/internal/member/replica/members"
	"vigil/internal/member/replica/proposal"
	"vigil/internal/state/auth"
	"vigil/internal/state/fsm"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
)

// applier applies entries. It is owned by the apply stage.
//
// Entries that are queued together share one batch of the store, up to MaxBatchBytes: one write to the file and one view
// for readers instead of many. That costs no request time: the entries are committed, and applying the rest of the batch
// in memory is fast.
type applier struct {
	r           *Replica
	machine     *fsm.Machine
	subscribers subscribers

	// The batch under way.
	at       history.Applied
	bytes    int
	requests uint64
	groups   []*proposal.Group
	// term is that of the newest entry.
	term uint64
	// confs are the groups of configuration changes in the run under way.
	confs []*proposal.Group
	// open is the entry under way, claimed its group, if its waiters are here. That is among groups or confs
	// once all of the entry is carried out.
	open    *fsm.Entry
	claimed *proposal.Group
	// began is when the request under way began.
	began time.Time
	// started are requests that were started and have their results, which are not delivered.
	started []*proposal.Call
	prompt  bool // apply leaves what takes long
	// left is the index up to which the run that was left is carried out, 0 if none was left.
	left   uint64
	failed bool // nothing more is applied
	// tokens are those that the batch has issued.
	tokens []fsm.Token
	// users are those of the state machine after the last request about them, announced those of the last commit.
	users, announced *auth.State
	// tokensEnd is the index up to which the batch ends unused tokens, 0 if it does not.
	tokensEnd uint64
	// last is the last commit. Its memory is used again for the next one.
	last Commit
	// removal is the goroutine that closes and removes a store that a snapshot replaced.
	removal sync.WaitGroup
}

func (a *applier) init(r *Replica, m *fsm.Machine) {
	a.r, a.subscribers = r, r.subscribers(r.hub)
	a.adopt(m)
	a.announced = a.users
	a.at = r.current.Load().Log.Applied()
	a.term = a.at.Term
}

// adopt takes up a state machine.
func (a *applier) adopt(m *fsm.Machine) {
	a.machine = m
	a.users = m.Auth()
	m.SetBatchBytes(partFactor * int64(a.r.cfg.MaxBatchBytes))
}

// partFactor times MaxBatchBytes is what an entry may write to a batch before the rest of it goes to the next
// one. Most groups fill an entry of that size, and write little more than they hold: they are not divided.
const partFactor = 2

// claim takes the group of an entry from the queue, nil if another member or an earlier run has proposed it.
func (a *applier) claim(h fsm.GroupHeader) *proposal.Group {
	if h.Proposer == a.r.memberID {
		if g := a.r.queue.Claim(h.Sequence); g != nil {
			g.NoteCommitted(a.began)
			return g
		}
	}
	return nil
}

// observe counts and measures a request that was applied.
func (a *applier) observe(req *fsm.Request, res *fsm.Result) {
	now := time.Now()
	took := now.Sub(a.began)
	a.began = now
	a.r.timings.CountApplied(req, res, took)
}

// Apply implements raftnode.Machine. A prompt goroutine waits neither for room on the disk nor for an entry that takes several
// batches: another one goes on.
func (a *applier) Apply(run []*raftpb.Message, prompt bool) error {
	if a.failed {
		return errStopped
	}
	a.prompt = prompt
	err := a.apply(run, a.left)
	if err == raftnode.ErrLeft {
		a.left = a.at.Index
		return err
	}
	if a.left = 0; !a.acknowledge(run, err) {
		return errStopped
	}
	return nil
}

// deliver passes on the results of requests that were started.
func (a *applier) deliver() {
	if len(a.started) > 0 {
		a.started = a.r.queue.Deliver(a.started)
		a.r.answers.PostNext()
	}
}

// acknowledge ends a run, with the error of applying it. It returns false if the member has failed or was stopped: then nothing more is
// applied.
func (a *applier) acknowledge(run []*raftpb.Message, err error) bool {
	if err != nil {
		a.failed = true
		// It is unknown whether these took effect.
		for _, g := range append(a.groups, a.confs...) {
			g.Fail(kv.ErrStopped)
		}
		if a.claimed != nil {
			a.claimed.Fail(kv.ErrStopped)
		}
		if !errors.Is(err, errStopped) {
			a.r.fail(err)
		}
		return false
	}
	a.r.node.Applied(run)
	// Only now, because raft refuses the next one until it knows that this one is applied.
	for i, g := range a.confs {
		a.started = g.Resolve(a.started)
		a.confs[i] = nil
	}
	a.confs = a.confs[:0]
	a.deliver()
	return true
}

// errStopped: the member was stopped while apply waited for something, or has failed.
var errStopped = errors.New("stopped")

// apply carries out a run of committed entries. After raftnode.ErrLeft it is called again: then those up to left are carried out already.
func (a *applier) apply(run []*raftpb.Message, left uint64) error {
	if left > 0 && a.open == nil { // nothing is added to a batch that lacks room
		if err := a.commit(); err != nil {
			return err
		}
	}
	for _, m := range run {
		if s := m.GetSnapshot(); s != nil {
			if err := a.commit(); err != nil {
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
			if a.open == nil && a.bytes > 0 && a.bytes+len(e.GetData()) > a.r.cfg.MaxBatchBytes {
				// On a full disk a large batch may not fit into a segment.
				if err := a.commit(); err != nil {
					return err
				}
			}
			if err := a.entry(e); err != nil {
				return err
			}
			if max(a.bytes, a.machine.Pending()) >= a.r.cfg.MaxBatchBytes {
				if err := a.commit(); err != nil {
					return err
				}
			}
		}
	}
	return a.commit()
}

// begin opens an entry.
func (a *applier) begin(e *raftpb.Entry) (err error) {
	if e.GetIndex() <= a.r.applied.Load() {
		return fmt.Errorf("replica: entry %d to apply, and %d is applied", e.GetIndex(), a.r.applied.Load())
	}
	if e.GetTerm() > a.term {
		a.term = e.GetTerm()
		if a.r.queue.Requeue(a.term) {
			a.r.node.Wake()
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

// entry carries out an entry, or the rest of the one that was left at the end of a batch.
func (a *applier) entry(e *raftpb.Entry) (err error) {
	if a.open == nil {
		err = a.begin(e)
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
		if err := a.take(out); err != nil {
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
		if a.r.Members.Forcing() {
			conf = members.NoChange(a.r.memberID)
		}
		if err := a.r.node.ApplyConfChange(e.GetIndex(), conf); err != nil {
			return errStopped
		}
	}
	a.at = history.Applied{Term: e.GetTerm(), Index: e.GetIndex()}
	a.bytes += len(e.GetData())
	a.requests += uint64(max(open.Header().Count, 1))
	return nil
}

// take takes what one step of an entry has come to, and commits the batch if it is full.
func (a *applier) take(out *fsm.Outcome) error {
	switch {
	case out.BatchFull && a.prompt:
		return raftnode.ErrLeft
	case out.BatchFull:
		return a.commitPart()
	}
	a.r.node.Advance()
	if out.Request != nil {
		a.observe(out.Request, &out.Result)
		if r := out.Request.Auth; r != nil {
			before := a.users
			a.users = a.machine.Auth()
			a.r.Access.LogChange(before, a.users, r, out.Result.Err)
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

// commit makes the batch readable, publishes it, and resolves its waiters, in this order.
func (a *applier) commit() error {
	if a.at.Index <= a.r.applied.Load() {
		return nil
	}
	return a.commitBatch()
}

// commitPart is commit in the middle of an entry: the position stays before the entry. Requests of the entry that were
// carried out get their results.
func (a *applier) commitPart() error {
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
func (a *applier) committed() uint64 { return a.r.node.Status().Committed }

// noSpaceRetry is the pause before apply tries again to get space on a full disk.
const noSpaceRetry = 200 * time.Millisecond

// commitStore commits the batch. Committed entries must be applied: if the disk is full, or there are no file descriptors,
// it waits. New writes are rejected meanwhile.
func (a *applier) commitStore() (mvcc.Published, error) {
	for {
		pub, err := a.machine.Commit(a.at)
		switch {
		case !kv.Shortage(err):
			a.r.stall.End(a.committed)
			return pub, err
		case a.prompt:
			return pub, raftnode.ErrLeft
		}
		a.r.stall.Begin(err, a.r.applied.Load(), a.committed())
		a.expire(time.Now().Add(-a.r.cfg.RequestTimeout))
		select {
		case <-time.After(noSpaceRetry):
		case <-a.r.stopping:
			return pub, errStopped
		}
	}
}

// expire answers requests of the batch that began before a time and cannot be committed yet: the keeper does not see them
// any more. They may still take effect.
func (a *applier) expire(before time.Time) {
	groups := a.groups
	if a.claimed != nil {
		groups = append(slices.Clip(groups), a.claimed)
	}
	for _, g := range groups {
		if g.Waits() && g.Begun().Before(before) {
			a.r.queue.FailClaimed(g, a.r.TimeoutCause(g.Begun()))
		}
	}
}
