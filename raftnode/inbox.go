package raftnode

import (
	"sync"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// call asks the raft goroutine for something that is no message: to apply a configuration change,
// or to propose one.
type call struct {
	cc      raftpb.ConfChangeI
	propose bool
	done    chan *raftpb.ConfState
	err     chan error
}

// inbox collects what the raft goroutine has to step.
type inbox struct {
	mu struct {
		sync.Mutex
		msgs  []*raftpb.Message
		peer  int // how many of msgs came from other members
		calls []call
	}
}

func (i *inbox) put(msgs ...*raftpb.Message) {
	i.mu.Lock()
	i.mu.msgs = append(i.mu.msgs, msgs...)
	i.mu.Unlock()
}

// putPeer adds messages that came from other members.
func (i *inbox) putPeer(msgs []*raftpb.Message) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, m := range msgs {
		switch t := m.GetType(); {
		case i.mu.peer >= maxPeerMessages:
			return
		case raft.IsLocalMsg(t) || raft.IsLocalMsgTarget(m.GetFrom()) || t == raftpb.MsgSnap:
			// Only the storage of this member speaks so, and snapshots have no receiver yet.
		default:
			i.mu.msgs = append(i.mu.msgs, m)
			i.mu.peer++
		}
	}
}

func (i *inbox) call(c call) {
	i.mu.Lock()
	i.mu.calls = append(i.mu.calls, c)
	i.mu.Unlock()
}

// take returns everything that waits, and keeps the memory of what it returned last.
func (i *inbox) take(msgs []*raftpb.Message, calls []call) ([]*raftpb.Message, []call) {
	clear(msgs)
	clear(calls)
	i.mu.Lock()
	m, c := i.mu.msgs, i.mu.calls
	i.mu.msgs, i.mu.calls, i.mu.peer = msgs[:0], calls[:0], 0
	i.mu.Unlock()
	return m, c
}
