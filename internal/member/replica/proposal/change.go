package proposal

import (
	"context"
	"errors"
	"time"

	"vigil/internal/state/fsm"
)

// ErrLost is the result of a configuration change that was proposed and never takes effect.
var ErrLost = errors.New("lost with its leader")

// Change is a configuration change, which its caller proposes.
type Change struct {
	q    *Queue
	call *Call
	// Header is the header of its entry.
	Header fsm.GroupHeader
}

// Register gives a configuration change a header, and registers the group that gets its result. The
// error is the error of Close.
func (q *Queue) Register() (*Change, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.err != nil {
		return nil, q.mu.err
	}
	q.mu.seq++
	c := newCall()
	g := &Group{q: q, seq: q.mu.seq, buf: make([]byte, fsm.HeaderSize), calls: []*Call{c},
		marks: Milestones{Begun: time.Now()}, conf: true}
	c.begun = g.marks.Begun
	q.mu.pending[g.seq] = g
	q.mu.count++
	return &Change{q, c, fsm.GroupHeader{Proposer: q.o.Member, Sequence: g.seq, Count: 1}}, nil
}

// NoteProposed notes the term in which the change was proposed.
func (c *Change) NoteProposed(term uint64) {
	q := c.q
	q.mu.Lock()
	g := q.mu.pending[c.Header.Sequence]
	lost := g != nil && q.mu.applied > term
	switch {
	case lost:
		q.removePending(g)
		q.uncount(g)
	case g != nil:
		g.term = term
	}
	q.mu.Unlock()
	if lost {
		g.Fail(ErrLost)
	}
}

// Wait waits for the result. If stop is closed first, it returns no result and no error; if ctx
// ends, its error. The change may still take effect then.
func (c *Change) Wait(ctx context.Context, stop <-chan struct{}) (res fsm.Result, err error) {
	select {
	case <-c.call.ready:
		return c.call.Result, nil
	case <-stop:
	case <-ctx.Done():
		err = ctx.Err()
	}
	select {
	case <-c.call.ready:
		return c.call.Result, nil
	default:
	}
	c.Withdraw()
	return fsm.Result{}, err
}

// Withdraw removes a change whose result is not needed.
func (c *Change) Withdraw() { c.q.Claim(c.Header.Sequence) }
