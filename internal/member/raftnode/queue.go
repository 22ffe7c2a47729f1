package raftnode

import (
	"sync"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// queue passes messages of a turn to another stage, which takes all of them at once. It has no
// bound of its own: raft bounds what it gives out.
type queue struct {
	mu struct {
		sync.Mutex
		msgs   []*raftpb.Message
		quiet  int // how many of them came by putQuiet
		closed bool
	}
}

// maxSmall is the size of an entry up to which a prompt goroutine writes and applies it: a few
// requests.
const maxSmall = 8 << 10

// isSmall reports whether m has an entry of a few requests, or none.
func isSmall(m *raftpb.Message) bool {
	e := m.GetEntries()
	return len(e) <= 1 && raft.IsEmptySnap(m.GetSnapshot()) &&
		(len(e) == 0 || e[0].GetType() == raftpb.EntryNormal && len(e[0].GetData()) <= maxSmall)
}

// putQuiet adds a message that can wait for the next one.
func (q *queue) putQuiet(m *raftpb.Message) {
	q.mu.Lock()
	q.mu.msgs = append(q.mu.msgs, m)
	q.mu.quiet++
	q.mu.Unlock()
}

// put adds a message. The caller posts the stage.
func (q *queue) put(m *raftpb.Message) {
	q.mu.Lock()
	q.mu.msgs = append(q.mu.msgs, m)
	q.mu.Unlock()
}

// take returns all messages, unless they can wait; dst is what it returned last, for its memory. If
// prompt is set and a message is not small, it returns none, and left is set.
func (q *queue) take(dst []*raftpb.Message, prompt bool) (msgs []*raftpb.Message, left bool) {
	clear(dst)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.closed || len(q.mu.msgs) == q.mu.quiet {
		return dst[:0], false
	}
	if prompt {
		for _, m := range q.mu.msgs {
			if !isSmall(m) {
				return dst[:0], true
			}
		}
	}
	msgs = q.mu.msgs
	q.mu.msgs, q.mu.quiet = dst[:0], 0
	return msgs, false
}

// waiting reports whether there are messages that cannot wait.
func (q *queue) waiting() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.mu.msgs) > q.mu.quiet
}

// close lets take return nothing more, and returns the messages.
func (q *queue) close() []*raftpb.Message {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.closed = true
	return q.mu.msgs
}
