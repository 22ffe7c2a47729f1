package lease

import (
	"time"

	"vigil/internal/kv"
)

// Timers count the time of leases. Times are durations since some moment that is the caller's choice and
// not years ago; they do not go back.
//
// They are a heap by the time at which a lease wants attention. Keeping a lease alive only moves its
// deadline; the lease stays where it is in the heap, which may be too early, and is put where it belongs
// when it comes to the top. So a renewal costs no more than finding the lease, and each lease is moved
// about once in its TTL, however often it is renewed.
type Timers struct {
	timers map[int64]*timer
	heap   []*timer
	// interval is the time after which what is left of a lease is to be replicated.
	interval time.Duration
}

type timer struct {
	ref kv.LeaseRef
	ttl time.Duration
	// deadline is when the time is over, check when what is left is to be replicated, 0 for never.
	deadline, check time.Duration
	// due is where the timer is in the heap: at or before both. at is its place there, -1 for none.
	due time.Duration
	at  int
	// ending is set from when the lease is named as due.
	ending bool
	// mark counts the remaining TTLs that may be stored for the lease, 0 if none is.
	mark uint64
}

// NewTimers returns timers that count nothing yet. What is left of a lease is to be replicated at the
// interval; 0 means never.
func NewTimers(interval time.Duration) *Timers {
	return &Timers{timers: map[int64]*timer{}, interval: interval}
}

// Fill makes timers of leases, each with what it has left by the state, and extra.
func Fill(interval time.Duration, leases []Lease, now, extra time.Duration) *Timers {
	t := NewTimers(interval)
	t.heap = make([]*timer, 0, len(leases))
	for i := range leases {
		l := &leases[i]
		t.add(l, now+seconds(l.Left())+extra, now)
	}
	for i := len(t.heap)/2 - 1; i >= 0; i-- {
		t.down(i)
	}
	return t
}

// seconds is a TTL as a duration. The longest one leaves seven years to the end of what a duration holds.
func seconds(ttl int64) time.Duration { return time.Duration(ttl) * time.Second }

// add appends a timer to the heap without putting it in its place.
func (t *Timers) add(l *Lease, deadline, now time.Duration) *timer {
	x := &timer{ref: l.LeaseRef, ttl: seconds(l.TTL), deadline: deadline, at: len(t.heap)}
	if l.Remaining > 0 {
		x.mark = 1
	}
	x.due = t.schedule(x, now)
	t.timers[l.ID] = x
	t.heap = append(t.heap, x)
	return x
}

// schedule sets when what is left of a lease is to be replicated, and returns when the lease wants
// attention.
func (t *Timers) schedule(x *timer, now time.Duration) time.Duration {
	x.check = 0
	if t.interval > 0 && x.deadline-now > t.interval {
		x.check = now + t.interval
		return x.check
	}
	return x.deadline
}

// Add begins to count a lease that was granted.
func (t *Timers) Add(l Lease, now time.Duration) {
	t.Remove(l.ID)
	t.up(t.add(&l, now+seconds(l.TTL), now).at)
}

// Remove forgets a lease.
func (t *Timers) Remove(id int64) {
	if x := t.timers[id]; x != nil {
		t.pull(x)
		delete(t.timers, id)
	}
}

// Len returns the number of leases.
func (t *Timers) Len() int { return len(t.timers) }

// Get returns when a lease's time is over and whether it was named as due, and false if there is none.
func (t *Timers) Get(id int64) (deadline time.Duration, ending, ok bool) {
	if x := t.timers[id]; x != nil {
		return x.deadline, x.ending, true
	}
	return 0, false, false
}

// Marked returns the life of a lease and its mark: 0 if no remaining TTL is stored for it, otherwise that
// must be taken back when the lease is kept alive.
func (t *Timers) Marked(id int64) (kv.LeaseRef, uint64) {
	if x := t.timers[id]; x != nil {
		return x.ref, x.mark
	}
	return kv.LeaseRef{}, 0
}

// Unmark says that what was stored for a lease as of its mark was taken back.
func (t *Timers) Unmark(r kv.LeaseRef, mark uint64) {
	if x := t.timers[r.ID]; x != nil && x.ref == r && x.mark == mark {
		x.mark = 0
	}
}

// Renew gives a lease its whole TTL again. It reports false if there is none, or it was named as due.
func (t *Timers) Renew(id int64, now time.Duration) bool {
	x := t.timers[id]
	if x == nil || x.ending {
		return false
	}
	x.deadline = max(x.deadline, now+x.ttl)
	t.schedule(x, now)
	return true
}

// maxSteps bounds the leases that one call of Due looks at.
const maxSteps = 4096

// Due names leases whose time is over, until enough says that they are enough, and checkpoints for
// leases that have long been without. more says that there may be more right now.
func (t *Timers) Due(now time.Duration, enough func(kv.LeaseRef) bool) (ended []kv.LeaseRef, checkpoints []kv.LeaseCheckpoint, more bool) {
	for range maxSteps {
		if len(t.heap) == 0 || t.heap[0].due > now {
			return ended, checkpoints, false
		}
		x := t.heap[0]
		switch {
		case x.deadline <= now:
			t.pull(x)
			x.ending = true
			ended = append(ended, x.ref)
			if enough(x.ref) {
				return ended, checkpoints, true
			}
			continue
		case x.check != 0 && x.check <= now:
			checkpoints = append(checkpoints, kv.LeaseCheckpoint{LeaseRef: x.ref,
				Remaining: min(int64((x.deadline-now+time.Second-1)/time.Second), int64(x.ttl/time.Second))})
			x.mark++
			x.due = t.schedule(x, now)
		default:
			x.due = x.deadline
			if x.check != 0 {
				x.due = min(x.due, x.check)
			}
		}
		t.down(0)
	}
	return ended, checkpoints, true
}

// Retry says that a lease that was named as due has not ended, and is to be named again at a time. If it
// is known that it will not end by what was done until now, it can be renewed meanwhile.
func (t *Timers) Retry(r kv.LeaseRef, at time.Duration, known bool) {
	x := t.timers[r.ID]
	if x == nil || x.ref != r || !x.ending {
		return
	}
	x.due, x.ending = at, !known
	if x.at < 0 {
		x.at = len(t.heap)
		t.heap = append(t.heap, x)
	}
	t.up(x.at)
}

// The heap. Every timer knows its place in it.

func (t *Timers) set(i int, x *timer) {
	t.heap[i] = x
	x.at = i
}

func (t *Timers) up(i int) {
	x := t.heap[i]
	for i > 0 {
		parent := (i - 1) / 2
		if t.heap[parent].due <= x.due {
			break
		}
		t.set(i, t.heap[parent])
		i = parent
	}
	t.set(i, x)
}

func (t *Timers) down(i int) {
	x := t.heap[i]
	for {
		child := 2*i + 1
		if child >= len(t.heap) {
			break
		}
		if child+1 < len(t.heap) && t.heap[child+1].due < t.heap[child].due {
			child++
		}
		if x.due <= t.heap[child].due {
			break
		}
		t.set(i, t.heap[child])
		i = child
	}
	t.set(i, x)
}

// pull takes a timer out of the heap, if it is there.
func (t *Timers) pull(x *timer) {
	i, last := x.at, len(t.heap)-1
	if i < 0 {
		return
	}
	moved := t.heap[last]
	t.heap[last] = nil
	t.heap = t.heap[:last]
	x.at = -1
	if moved != x {
		t.set(i, moved)
		t.down(i)
		t.up(moved.at)
	}
}
