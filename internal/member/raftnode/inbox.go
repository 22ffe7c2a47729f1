package raftnode

import (
	"slices"
	"sync"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// call asks for something in a turn that is not a message of raft. done, if set, is closed when it
// is done.
type call struct {
	do   func(*core)
	done chan struct{}
}

// inbox collects what the next turn has to step.
type inbox struct {
	mu struct {
		sync.Mutex
		msgs  []*raftpb.Message
		peer  int // how many of msgs came from other members
		calls []call
		// unreachable are members to which messages were lost.
		unreachable []uint64
	}
}

func (i *inbox) addMessages(msgs ...*raftpb.Message) {
	i.mu.Lock()
	i.mu.msgs = append(i.mu.msgs, msgs...)
	i.mu.Unlock()
}

// addPeerMessages adds messages that came from other members.
func (i *inbox) addPeerMessages(msgs []*raftpb.Message) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, m := range msgs {
		switch t := m.GetType(); {
		case i.mu.peer >= maxPeerMessages:
			return
		case raft.IsLocalMsg(t) || raft.IsLocalMsgTarget(m.GetFrom()) || t == raftpb.MsgSnap:
			// Only the storage of this member sends these, and a snapshot arrives with its state.
		default:
			i.mu.msgs = append(i.mu.msgs, m)
			i.mu.peer++
		}
	}
}

func (i *inbox) addCall(c call) {
	i.mu.Lock()
	i.mu.calls = append(i.mu.calls, c)
	i.mu.Unlock()
}

// addUnreachable notes that messages to a member were lost.
func (i *inbox) addUnreachable(id uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !slices.Contains(i.mu.unreachable, id) {
		i.mu.unreachable = append(i.mu.unreachable, id)
	}
}

// takeUnreachable returns the members to which messages were lost.
func (i *inbox) takeUnreachable() []uint64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.mu.unreachable) == 0 {
		return nil
	}
	out := i.mu.unreachable
	i.mu.unreachable = nil
	return out
}

// takeAll returns the messages and calls that wait. It reuses the memory of its arguments, the last
// result.
func (i *inbox) takeAll(msgs []*raftpb.Message, calls []call) ([]*raftpb.Message, []call) {
	clear(msgs)
	clear(calls)
	i.mu.Lock()
	m, c := i.mu.msgs, i.mu.calls
	i.mu.msgs, i.mu.calls, i.mu.peer = msgs[:0], calls[:0], 0
	i.mu.Unlock()
	return m, c
}
