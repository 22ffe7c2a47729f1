package proposal

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"vigil/internal/kv"
	"vigil/internal/state/fsm"
)

// Options are the limits of a queue.
type Options struct {
	// Member is the id of this member, which proposes the groups.
	Member uint64
	// MaxGroupBytes and MaxGroupRequests are the size at which a group is full.
	MaxGroupBytes, MaxGroupRequests int
	// MaxPendingBytes bounds the encodings of all requests under way, MaxRequestBytes the encoding
	// of one request. A tenth of the former is reserved for requests of at most MaxGroupBytes.
	MaxPendingBytes int64
	MaxRequestBytes int
	Space           Space
	// Answers is posted when there are results.
	Answers Stage
	Stamper Stamper
}

// Stamper sets the times of groups.
type Stamper interface {
	// StampGroup sets the time of a group that this member, the leader of a term, adds to its log.
	StampGroup(term uint64, group []byte)
}

// Stage is a stage of the member's line.
type Stage interface{ Post() }

// ErrUnmeasured is Space's error if it must ask the disk.
var ErrUnmeasured = errors.New("proposal: free space is not known")

// Space reports whether there is room for requests that add to the store.
type Space interface {
	// Shortage returns why nothing can be added to the store, nil if there is room. It is called in
	// a turn of raft, so it does no I/O.
	Shortage() error
	// Admit returns why n bytes cannot be added to the store, where n is the size of all requests
	// under way. Raft and apply wait for it, so it does no I/O. If it needs the free space on the
	// disk and free is nil, its error is ErrUnmeasured.
	Admit(n int64, q Applying, free []int64) error
	// Measure asks the disk for the free space, for Admit. It may take as long as ctx.
	Measure(ctx context.Context) (free []int64, err error)
}

// Applying counts what is being applied.
type Applying interface {
	// Applying returns how many bytes the requests add to the store that apply has and did not
	// commit yet.
	Applying() int64
}

// Queue collects requests into groups, and finds the group of an applied entry. It implements
// raftnode.Proposals.
//
// A group is filled, then full or taken, then pending until its result is known or it expires.
type Queue struct {
	o  Options
	mu struct {
		sync.Mutex
		filling *Group
		full    []*Group
		pending map[uint64]*Group
		// bytes is the size of all groups, cost the number of bytes that they add to the store.
		bytes, cost int64
		// seq is the sequence of the newest group that was taken.
		seq uint64
		// term is the newest term in which a group was proposed, out the number of pending groups
		// of that term.
		term uint64
		out  int
		// older is the number of pending groups of earlier terms, which may be lost.
		older int
		// applied is the newest term of an applied entry, claimed the sequence of the newest
		// applied group.
		applied, claimed uint64
		// count is the number of requests under way.
		count int
		// usual is about the size of the recent groups, and so of the next one.
		usual int
		// free are groups whose memory is used again. unneeded is the smallest number of them since
		// the last trim, which was since calls of Expire ago.
		free            []*Group
		unneeded, since int
		// err is set when no more requests are accepted.
		err error
		// idle, if set, is closed when no request is under way.
		idle chan struct{}
	}
	// offered is the group that NextGroup returned last. Owned by the turn of raft.
	offered *Group

	failed atomic.Uint64 // requests without a result
	// applying is the number of bytes that claimed requests add to the store and that are not
	// committed.
	applying atomic.Int64

	// unproposed is set when a request has opened a group, until TakeUnproposed.
	unproposed atomic.Bool

	results results
	calls   sync.Pool // of *Call
}

// New returns an empty queue.
func New(o Options) *Queue {
	q := &Queue{o: o}
	q.mu.pending = map[uint64]*Group{}
	q.calls.New = func() any { return newCall() }
	// The log may still hold groups of an earlier run: a random start makes the sequences differ.
	var b [8]byte
	rand.Read(b[:]) // never fails
	q.mu.seq = binary.LittleEndian.Uint64(b[:])
	return q
}

// addCall puts a request into the group that is being filled. The request adds cost bytes to the
// store. free is the space on the disk, if it was measured. Errors: from ctx and Close,
// kv.ErrRequestTooLarge, kv.ErrTooManyRequests, those of Space, and those of the encoding.
func (q *Queue) addCall(ctx context.Context, c *Call, cost int64, free []int64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.err != nil {
		return q.mu.err
	}
	// Checked with the lock held: if the client has given up this request and makes another one,
	// this one must come first or never be proposed.
	if err := ctx.Err(); err != nil {
		return err
	}
	g := q.mu.filling
	opened := g == nil
	if opened {
		g = q.newGroup()
		g.buf = fsm.AppendHeader(g.buf[:0])
		g.marks, g.cost = Milestones{Begun: time.Now()}, 0
	}
	before := len(g.buf)
	buf, err := fsm.AppendRequest(g.buf, &c.Request)
	size := len(buf) - before
	if err == nil && size > q.o.MaxRequestBytes && fromClient(&c.Request) {
		err = kv.ErrRequestTooLarge
	}
	// Space before the length of the queue, like etcd: a client that retries does not learn
	// otherwise that it must free space.
	if err == nil && cost > 0 {
		err = q.o.Space.Admit(q.mu.cost+cost, q, free)
	}
	most := q.o.MaxPendingBytes
	if size > q.o.MaxGroupBytes {
		most -= q.o.MaxPendingBytes / spareForSmall
	}
	if err == nil && q.mu.bytes+int64(size) > most {
		err = kv.ErrTooManyRequests
	}
	if err != nil {
		g.buf = buf[:before]
		if opened {
			q.keepFree(g)
		}
		return err
	}
	g.buf = buf
	c.begun, c.size, c.grows = g.marks.Begun, size, cost > 0
	g.calls = append(g.calls, c)
	q.mu.filling = g
	q.mu.bytes += int64(size)
	q.mu.cost += cost
	g.cost += cost
	q.mu.count++
	if len(g.buf) >= q.o.MaxGroupBytes || len(g.calls) >= q.o.MaxGroupRequests {
		q.sealFilling()
	}
	if opened {
		q.unproposed.Store(true)
	}
	return nil
}

// spareForSmall is the part, as 1/n, of Options.MaxPendingBytes that large requests leave for small
// ones.
const spareForSmall = 10

// fromClient reports whether r is the request of a client. The limit for clients does not apply to
// requests of members, which have their own bounds.
func fromClient(r *fsm.Request) bool {
	switch r.Kind() {
	case fsm.KindLeaseExpire, fsm.KindLeaseCheckpoint, fsm.KindAttributes, fsm.KindAlarm,
		fsm.KindVersion, fsm.KindClaim, fsm.KindArchive:
		return false
	}
	return true
}

// sealFilling ends the group that is being filled. mu is held.
func (q *Queue) sealFilling() {
	if q.mu.filling != nil {
		q.mu.full = append(q.mu.full, q.mu.filling)
		q.mu.filling = nil
	}
}

// NextGroup returns the oldest group for raft. While groups of earlier terms have no outcome, it
// returns none until the first entry of the term is applied: those that are lost must be proposed
// before later ones.
func (q *Queue) NextGroup(term uint64) []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.term != term {
		q.mu.older += q.mu.out
		q.mu.term, q.mu.out = term, 0
	}
	if q.offered = nil; q.mu.older > 0 && q.mu.applied < term {
		return nil
	}
	if err := q.o.Space.Shortage(); err != nil {
		q.rejectGrowing(err)
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
	g.marks.proposed = time.Since(g.marks.Begun)
	q.mu.out++
	q.mu.pending[g.seq] = g
	q.mu.usual = max(min(len(g.buf), keepGroup), q.mu.usual-q.mu.usual/8)
	fsm.PutHeader(g.buf,
		fsm.GroupHeader{Proposer: q.o.Member, Sequence: g.seq, Count: len(g.calls)})
	return g.buf
}

// rejectGrowing fails requests that add to the store and are not proposed yet: they were accepted
// while there was room, and would now use the reserve for requests that free space. mu is held.
func (q *Queue) rejectGrowing(err error) {
	q.sealFilling()
	q.mu.full = slices.DeleteFunc(q.mu.full, func(g *Group) bool {
		if g.cost == 0 {
			return false
		}
		// Raft may know the bytes of a group that is proposed again.
		rest := &Group{q: q, buf: slices.Clone(g.buf[:fsm.HeaderSize]), marks: g.marks}
		from := fsm.HeaderSize
		for _, w := range g.calls {
			to := from + w.size
			if w.grows {
				q.failed.Add(1)
				g.resolve(w, fsm.Result{Err: err})
			} else {
				rest.buf = append(rest.buf, g.buf[from:to]...)
				rest.calls = append(rest.calls, w)
			}
			from = to
		}
		q.mu.bytes += int64(len(rest.buf) - fsm.HeaderSize)
		q.mu.count += len(rest.calls)
		q.uncount(g)
		g.deliverFailed()
		*g = *rest
		return len(g.calls) == 0
	})
}

// StampGroup sets the time of a group that this member, the leader of a term, adds to its log: one
// of its own, or of another member.
func (q *Queue) StampGroup(term uint64, group []byte) { q.o.Stamper.StampGroup(term, group) }

// FailOffered fails the group that NextGroup returned last. It has no effect and never will.
func (q *Queue) FailOffered() { q.failPending(q.offered.seq) }

// FailRefused fails the pending group that begins with head. It has no effect and never will.
func (q *Queue) FailRefused(head []byte) {
	if len(head) < fsm.HeaderSize {
		return
	}
	q.mu.Lock()
	var refused *Group
	for _, g := range q.mu.pending {
		if !g.conf && fsm.SameGroup(g.buf, head) {
			refused = g
		}
	}
	q.mu.Unlock()
	if refused != nil {
		q.failPending(refused.seq)
	}
}

// failPending fails a pending group that has no effect.
func (q *Queue) failPending(seq uint64) {
	q.mu.Lock()
	g := q.takePending(seq)
	q.mu.Unlock()
	if g != nil {
		q.failed.Add(uint64(len(g.calls)))
		g.Fail(kv.ErrTooManyRequests)
	}
}

// Claim takes a pending group for resolving, nil if there is none. Only one caller gets it. Its
// bytes count as being applied.
func (q *Queue) Claim(seq uint64) *Group {
	q.mu.Lock()
	defer q.mu.Unlock()
	g := q.takePending(seq)
	if g != nil {
		q.applying.Add(g.cost)
		if !g.conf {
			q.mu.claimed = seq
		}
	}
	return g
}

// takePending removes a pending group, nil if there is none. mu is held.
func (q *Queue) takePending(seq uint64) *Group {
	g := q.mu.pending[seq]
	if g != nil {
		q.removePending(g)
		q.uncount(g)
	}
	return g
}

// removePending removes a group from the pending ones. mu is held.
func (q *Queue) removePending(g *Group) {
	delete(q.mu.pending, g.seq)
	switch {
	case g.conf:
	case g.term == q.mu.term:
		q.mu.out--
	default:
		q.mu.older--
	}
}

// Outstanding returns how many groups that Next handed out for a term are pending.
func (q *Queue) Outstanding(term uint64) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.term != term {
		return 0
	}
	return q.mu.out
}

// Requeue is called when the first entry of a term is applied. A group that was proposed in an
// earlier term and is not applied by now never will be. It is proposed again, before later groups.
// If a later group is already applied, because this one was lost on its way to a leader that got
// that one, it fails: a caller that gave up a request and made another one must not see the first
// take effect after the second. Requeue reports whether there are groups to propose.
func (q *Queue) Requeue(term uint64) (more bool) {
	var lost, late []*Group
	q.mu.Lock()
	q.mu.applied = term
	var back []*Group
	for _, g := range q.mu.pending {
		switch {
		case g.term == 0 || g.term >= term:
		case g.conf:
			q.removePending(g)
			q.uncount(g)
			lost = append(lost, g)
		case int64(g.seq-q.mu.claimed) < 0 && q.mu.claimed != 0:
			q.removePending(g)
			q.uncount(g)
			q.failed.Add(uint64(len(g.calls)))
			late = append(late, g)
		default:
			q.removePending(g)
			g.term = 0
			back = append(back, g)
		}
	}
	slices.SortFunc(back, func(a, b *Group) int { return cmp.Compare(int64(a.seq-b.seq), 0) })
	q.mu.full = append(back, q.mu.full...)
	more = q.mu.filling != nil || len(q.mu.full) > 0
	q.mu.Unlock()
	for _, g := range lost {
		g.Fail(ErrLost)
	}
	for _, g := range late {
		g.Fail(kv.ErrLeaderChanged)
	}
	return more
}

// HasNext reports whether there are groups to propose.
func (q *Queue) HasNext() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.filling != nil || len(q.mu.full) > 0
}

// uncount removes g from the counts. mu is held.
func (q *Queue) uncount(g *Group) {
	q.mu.bytes -= int64(len(g.buf) - fsm.HeaderSize)
	q.mu.cost -= g.cost
	q.mu.count -= len(g.calls)
	if q.mu.count == 0 && q.mu.idle != nil {
		close(q.mu.idle)
		q.mu.idle = nil
	}
}

// Release lets the memory of a resolved group be used again. The group must have had its outcome,
// so that raft is done with its bytes. A group that timed out is left to the garbage collector.
func (q *Queue) Release(g *Group) {
	clear(g.calls)
	clear(g.results)
	g.calls, g.results, g.term = g.calls[:0], g.results[:0], 0
	q.mu.Lock()
	defer q.mu.Unlock()
	q.keepFree(g)
}

// mostFree is the largest number of empty groups that are kept. About as many are under way at the
// same time.
const mostFree = 8

// keepFree keeps an empty group for the next requests. Under load the garbage collector would empty
// a sync.Pool several times a second, and groups are a large part of what a write allocates. mu is
// held.
func (q *Queue) keepFree(g *Group) {
	if cap(g.buf) <= keepGroup && len(q.mu.free) < mostFree {
		q.mu.free = append(q.mu.free, g)
	}
}

// newGroup returns an empty group. mu is held.
func (q *Queue) newGroup() *Group {
	n := len(q.mu.free)
	if n == 0 {
		q.mu.unneeded = 0
		return &Group{q: q, buf: make([]byte, 0, q.mu.usual)}
	}
	g := q.mu.free[n-1]
	q.mu.free[n-1] = nil
	q.mu.free = q.mu.free[:n-1]
	q.mu.unneeded = min(q.mu.unneeded, n-1)
	return g
}

// trimEvery is the number of calls of Expire between two trims of the empty groups.
const trimEvery = 20

// trimFree drops, every trimEvery calls, the empty groups that were not needed since the last trim.
// mu is held.
func (q *Queue) trimFree() {
	if q.mu.since++; q.mu.since < trimEvery {
		return
	}
	q.mu.since = 0
	q.mu.free = slices.Delete(q.mu.free, 0, min(q.mu.unneeded, len(q.mu.free)))
	q.mu.unneeded = len(q.mu.free)
}

// Expire ends the group that is being filled, and removes and returns the groups that began before
// a time. The caller fails them. It is called regularly.
func (q *Queue) Expire(before time.Time) []*Group {
	q.mu.Lock()
	q.trimFree()
	q.mu.Unlock()
	return q.takeGroups(func(g *Group) bool { return g.marks.Begun.Before(before) })
}

// takeGroups ends the group that is being filled, and removes and returns the groups for which gone
// returns true.
func (q *Queue) takeGroups(gone func(*Group) bool) (out []*Group) {
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
		q.failed.Add(uint64(len(g.calls)))
		q.uncount(g)
	}
	return out
}

// Reject fails all requests under way: those that were never proposed, and have no effect, with
// err, and the others with the error that proposed returns for their group.
func (q *Queue) Reject(err error, proposed func(*Group) error) {
	for _, g := range q.takeGroups(func(*Group) bool { return true }) {
		if g.Proposed() {
			g.Fail(proposed(g))
		} else {
			g.Fail(err)
		}
	}
}

// TakePending removes and returns the groups that were proposed. A snapshot has skipped entries,
// which may have been theirs. The caller fails them.
func (q *Queue) TakePending() (out []*Group) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, g := range q.mu.pending {
		q.removePending(g)
		q.failed.Add(uint64(len(g.calls)))
		q.uncount(g)
		out = append(out, g)
	}
	return out
}

// Close rejects all later requests with err, and returns a channel that is closed when no request
// is under way.
func (q *Queue) Close(err error) <-chan struct{} {
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

// Abandon rejects all later requests, and fails all requests under way.
func (q *Queue) Abandon(err error) {
	q.Close(err)
	for _, g := range q.takeGroups(func(*Group) bool { return true }) {
		g.Fail(err)
	}
}

// Pending returns the number of requests under way.
func (q *Queue) Pending() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.count
}

// Failed returns the number of requests that got no result.
func (q *Queue) Failed() uint64 { return q.failed.Load() }

// Applying returns how many bytes the requests add to the store that were claimed and are not
// committed.
func (q *Queue) Applying() int64 { return q.applying.Load() }

// NoteCommitted notes that the store holds the effects of all claimed groups.
func (q *Queue) NoteCommitted() { q.applying.Store(0) }

// FailClaimed fails a claimed group whose effect cannot be committed yet. Its requests may still
// take effect.
func (q *Queue) FailClaimed(g *Group, err error) {
	q.failed.Add(uint64(len(g.calls)))
	g.Fail(err)
	// The waiters may serve other requests from now on.
	clear(g.calls)
	clear(g.results)
	g.calls, g.results = g.calls[:0], g.results[:0]
}
