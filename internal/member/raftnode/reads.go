package raftnode

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"sync"
)

// reads batches readers that need to know how far the cluster is: all that wait when a read index is
// asked for share one, those that come later share the next.
type reads struct {
	mu struct {
		sync.Mutex
		waiting *read   // joined by readers, not asked for yet
		lost    []*read // asked for in vain, to be asked for again
		asked   []*read // asked for
		closed  bool
		// id names the newest request. It starts at a random number, so that an answer to a
		// former life of this member is not taken for one to this.
		id uint64
		// oldest is the first id of asked: the same readers may be asked for repeatedly.
		oldest uint64
	}
}

// read is one batch of readers. index and err are set before done is closed.
type read struct {
	done  chan struct{}
	index uint64
	err   error
}

func (r *reads) init() {
	var b [8]byte
	rand.Read(b[:]) // never fails
	r.mu.id = binary.LittleEndian.Uint64(b[:])
}

// joinBatch returns the batch to wait for, and whether the raft goroutine must be woken for it.
func (r *reads) joinBatch() (b *read, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.waiting == nil {
		r.mu.waiting = &read{done: make(chan struct{})}
		first = true
		if r.mu.closed {
			r.mu.waiting.err = ErrStopped
			close(r.mu.waiting.done)
		}
	}
	return r.mu.waiting, first
}

// nextRequest returns the context of a read index to ask for, nil if none is needed: readers wait and
// nothing is outstanding, or again says that the outstanding one takes too long.
func (r *reads) nextRequest(again bool) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.mu.closed:
		return nil
	case len(r.mu.asked) == 0 && (r.mu.waiting != nil || len(r.mu.lost) > 0):
		r.mu.asked = append(r.mu.asked, r.mu.lost...)
		if r.mu.waiting != nil {
			r.mu.asked = append(r.mu.asked, r.mu.waiting)
		}
		clear(r.mu.lost)
		r.mu.lost, r.mu.waiting = r.mu.lost[:0], nil
		r.mu.id++
		r.mu.oldest = r.mu.id
	case len(r.mu.asked) > 0 && again:
		r.mu.id++
	default:
		return nil
	}
	return binary.LittleEndian.AppendUint64(nil, r.mu.id)
}

// confirm takes raft's answer. An answer to any of the requests made for a batch will do: each was
// made after its readers came.
func (r *reads) confirm(ctx []byte, index uint64) {
	if len(ctx) != 8 {
		return
	}
	id := binary.LittleEndian.Uint64(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	// Distances, because the counter may wrap.
	if id-r.mu.oldest > r.mu.id-r.mu.oldest {
		return
	}
	for _, b := range r.mu.asked {
		b.index = index
		close(b.done)
	}
	clear(r.mu.asked)
	r.mu.asked = r.mu.asked[:0]
}

// forgetAsked gives up what was asked of a leader that is none any more: its readers are asked for
// again.
func (r *reads) forgetAsked() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.lost = append(r.mu.lost, r.mu.asked...)
	clear(r.mu.asked)
	r.mu.asked = r.mu.asked[:0]
}

func (r *reads) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.closed = true
	all := append(r.mu.asked, r.mu.lost...)
	if r.mu.waiting != nil {
		all = append(all, r.mu.waiting)
	}
	for _, b := range all {
		b.err = ErrStopped
		close(b.done)
	}
	r.mu.asked, r.mu.lost, r.mu.waiting = nil, nil, nil
}

// TryReadIndex is ReadIndex where that needs no question to anyone: this member is the leader and
// the only voter. It does not wait.
func (n *Node) TryReadIndex() (index uint64, ok bool) {
	// Every commit of the cluster is made here while alone is set, and what was committed is
	// published before anyone else can know.
	st := n.published.Load()
	return st.Committed, st.alone
}

// ReadIndex returns an index that a state machine must have reached to be as new as any was when
// ReadIndex was called. It waits as long as there is no leader; its errors are those of ctx, and
// ErrStopped.
func (n *Node) ReadIndex(ctx context.Context) (uint64, error) {
	if index, ok := n.TryReadIndex(); ok {
		return index, nil
	}
	b, first := n.reads.joinBatch()
	if first {
		n.wake()
	}
	select {
	case <-b.done:
		return b.index, b.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
