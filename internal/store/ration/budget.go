package ration

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// PieceSize is the size of a piece in bytes.
	PieceSize = 256 << 10
	// FreeSize is the size in bytes up to which an answer is not counted and never waits. A client may have any
	// number of calls under way, so it is not much more than what a call takes without its answer.
	FreeSize = 64 << 10
	// Of the limit, one reservePart is for answers of up to one smallPart.
	reservePart = 8
	smallPart   = 64
	// MinLimit is the least limit of a Budget, in bytes.
	MinLimit = 4 << 20
	// DefaultLimit is the limit that a member has unless it is told another, in bytes.
	DefaultLimit = 256 << 20
)

// Budget is the limit and the pool. It is safe for concurrent use.
type Budget struct {
	limit int64
	pool  sync.Pool // of *[]byte of PieceSize

	mu struct {
		sync.Mutex
		held    int64
		small   int64         // what of held small leases hold
		holders map[any]int64 // what of held is whose
		queue   []*Lease      // those who wait, by ticket
		pressed bool          // one of them waits for others than itself
		tickets uint64
		waits   uint64
		waited  time.Duration
		denied  uint64    // that went away before it was their turn
		refused time.Time // when Force was refused last
	}
}

// New makes a Budget of limit bytes.
func New(limit int64) (*Budget, error) {
	if limit < MinLimit {
		return nil, fmt.Errorf("ration: a limit of %d bytes is less than %d", limit, MinLimit)
	}
	b := &Budget{limit: limit}
	b.mu.holders = map[any]int64{}
	b.pool.New = func() any {
		p := make([]byte, PieceSize)
		return &p
	}
	return b, nil
}

// Stats are counts of a Budget.
type Stats struct {
	// Limit is the limit, Held what of it is in use; both in bytes.
	Limit, Held int64
	// Waiting is the number of leases in line.
	Waiting int
	// Waits is how many leases have had to wait and are no longer in line, GaveUp how many of them
	// ended before their turn, Waited how long all of them together have been in line.
	Waits, GaveUp uint64
	Waited        time.Duration
}

// Stats returns the present counts.
func (b *Budget) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Stats{Limit: b.limit, Held: b.mu.held, Waiting: len(b.mu.queue), Waits: b.mu.waits, GaveUp: b.mu.denied, Waited: b.mu.waited}
}

// refusedFor is how long those who were refused by Force count as waiting: they come back, or others like them.
const refusedFor = 5 * time.Second

// Waiting reports whether leases are in line for memory that anybody holds, or for that of one of some holders.
func (b *Budget) Waiting(holders ...any) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.pressed || time.Since(b.mu.refused) < refusedFor {
		return true
	}
	for _, l := range b.mu.queue {
		for _, h := range l.holders {
			if slices.Contains(holders, h.Key) && b.mu.holders[h.Key] > 0 {
				return true
			}
		}
	}
	return false
}

// change adds to what a lease has reserved, or takes from it. The caller holds mu.
func (b *Budget) change(l *Lease, n int64) {
	if n == 0 {
		return
	}
	if b.small(l.reserved) {
		b.mu.small -= l.reserved
	}
	l.reserved += n
	if b.small(l.reserved) {
		b.mu.small += l.reserved
	}
	if b.mu.held += n; b.mu.held < 0 || l.reserved < 0 {
		panic("ration: more given back than was taken")
	}
	for _, h := range l.holders {
		if b.mu.holders[h.Key] += n; b.mu.holders[h.Key] == 0 {
			delete(b.mu.holders, h.Key)
		}
	}
}

// small reports whether a lease of n bytes may use the reserve.
func (b *Budget) small(n int64) bool { return n <= b.limit/smallPart }

// within reports whether a lease may have n bytes in all as far as its holders go: each may hold a share,
// or one lease of any size.
func (b *Budget) within(l *Lease, n int64) bool {
	for _, h := range l.holders {
		if held := b.mu.holders[h.Key]; held > l.reserved && held-l.reserved+n > b.limit/h.Part {
			return false
		}
	}
	return true
}

// room reports whether there is room for a lease to have n bytes in all. If others were first, a small one
// has the reserve only. The caller holds mu.
func (b *Budget) room(l *Lease, n int64, others bool) bool {
	held := b.mu.held - l.reserved
	switch {
	case b.small(n) && others:
		return held+n <= b.limit && b.mu.small+n <= b.limit/reservePart
	case b.small(n):
		return held+n <= b.limit
	}
	return !others && held+n <= b.limit-b.limit/reservePart
}

// release gives n bytes of a lease back and serves those who wait. The caller holds mu.
func (b *Budget) release(l *Lease, n int64) {
	if n != 0 {
		b.change(l, -n)
		b.serve()
	}
}

// serve admits those in line for whom there is room. One that wants more than there may be waits until
// it can have all of it. The caller holds mu.
func (b *Budget) serve() {
	b.mu.pressed = false
	for i := 0; i < len(b.mu.queue); {
		l := b.mu.queue[i]
		n := min(l.want, b.limit)
		alone := b.mu.held == 0 && !b.mu.pressed
		if !alone {
			if !b.within(l, n) {
				i++ // it waits for itself
				continue
			}
			if !b.room(l, n, b.mu.pressed) {
				b.mu.pressed = true
				i++
				continue
			}
		}
		b.change(l, n)
		b.mu.queue = slices.Delete(b.mu.queue, i, i+1)
		close(l.turn)
	}
}

// enqueue puts l in line at the place of its ticket. The caller holds mu.
func (b *Budget) enqueue(l *Lease) {
	if l.ticket == 0 {
		b.mu.tickets++
		l.ticket = b.mu.tickets
	}
	i, _ := slices.BinarySearchFunc(b.mu.queue, l.ticket, func(o *Lease, t uint64) int {
		if o.ticket < t {
			return -1
		}
		return 1
	})
	b.mu.queue = slices.Insert(b.mu.queue, i, l)
}
