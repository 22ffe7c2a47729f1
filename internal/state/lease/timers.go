package lease

import (
	"time"

	"vigil/internal/kv"
)

// Timers measure the time of leases. Times are durations since a moment of the caller's choice, not
// years ago; they do not decrease.
//
// They are a heap by the time at which a lease is due. A keep-alive only changes the deadline of a
// lease; the lease keeps its position in the heap, which may be too early, until it reaches the
// top. So a renewal costs only a lookup, and each lease is moved about once in its TTL, even if it
// is renewed often.
//
// Nothing here has pointers to a timer: the garbage collector does not visit them.
type Timers struct {
	// timers are the places of the leases' timers in pool, by id.
	timers map[int64]place
	pool   pool
	heap   []item
	// interval is the time between checkpoints of a lease.
	interval time.Duration
}

// timer fills one line of a processor's cache: leases are renewed in any order.
type timer struct {
	ref kv.LeaseRef
	ttl time.Duration
	// deadline is when the lease expires, check when its next checkpoint is due, 0 for never.
	deadline, check time.Duration
	// at is the position in the heap, -1 for none.
	at int
	// ending is set once the lease was reported as due.
	ending bool
	// mark counts the checkpoints that may be stored for the lease, 0 if there is none.
	mark uint64
}

// item is a timer in the heap. due is the order: at or before the deadline and the next checkpoint.
type item struct {
	due   time.Duration
	timer place
}

// NewTimers returns timers without leases. interval is the time between checkpoints of a lease; 0
// means no checkpoints.
func NewTimers(interval time.Duration) *Timers {
	return &Timers{timers: map[int64]place{}, interval: interval}
}

// Fill returns timers of leases, each with its remaining TTL and extra.
func Fill(interval time.Duration, leases []Lease, now, extra time.Duration) *Timers {
	t := NewTimers(interval)
	t.heap = make([]item, 0, len(leases))
	for i := range leases {
		l := &leases[i]
		t.add(l, now+seconds(l.Left())+extra, now)
	}
	for i := len(t.heap)/2 - 1; i >= 0; i-- {
		t.down(i)
	}
	return t
}

// seconds returns a TTL as a duration. The longest TTL is seven years below the largest duration.
func seconds(ttl int64) time.Duration { return time.Duration(ttl) * time.Second }

// add appends a timer to the heap without sorting it in.
func (t *Timers) add(l *Lease, deadline, now time.Duration) {
	p := t.pool.take()
	x := t.pool.at(p)
	*x = timer{ref: l.LeaseRef, ttl: seconds(l.TTL), deadline: deadline, at: len(t.heap)}
	if l.Remaining > 0 {
		x.mark = 1
	}
	t.timers[l.ID] = p
	t.heap = append(t.heap, item{t.schedule(x, now), p})
}

// of returns the timer of a lease, nil if there is none. It is valid until the next call of add or
// Remove.
func (t *Timers) of(id int64) *timer {
	if p, ok := t.timers[id]; ok {
		return t.pool.at(p)
	}
	return nil
}

// schedule sets the time of the next checkpoint of a lease, and returns when the lease is due.
func (t *Timers) schedule(x *timer, now time.Duration) time.Duration {
	x.check = 0
	if t.interval > 0 && x.deadline-now > t.interval {
		x.check = now + t.interval
		return x.check
	}
	return x.deadline
}

// Add adds a granted lease.
func (t *Timers) Add(l Lease, now time.Duration) {
	t.Remove(l.ID)
	t.add(&l, now+seconds(l.TTL), now)
	t.up(len(t.heap) - 1)
}

// Remove removes a lease.
func (t *Timers) Remove(id int64) {
	if p, ok := t.timers[id]; ok {
		t.pull(t.pool.at(p))
		delete(t.timers, id)
		t.pool.free(p)
	}
}

// Len returns the number of leases.
func (t *Timers) Len() int { return len(t.timers) }

// Get returns when a lease expires and whether it was reported as due; ok is false if there is no
// such lease.
func (t *Timers) Get(id int64) (deadline time.Duration, ending, ok bool) {
	if x := t.of(id); x != nil {
		return x.deadline, x.ending, true
	}
	return 0, false, false
}

// Marked returns the life of a lease and its mark. It is 0 if no checkpoint is stored for the
// lease; otherwise a keep-alive must replace the checkpoint.
func (t *Timers) Marked(id int64) (kv.LeaseRef, uint64) {
	if x := t.of(id); x != nil {
		return x.ref, x.mark
	}
	return kv.LeaseRef{}, 0
}

// Unmark notes that the checkpoints of a lease up to its mark were replaced.
func (t *Timers) Unmark(r kv.LeaseRef, mark uint64) {
	if x := t.of(r.ID); x != nil && x.ref == r && x.mark == mark {
		x.mark = 0
	}
}

// Renew gives a lease its whole TTL again, and returns the TTL in seconds. It does nothing and
// returns false if the lease does not exist, was reported as due, or has a mark.
func (t *Timers) Renew(id int64, now time.Duration) (ttl int64, ok bool) {
	x := t.of(id)
	if x == nil || x.ending || x.mark != 0 {
		return 0, false
	}
	x.deadline = max(x.deadline, now+x.ttl)
	t.schedule(x, now)
	return int64(x.ttl / time.Second), true
}

// maxSteps is the limit for the leases that one call of Due examines.
const maxSteps = 4096

// Due returns expired leases, until enough returns true, and the checkpoints that are due. more is
// set if more may be due already.
func (t *Timers) Due(now time.Duration, enough func(kv.LeaseRef) bool) (ended []kv.LeaseRef,
	checkpoints []kv.LeaseCheckpoint, more bool) {
	for range maxSteps {
		if len(t.heap) == 0 || t.heap[0].due > now {
			return ended, checkpoints, false
		}
		top := &t.heap[0]
		x := t.pool.at(top.timer)
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
				Remaining: min(int64((x.deadline-now+time.Second-1)/time.Second),
					int64(x.ttl/time.Second))})
			x.mark++
			top.due = t.schedule(x, now)
		default:
			top.due = x.deadline
			if x.check != 0 {
				top.due = min(top.due, x.check)
			}
		}
		t.down(0)
	}
	return ended, checkpoints, true
}

// Retry lets a lease that was reported as due and has not ended be reported again at a time. If
// known is set, no earlier request can still end it, and Renew may renew it until then.
func (t *Timers) Retry(r kv.LeaseRef, at time.Duration, known bool) {
	x := t.of(r.ID)
	if x == nil || x.ref != r || !x.ending {
		return
	}
	x.ending = !known
	t.pull(x)
	x.at = len(t.heap)
	t.heap = append(t.heap, item{at, t.timers[r.ID]})
	t.up(x.at)
}

// The heap. Every timer holds its position in it.

func (t *Timers) set(i int, x item) {
	t.heap[i] = x
	t.pool.at(x.timer).at = i
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

// pull removes a timer from the heap, if it is there.
func (t *Timers) pull(x *timer) {
	i, last := x.at, len(t.heap)-1
	if i < 0 {
		return
	}
	moved := t.heap[last]
	t.heap = t.heap[:last]
	x.at = -1
	if i != last {
		t.set(i, moved)
		t.down(i)
		t.up(t.pool.at(moved.timer).at)
	}
}
