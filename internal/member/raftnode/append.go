package raftnode

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/store/wal"
)

// appender writes to the log. It is owned by the append stage.
//
// A hard state that differs from the one before only in its commit index is not worth a write: a
// restart raises the commit index to the state machine's position anyway, and raft finds out the
// rest. It is written with the next append that has other content, or at the end.
type appender struct {
	id       uint64
	log      Log
	maxGroup uint64
	logger   *slog.Logger
	stop     <-chan struct{} // ends waiting for a disk
	settled  *settled

	// steps counts the writes that have ended.
	steps atomic.Uint64
	// writeTime is about the longest that one of the last writes has taken, in nanoseconds.
	writeTime atomic.Int64

	// hard is the newest hard state, dirty whether the log has not seen it.
	hard  *raftpb.HardState
	dirty bool
	// durable is the commit index of the newest hard state in the log, including the collected
	// batches.
	durable uint64

	// msgs are the messages being written. collected is set while the fields below hold their
	// content.
	msgs      []*raftpb.Message
	collected bool

	batches  []wal.Batch
	installs []*raftpb.Snapshot
	local    []*raftpb.Message
	remote   []*raftpb.Message
	failed   bool // nothing more is written
}

// appendQueued writes messages of a queue, and reports whether it has written some. A prompt
// goroutine leaves messages that are not small, or whose write fails. After an error nothing more
// is written.
func (a *appender) appendQueued(q *queue, prompt bool) (written, left bool, err error) {
	if a.failed {
		return false, false, nil
	}
	if !a.collected {
		if a.msgs, left = q.take(a.msgs, prompt); len(a.msgs) == 0 {
			return false, left, nil
		}
		a.collect(a.msgs)
	}
	if prompt {
		if len(a.batches) > 0 && a.appendBatches(a.batches) != nil {
			return false, true, nil
		}
	} else if err := a.writeBatches(a.batches); err != nil {
		a.failed = true
		return false, false, err
	}
	a.collected = false
	a.steps.Add(1)
	clear(a.batches)
	return true, false, nil
}

// carryAppend is the work of the append stage. Responses leave after what they acknowledge is
// written.
func (n *Node) carryAppend(prompt bool) (left bool) {
	a := &n.appender
	written, left, err := a.appendQueued(&n.appends, prompt)
	if err != nil && !errors.Is(err, ErrStopped) {
		n.fail(fmt.Errorf("raft log: %w", err))
	}
	if !written {
		return left
	}
	if n.settled.noteDurable(a.durable) {
		n.turns.PostNext()
	}
	// The log begins after the snapshot from now on: a restart installs it if this process does not
	// get that far. It is queued after what is still to be applied, before raft learns of it, and
	// so before all later entries.
	for i, s := range a.installs {
		n.applies.put(&raftpb.Message{Type: raftpb.MsgStorageApply.Enum(),
			To: new(raft.LocalApplyThread), Snapshot: s})
		n.applying.PostNext()
		a.installs[i] = nil
	}
	if len(a.local) > 0 {
		n.inbox.addMessages(a.local...)
		n.turns.PostNext()
	}
	n.send(a.remote)
	return false
}

// writeLastCommit writes the commit index of the messages that nobody has taken.
func (a *appender) writeLastCommit(rest []*raftpb.Message) {
	for _, m := range rest {
		if len(m.GetEntries()) > 0 || len(m.GetResponses()) > 0 {
			break
		}
		a.noteHardState(m)
	}
	if a.dirty && !a.failed {
		// Not synced: it saves a little work after the restart and nothing depends on it.
		if err := a.log.Append(wal.Batch{HardState: a.hard}); err != nil {
			a.logger.Warn("the last commit index was not written", "error", err)
		}
	}
}

// appendBatches appends batches to the log, and measures how long that takes.
func (a *appender) appendBatches(batches []wal.Batch) error {
	begun := time.Now()
	err := a.log.Append(batches...)
	took, before := time.Since(begun), time.Duration(a.writeTime.Load())
	a.writeTime.Store(int64(max(took, before-before/8)))
	return err
}

// noteHardState notes the hard state of a message, and reports whether it has a new term or vote.
func (a *appender) noteHardState(m *raftpb.Message) (must bool) {
	if m.Commit == nil {
		return false
	}
	next := &raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}
	must = next.GetTerm() != a.hard.GetTerm() || next.GetVote() != a.hard.GetVote()
	a.hard, a.dirty = next, true
	return must
}

// collect sorts the content of messages.
func (a *appender) collect(msgs []*raftpb.Message) {
	a.collected = true
	a.batches, a.local, a.remote, a.installs = a.batches[:0], a.local[:0],
		a.remote[:0], a.installs[:0]
	for _, m := range msgs {
		var start *wal.Start
		if s := m.GetSnapshot(); !raft.IsEmptySnap(s) {
			start = &wal.Start{Index: s.GetMetadata().GetIndex(), Term: s.GetMetadata().GetTerm()}
			a.installs = append(a.installs, s)
		}
		must := a.noteHardState(m) || len(m.GetEntries()) > 0 || start != nil
		if must {
			a.batches = append(a.batches,
				wal.Batch{Snapshot: start, Entries: m.GetEntries(),
					HardState: a.takeHardState(), Sync: true})
		}
		for _, r := range m.GetResponses() {
			if r.GetTo() == a.id {
				a.local = append(a.local, r)
			} else {
				a.remote = append(a.remote, r)
			}
		}
	}
	a.collectSettling()
}

// collectSettling adds the commit index if it must be settled and nothing collected has it.
func (a *appender) collectSettling() {
	if commit := a.hard.GetCommit(); commit > a.durable && a.settled.isDue(commit) {
		a.batches = append(a.batches, wal.Batch{HardState: a.hard, Sync: true})
		a.dirty, a.durable = false, commit
	}
}

// writeBatches writes batches as groups of at most MaxGroup bytes of entries, or one entry. What is
// appended has no bound of its own: a follower takes all that leaders send it.
//
// After a crash the log may end with any of the groups. The hard state of a batch that is divided
// is in its last group: its commit index may be that of the last entry. No promise leaves the
// member before all groups are durable.
//
// On a full disk a group may be too large for what is left, and its entries are not: then groups
// are smaller.
func (a *appender) writeBatches(batches []wal.Batch) error {
	limit := a.maxGroup
	for len(batches) > 0 {
		i, k := fitBatches(batches, limit)
		group := batches[:i:i]
		if k > 0 {
			b := &batches[i]
			group = append(group,
				wal.Batch{Snapshot: b.Snapshot, Entries: b.Entries[:k:k], Sync: true})
		}
		err := a.writeGroup(group, countEntries(group) > 1)
		if kv.Shortage(err) {
			limit /= 2
			continue
		}
		if err != nil {
			return err
		}
		if k > 0 {
			b := &batches[i]
			*b = wal.Batch{HardState: b.HardState, Entries: b.Entries[k:], Sync: true}
		}
		batches = batches[i:]
	}
	return nil
}

// countEntries returns how many entries batches have.
func countEntries(batches []wal.Batch) (n int) {
	for i := range batches {
		n += len(batches[i].Entries)
	}
	return n
}

// entryOverhead is more than what the log adds to the data of an entry.
const entryOverhead = 32

// fitBatches returns how many batches, and how many entries of the next one, have no more than
// limit bytes of entries, and one entry at least.
func fitBatches(batches []wal.Batch, limit uint64) (i, k int) {
	size := uint64(0)
	for i := range batches {
		for k, e := range batches[i].Entries {
			n := uint64(len(e.GetData())) + entryOverhead
			if size > 0 && size+n > limit {
				return i, k
			}
			size += n
		}
	}
	return len(batches), 0
}

const (
	// appendPause is how long after an append that lacked a resource it is tried again.
	appendPause = 200 * time.Millisecond
	// appendTries is how often an append is tried that fails for another reason. A log that has
	// failed returns the same error at once.
	appendTries = 3
)

// writeGroup writes a group. While the log lacks space, file descriptors or memory it waits, unless
// the group can be divided: this member acknowledges nothing, and the rest of the cluster goes on.
// Its error is ErrStopped or one of the log, a kv.Shortage for a group that is to be divided.
func (a *appender) writeGroup(batches []wal.Batch, divisible bool) error {
	for try := 1; ; try++ {
		err := a.appendBatches(batches)
		switch {
		case err == nil:
			a.steps.Add(1)
			if try > 1 {
				a.logger.Info("the raft log takes entries again")
			}
			return nil
		case !kv.Shortage(err) && try >= appendTries, kv.Shortage(err) && divisible:
			return err
		case try == 1:
			a.logger.Warn("the raft log cannot take entries and tries again", "error", err)
		}
		if kv.Shortage(err) {
			select {
			case <-time.After(appendPause):
			case <-a.stop:
				return ErrStopped
			}
		}
	}
}

func (a *appender) takeHardState() *raftpb.HardState {
	if !a.dirty {
		return nil
	}
	a.dirty, a.durable = false, a.hard.GetCommit()
	return a.hard
}
