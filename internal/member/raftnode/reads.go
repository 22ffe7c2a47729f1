package raftnode

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"sync"
)

// reads batches readers that need the commit index of the cluster: all that wait when a read index
// is requested share it, and those that come later share the next one.
type reads struct {
	mu struct {
		sync.Mutex
		waiting *read   // joined by readers, not requested yet
		lost    []*read // requested without an answer, to be requested again
		asked   []*read // requested
		closed  bool
		// id names the newest request. It starts at a random number, so that an answer to the
		// member before its restart does not match.
		id uint64
		// oldest is the first id of asked: requests for the same readers may be repeated.
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

// joinBatch returns the batch to wait for, and whether a turn is needed for it.
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

// nextRequest returns the context of a read index to request. It is nil if no readers wait, or if a
// request is outstanding and again does not say that it takes too long.
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

// confirm takes raft's answer. It may answer any of the requests for a batch: each was made after
// its readers came.
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

// forgetAsked gives up requests to a leader that no longer leads. They are made again.
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

// TryReadIndex is ReadIndex without waiting. It succeeds if no other member has to be asked: this
// one is the leader and the only voter.
func (n *Node) TryReadIndex() (index uint64, ok bool) {
	// Every commit of the cluster is made here while alone is set, and what was committed is
	// published before anyone else can know.
	st := n.published.Load()
	return st.Committed, st.alone
}

// ReadIndex returns an index. A state machine that has reached it is as new as any was when
// ReadIndex was called. It waits while there is no leader. Errors: from ctx, and ErrStopped.
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
