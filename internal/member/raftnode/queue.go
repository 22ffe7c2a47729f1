package raftnode

import (
	"sync"

	"go.etcd.io/raft/v3/raftpb"
)

// queue hands messages from the raft goroutine to another one, which takes everything that waits
// at once. It has no bound of its own: raft bounds what it gives out.
type queue struct {
	mu struct {
		sync.Mutex
		msgs   []*raftpb.Message
		closed bool
	}
	// ready is signaled when msgs stops being empty, or closed is set.
	ready sync.Cond
}

func (q *queue) init() { q.ready.L = &q.mu }

func (q *queue) put(m *raftpb.Message) {
	q.mu.Lock()
	q.mu.msgs = append(q.mu.msgs, m)
	q.mu.Unlock()
	q.ready.Signal()
}

// take waits until there is something and returns all of it, in dst's place; nothing after close.
func (q *queue) take(dst []*raftpb.Message) []*raftpb.Message {
	clear(dst)
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.mu.msgs) == 0 && !q.mu.closed {
		q.ready.Wait()
	}
	if q.mu.closed {
		return nil
	}
	got := q.mu.msgs
	q.mu.msgs = dst[:0]
	return got
}

func (q *queue) close() {
	q.mu.Lock()
	q.mu.closed = true
	q.mu.Unlock()
	q.ready.Broadcast()
}
