package raftnode

import (
	"sync"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// queue passes messages of a turn to another goroutine, which takes everything there is
// at once. It has no bound of its own: raft bounds what it gives out.
//
// A little that waits alone may have another taker, the second one, so that fewer goroutines are woken for a single request. What was taken
// is one taker's until it is done with it.
type queue struct {
	mu struct {
		sync.Mutex
		msgs   []*raftpb.Message
		quiet  int // how many of them came by putQuiet
		closed bool
		taken  taker
		// claimed is what takeClaimed has returned.
		claimed []*raftpb.Message
	}
	// ready is signaled when msgs stops being empty, or closed is set.
	ready sync.Cond
	// small is sent to if somebody waits who will claim, while few reports true.
	small chan struct{}
	few   func() bool
}

// taker is who has taken something and is not done with it.
type taker uint8

const (
	free   taker = iota
	first        // take
	second       // claim
)

func (q *queue) init(few func() bool) { q.ready.L, q.small, q.few = &q.mu, make(chan struct{}), few }

// maxSmall is the size of an entry up to which the second taker may get it: a few requests.
const maxSmall = 8 << 10

// isSmall reports whether m has an entry of a few requests, or none.
func isSmall(m *raftpb.Message) bool {
	e := m.GetEntries()
	return len(e) <= 1 && raft.IsEmptySnap(m.GetSnapshot()) && (len(e) == 0 || e[0].GetType() == raftpb.EntryNormal && len(e[0].GetData()) <= maxSmall)
}

// putQuiet adds a message for which no goroutine is woken.
func (q *queue) putQuiet(m *raftpb.Message) {
	q.mu.Lock()
	q.mu.msgs = append(q.mu.msgs, m)
	q.mu.quiet++
	q.mu.Unlock()
}

func (q *queue) put(m *raftpb.Message) {
	q.mu.Lock()
	q.mu.msgs = append(q.mu.msgs, m)
	alone, busy := len(q.mu.msgs)-q.mu.quiet == 1, q.mu.taken != free
	q.mu.Unlock()
	if busy {
		return // who has taken something looks again
	}
	if alone && isSmall(m) && q.few() {
		select {
		case q.small <- struct{}{}:
			return
		default:
		}
	}
	q.ready.Signal()
}

// take waits until there is something and returns all of it, in dst's place; nothing after close. The caller is done with what it has
// taken before.
func (q *queue) take(dst []*raftpb.Message) []*raftpb.Message {
	clear(dst)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.taken == first {
		q.mu.taken = free
	}
	for q.mu.taken == second || len(q.mu.msgs) == q.mu.quiet && !q.mu.closed {
		q.ready.Wait()
	}
	if q.mu.closed {
		return nil
	}
	q.mu.taken = first
	got := q.mu.msgs
	q.mu.msgs, q.mu.quiet = dst[:0], 0
	return got
}

// busy reports whether something waits for a taker, or a taker is not done with it.
func (q *queue) busy() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.taken != free || len(q.mu.msgs) > q.mu.quiet
}

// rest returns the messages in it after close.
func (q *queue) rest() []*raftpb.Message {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.msgs
}

// claim keeps the first taker from taking anything until done, unless somebody is not done with what was taken.
func (q *queue) claim() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.taken != free || q.mu.closed {
		return false
	}
	q.mu.taken = second
	return true
}

// takeClaimed returns everything that waits, after claim; nothing if that is not small, or can wait.
func (q *queue) takeClaimed() []*raftpb.Message {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.mu.msgs) == q.mu.quiet {
		return nil
	}
	for _, m := range q.mu.msgs {
		if !isSmall(m) {
			return nil
		}
	}
	q.mu.claimed, q.mu.msgs, q.mu.quiet = q.mu.msgs, q.mu.claimed, 0
	return q.mu.claimed
}

// takeClaimedOrEnd is takeClaimed, and done if that returns nothing.
func (q *queue) takeClaimedOrEnd() []*raftpb.Message {
	msgs := q.takeClaimed()
	if len(msgs) == 0 {
		q.done()
	}
	return msgs
}

// putBack makes what takeClaimed has returned wait again, before the messages in it.
func (q *queue) putBack() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.msgs, q.mu.claimed = append(q.mu.claimed, q.mu.msgs...), nil
}

// done ends the claim, and the use of what takeClaimed has returned.
func (q *queue) done() {
	q.mu.Lock()
	clear(q.mu.claimed)
	q.mu.claimed = q.mu.claimed[:0]
	q.mu.taken = free
	wake := len(q.mu.msgs) > q.mu.quiet || q.mu.closed
	q.mu.Unlock()
	if wake {
		q.ready.Signal()
	}
}

func (q *queue) close() {
	q.mu.Lock()
	q.mu.closed = true
	q.mu.Unlock()
	q.ready.Broadcast()
}
