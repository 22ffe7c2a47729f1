package raftnode

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"vigil/internal/store/wal"
)

// removal is a configuration change that removes member 2.
func removal() *raftpb.ConfChangeV2 {
	return &raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{{Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: new(uint64(2))}}}
}

// removalEntry is a log with that change at index 2.
func removalEntry(t *testing.T) []*raftpb.Entry {
	data, err := proto.Marshal(removal())
	if err != nil {
		t.Fatal(err)
	}
	return []*raftpb.Entry{{Index: new(uint64(2)), Term: new(uint64(1)),
		Type: raftpb.EntryConfChangeV2.Enum(), Data: data}}
}

// durableCommit is the commit index that the log has in synced groups.
func (l *memLog) durableCommit() (commit uint64) {
	for _, group := range l.groups() {
		sync := false
		for _, b := range group {
			sync = sync || b.Sync
		}
		for _, b := range group {
			if sync && b.HardState != nil {
				commit = b.HardState.GetCommit()
			}
		}
	}
	return commit
}

// While the log of a leader takes nothing, a configuration change that is committed has no effect,
// and nobody is told of it. Once the log has its commit, the member that it removes hears of it,
// too.
func TestNobodyHearsOfAConfChangeThatIsNotSettled(t *testing.T) {
	for _, found := range []bool{false, true} {
		t.Run(fmt.Sprintf("found in the log=%v", found),
			func(t *testing.T) { hearsNothing(t, found) })
	}
}

// hearsNothing has the change proposed, or found in the log at the start.
func hearsNothing(t *testing.T, found bool) {
	synctest.Test(t, func(t *testing.T) {
		out := &sent{}
		log := newMemLog(wal.Start{Index: 1, Term: 1})
		if found {
			log.mu.ents, log.mu.hard = removalEntry(t),
				&raftpb.HardState{Term: new(uint64(1)), Vote: new(uint64(1)),
					Commit: new(uint64(1))}
		}
		log.gate = make(chan struct{})
		hold := make(chan struct{})
		go func() {
			for {
				select {
				case log.gate <- struct{}{}:
				case <-hold:
					return
				}
			}
		}()
		m := startMember(t, log, func(c *Config) {
			c.ConfState = &raftpb.ConfState{Voters: []uint64{1, 2}}
			c.Transport = out
		})
		if did, err := m.AdvanceElection(30); err != nil || !did {
			t.Fatal(did, err)
		}
		answer := func(typ raftpb.MessageType, term, index uint64) {
			m.Step(&raftpb.Message{Type: typ.Enum(), From: new(uint64(2)), To: new(uint64(1)),
				Term: new(term), Index: new(index)})
			synctest.Wait()
		}
		synctest.Wait()
		answer(raftpb.MsgPreVoteResp, 2, 0)
		answer(raftpb.MsgVoteResp, 2, 0)
		change := uint64(2)
		if !found {
			change = 3
			answer(raftpb.MsgAppResp, 2, 2)
			if _, err := m.ProposeConfChange(removal()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		log.mu.Lock()
		last := log.mu.start.Index + uint64(len(log.mu.ents))
		log.mu.Unlock()
		out.take()
		close(hold)
		answer(raftpb.MsgAppResp, 2, last)
		if got := m.Status().Committed; got != last {
			t.Fatalf("committed %d, want %d", got, last)
		}
		applied := make(chan error, 1)
		go func() { applied <- m.ApplyConfChange(change, removal()) }()
		time.Sleep(3 * 100 * time.Millisecond)
		synctest.Wait()
		told := func() (most uint64) {
			for _, x := range out.take() {
				most = max(most, x.GetCommit())
			}
			return most
		}
		if got := told(); got == 0 || got >= change {
			t.Errorf("told of commit %d while the change at %d is not settled", got, change)
		}
		select {
		case err := <-applied:
			t.Fatalf("the change took effect before it was settled: %v", err)
		default:
		}
		close(log.gate)
		if err := <-applied; err != nil {
			t.Fatal(err)
		}
		if got := log.durableCommit(); got < change {
			t.Errorf("it took effect with commit %d in the log, want %d", got, change)
		}
		if got := told(); got != last {
			t.Errorf("the removed member was told of commit %d, want %d", got, last)
		}
	})
}

// The commit of a configuration change that was found in the log after a restart is written again:
// what was read may have been in the page cache only.
func TestAConfChangeIsSettledAgainAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog(wal.Start{Index: 1, Term: 1})
		log.mu.ents = removalEntry(t)
		log.mu.hard = &raftpb.HardState{Term: new(uint64(1)), Vote: new(uint64(1)),
			Commit: new(uint64(2))}
		m := startMember(t, log, func(c *Config) {
			c.Applied = 1
			c.ConfState = &raftpb.ConfState{Voters: []uint64{1, 2}}
			c.Transport = &sent{}
		})
		synctest.Wait()
		if err := m.ApplyConfChange(2, removal()); err != nil {
			t.Fatal(err)
		}
		if got := log.durableCommit(); got != 2 {
			t.Errorf("it took effect with commit %d in what was synced, want 2", got)
		}
	})
}

// Who waits for the log is released when the node ends.
func TestApplyConfChangeEndsWithTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog(wal.Start{Index: 1, Term: 1})
		m := startMember(t, log, func(c *Config) {
			c.ConfState = &raftpb.ConfState{Voters: []uint64{1, 2}}
			c.Transport = &sent{}
		})
		applied := make(chan error, 1)
		go func() { applied <- m.ApplyConfChange(7, removal()) }() // it never gets that far
		synctest.Wait()
		m.Stop()
		if err := <-applied; !errors.Is(err, ErrStopped) {
			t.Errorf("%v, want %v", err, ErrStopped)
		}
	})
}

// While the log of a follower takes nothing, what waits for it does not grow with the messages that
// arrive, because the commit of a configuration change is not settled.
func TestSettlingPilesUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog(wal.Start{Index: 1, Term: 1})
		m := startMember(t, log, func(c *Config) {
			c.ConfState = &raftpb.ConfState{Voters: []uint64{1, 2, 3}}
			c.Transport = &sent{}
		})
		time.Sleep(100 * time.Millisecond)
		message := func(typ raftpb.MessageType, entries []*raftpb.Entry, commit uint64) {
			m.Step(&raftpb.Message{Type: typ.Enum(), From: new(uint64(3)), To: new(uint64(1)),
				Term: new(uint64(2)), Index: new(uint64(1)),
				LogTerm: new(uint64(1)), Entries: entries, Commit: new(commit)})
			synctest.Wait()
		}
		message(raftpb.MsgHeartbeat, nil, 1)
		resume := ended(t, log.hang())
		entries := removalEntry(t)
		entries[0].Term = new(uint64(2))
		message(raftpb.MsgApp, entries, 1)
		for range 100 {
			message(raftpb.MsgHeartbeat, nil, 2)
			time.Sleep(50 * time.Millisecond)
		}
		m.appends.mu.Lock()
		waiting := len(m.appends.mu.msgs)
		m.appends.mu.Unlock()
		if m.Status().Committed != 2 || waiting > 5 {
			t.Errorf("commit %d, and %d messages wait for the log", m.Status().Committed, waiting)
		}
		resume()
		synctest.Wait()
		if got := log.durableCommit(); got != 2 {
			t.Errorf("commit %d is settled, want 2", got)
		}
	})
}
