package replica

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"vigil/internal/kv"
	"vigil/internal/state/fsm"
)

// queue collects requests into groups, and finds the group of an outcome again. It is the
// raftnode.Proposals of the member.
//
// A group is filled, then full or taken, then pending until its result is known or it expires.
type queue struct {
	member      uint64
	maxBytes    int
	maxRequests int
	maxPending  int64
	maxRequest  int

	mu struct {
		sync.Mutex
		filling *group
		full    []*group
		pending map[uint64]*group
		// bytes is the size of all of them, cost what they add to the store.
		bytes, cost int64
		// seq is the sequence of the newest group that was taken.
		seq uint64
		// term is the newest one in which a group was proposed, out the number of groups that were
		// proposed in it by way of Next and are pending.
		term uint64
		out  int
		// applied is the newest term of which an entry was applied.
		applied uint64
		// count is the number of requests under way.
		count int
		// err is set when nothing is taken any more.
		err error
		// idle, if set, is closed when nothing is under way.
		idle chan struct{}
	}
	// room returns why there is no room for what adds to the store. The raft goroutine calls it: it does no I/O.
	room func() error
	// offered is what Next returned last. Owned by the raft goroutine.
	offered *group

	failed atomic.Uint64 // requests that got no result
	// applying is what the requests add to the store that apply has taken and not committed.
	applying atomic.Int64

	waiters sync.Pool // of *waiter
	groups  sync.Pool // of *group
}

func newQueue(c *Config, member uint64) *queue {
	q := &queue{
		member:      member,
		maxBytes:    c.MaxGroupBytes,
		maxRequests: c.MaxGroupRequests,
		maxPending:  c.MaxPendingBytes,
		maxRequest:  c.MaxRequestBytes,
	}
	q.room = func() error { return nil }
	q.mu.pending = map[uint64]*group{}
	q.waiters.New = func() any { return &waiter{done: make(chan struct{}, 1)} }
	q.groups.New = func() any { return new(group) }
	// A former run's groups may still be in the log: a random start keeps the names apart.
	var b [8]byte
	rand.Read(b[:]) // never fails
	q.mu.seq = binary.LittleEndian.Uint64(b[:])
	return q
}

// add puts a request into the group that is being filled. The request adds cost bytes to the store; room
// returns why there is no room for that and all that is waiting, if there is none. wake says that the raft goroutine may
// not know that there is a group.
func (q *queue) add(ctx context.Context, r *fsm.Request, w *waiter, cost int64, room func(int64) error) (wake bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.err != nil {
		return false, q.mu.err
	}
	// Here and not before: what a client asks for after it has given up a request must come after that one, or
	// without it.
	if err := ctx.Err(); err != nil {
		return false, err
	}
	g := q.mu.filling
	if g == nil {
		g = q.groups.Get().(*group)
		g.buf = fsm.AppendHeader(g.buf[:0])
		g.begun, g.marks, g.cost = time.Now(), milestones{}, 0
		wake = true
	}
	before := len(g.buf)
	buf, err := fsm.AppendRequest(g.buf, r)
	size := len(buf) - before
	switch {
	case err != nil:
	case size > q.maxRequest && fromClient(r):
		err = kv.ErrRequestTooLarge
	case q.mu.bytes+int64(size) > q.maxPending:
		err = kv.ErrTooManyRequests
	case cost > 0:
		err = room(q.mu.cost + cost)
	}
	if err != nil {
		g.buf = buf[:before]
		if wake {
			q.release(g)
		}
		return false, err
	}
	g.buf = buf
	w.begun, w.size, w.grows = g.begun, size, cost > 0
	g.waiters = append(g.waiters, w)
	q.mu.filling = g
	q.mu.bytes += int64(size)
	q.mu.cost += cost
	g.cost += cost
	q.mu.count++
	if len(g.buf) >= q.maxBytes || len(g.waiters) >= q.maxRequests {
		q.sealFilling()
	}
	return wake, nil
}

// fromClient reports whether a client asks for r. What members ask for is bounded by themselves and goes on
// with any limit for clients.
func fromClient(r *fsm.Request) bool {
	switch r.Kind() {
	case fsm.KindLeaseExpire, fsm.KindLeaseCheckpoint, fsm.KindAttributes, fsm.KindAlarm, fsm.KindVersion:
		return false
	}
	return true
}

// sealFilling ends the group that is being filled. mu is held.
func (q *queue) sealFilling() {
	if q.mu.filling != nil {
		q.mu.full = append(q.mu.full, q.mu.filling)
		q.mu.filling = nil
	}
}

// Next takes the oldest group for the raft goroutine.
func (q *queue) Next(term uint64) []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.room(); err != nil {
		q.turnAway(err)
	}
	g := q.mu.filling
	if len(q.mu.full) > 0 {
		g = q.mu.full[0]
		q.mu.full[0] = nil
		q.mu.full = q.mu.full[1:]
	} else {
		q.mu.filling = nil
	}
	q.offered = g
	if g == nil {
		return nil
	}
	q.mu.seq++
	g.seq, g.term = q.mu.seq, term
	g.marks.proposed = time.Since(g.begun)
	if q.mu.term != term {
		q.mu.term, q.mu.out = term, 0
	}
	q.mu.out++
	q.mu.pending[g.seq] = g
	fsm.PutHeader(g.buf, fsm.GroupHeader{Proposer: q.member, Sequence: g.seq, Count: len(g.waiters)})
	return g.buf
}

// turnAway rejects requests that add to the store and are not proposed yet: they were accepted while there was room, and
// would use up the reserve of requests that free space. mu is held.
func (q *queue) turnAway(err error) {
	q.sealFilling()
	q.mu.full = slices.DeleteFunc(q.mu.full, func(g *group) bool {
		if g.cost == 0 {
			return false
		}
		// Raft may know the bytes of a group that is proposed again.
		rest := &group{buf: slices.Clone(g.buf[:fsm.HeaderSize]), begun: g.begun, marks: g.marks}
		from := fsm.HeaderSize
		for _, w := range g.waiters {
			to := from + w.size
			if w.grows {
				q.failed.Add(1)
				w.resolve(fsm.Result{Err: err}, g.marks)
			} else {
				rest.buf = append(rest.buf, g.buf[from:to]...)
				rest.waiters = append(rest.waiters, w)
			}
			from = to
		}
		q.mu.bytes += int64(len(rest.buf) - fsm.HeaderSize)
		q.mu.count += len(rest.waiters)
		q.forget(g)
		*g = *rest
		return len(g.waiters) == 0
	})
}

// Dropped fails the group that Next returned last. It has no effect and never will.
func (q *queue) Dropped() {
	if g := q.claim(q.offered.seq); g != nil {
		q.applying.Add(-g.cost)
		q.failed.Add(uint64(len(g.waiters)))
		g.resolve(kv.ErrTooManyRequests)
	}
}

// claim takes a pending group for resolving; only one caller gets it. It returns nil if there is none. What the group adds
// to the store counts as being applied.
func (q *queue) claim(seq uint64) *group {
	q.mu.Lock()
	defer q.mu.Unlock()
	g := q.mu.pending[seq]
	if g != nil {
		q.applying.Add(g.cost)
		q.removePending(g)
		q.forget(g)
	}
	return g
}

// removePending removes a group from the pending ones. mu is held.
func (q *queue) removePending(g *group) {
	delete(q.mu.pending, g.seq)
	if !g.conf && g.term == q.mu.term {
		q.mu.out--
	}
}

// Outstanding returns how many groups that Next handed out for a term are pending.
func (q *queue) Outstanding(term uint64) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.term != term {
		return 0
	}
	return q.mu.out
}

// register names a configuration change: what PutHeader needs, and the group that its outcome comes to.
func (q *queue) register(w *waiter) (fsm.GroupHeader, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.err != nil {
		return fsm.GroupHeader{}, q.mu.err
	}
	q.mu.seq++
	g := &group{seq: q.mu.seq, buf: make([]byte, fsm.HeaderSize), waiters: []*waiter{w}, begun: time.Now(), conf: true}
	w.begun = g.begun
	q.mu.pending[g.seq] = g
	q.mu.count++
	return fsm.GroupHeader{Proposer: q.member, Sequence: g.seq, Count: 1}, nil
}

// proposed notes the term in which a configuration change was proposed.
func (q *queue) proposed(seq, term uint64) {
	q.mu.Lock()
	g := q.mu.pending[seq]
	lost := g != nil && q.mu.applied > term
	switch {
	case lost:
		q.removePending(g)
		q.forget(g)
	case g != nil:
		g.term = term
	}
	q.mu.Unlock()
	if lost {
		g.resolve(errLost)
	}
}

// requeue is called when the first entry of a term is applied. A group that was proposed in an earlier term and is not
// applied by now never will be: it is proposed again, before later groups. It reports whether there was one.
func (q *queue) requeue(term uint64) (again bool) {
	var lost []*group
	q.mu.Lock()
	q.mu.applied = term
	var back []*group
	for _, g := range q.mu.pending {
		switch {
		case g.term == 0 || g.term >= term:
		case g.conf:
			q.removePending(g)
			q.forget(g)
			lost = append(lost, g)
		default:
			q.removePending(g)
			g.term = 0
			back = append(back, g)
		}
	}
	slices.SortFunc(back, func(a, b *group) int { return cmp.Compare(int64(a.seq-b.seq), 0) })
	q.mu.full = append(back, q.mu.full...)
	q.mu.Unlock()
	for _, g := range lost {
		g.resolve(errLost)
	}
	return len(back) > 0
}

// waits reports whether there are groups to propose.
func (q *queue) waits() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.filling != nil || len(q.mu.full) > 0
}

// forget removes g from the counts. mu is held.
func (q *queue) forget(g *group) {
	q.mu.bytes -= int64(len(g.buf) - fsm.HeaderSize)
	q.mu.cost -= g.cost
	q.mu.count -= len(g.waiters)
	if q.mu.count == 0 && q.mu.idle != nil {
		close(q.mu.idle)
		q.mu.idle = nil
	}
}

// release lets the memory of a resolved group be used again. It must have had its outcome, so that
// raft is done with the bytes: a group that timed out is left to the garbage collector.
func (q *queue) release(g *group) {
	clear(g.waiters)
	clear(g.results)
	g.waiters, g.results, g.term = g.waiters[:0], g.results[:0], 0
	if cap(g.buf) > keepGroup {
		g.buf = nil
	}
	q.groups.Put(g)
}

// expire ends the group that is being filled, and removes groups that began before a time.
func (q *queue) expire(before time.Time) []*group {
	return q.remove(func(g *group) bool { return g.begun.Before(before) })
}

// remove ends the group that is being filled, and removes the groups for which gone reports true.
func (q *queue) remove(gone func(*group) bool) (out []*group) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sealFilling()
	keep := q.mu.full[:0]
	for _, g := range q.mu.full {
		if gone(g) {
			out = append(out, g)
		} else {
			keep = append(keep, g)
		}
	}
	clear(q.mu.full[len(keep):])
	q.mu.full = keep
	for _, g := range q.mu.pending {
		if gone(g) {
			q.removePending(g)
			out = append(out, g)
		}
	}
	for _, g := range out {
		q.failed.Add(uint64(len(g.waiters)))
		q.forget(g)
	}
	return out
}

// overtaken removes the groups that were proposed: a snapshot has skipped entries, and it is unknown whether those of the
// groups were among them.
func (q *queue) overtaken() (out []*group) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, g := range q.mu.pending {
		q.removePending(g)
		q.failed.Add(uint64(len(g.waiters)))
		q.forget(g)
		out = append(out, g)
	}
	return out
}

// refuse rejects all later requests, and returns a channel that is closed when no request is under way.
func (q *queue) refuse(err error) <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.err == nil {
		q.mu.err = err
	}
	if q.mu.idle == nil {
		q.mu.idle = make(chan struct{})
	}
	idle := q.mu.idle
	if q.mu.count == 0 {
		close(idle)
		q.mu.idle = nil
	}
	return idle
}

// abandon fails all requests under way.
func (q *queue) abandon(err error) {
	q.refuse(err)
	for _, g := range q.remove(func(*group) bool { return true }) {
		g.resolve(err)
	}
}

// pending returns the number of requests under way.
func (q *queue) pending() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.count
}
