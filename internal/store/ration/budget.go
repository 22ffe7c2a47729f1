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
	// FreeSize is the size in bytes up to which an answer is not counted and never waits. A client may run any
	// number of calls, so it is not much more than the memory of a call without its answer.
	FreeSize = 64 << 10
	// Of the limit, one reservePart is for answers of up to one smallPart.
	reservePart = 8
	smallPart   = 64
	// MinLimit is the least limit of a Budget, in bytes.
	MinLimit = 4 << 20
	// DefaultLimit is the limit of a member without a configured one, in bytes.
	DefaultLimit = 256 << 20
)

// Budget is the limit and the pool. It is safe for concurrent use.
type Budget struct {
	limit int64
	pool  sync.Pool // of *[]byte of PieceSize

	mu struct {
		sync.Mutex
		held    int64
		small   int64         // the part of held of small loans
		holders map[any]int64 // the part of held of each holder
		queue   []*Loan       // waiting loans, by ticket
		pressed bool          // one of them waits for memory of other holders
		tickets uint64
		waits   uint64
		waited  time.Duration
		denied  uint64    // loans whose context ended before their turn
		refused time.Time // when Force last returned ErrFull
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
	// Waiting is the number of waiting loans.
	Waiting int
	// Waits is the number of loans that waited and no longer wait, GaveUp how many of them ended before their
	// turn, Waited the total waiting time of them all.
	Waits, GaveUp uint64
	Waited        time.Duration
}

// Stats returns the present counts.
func (b *Budget) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Stats{Limit: b.limit, Held: b.mu.held, Waiting: len(b.mu.queue), Waits: b.mu.waits, GaveUp: b.mu.denied, Waited: b.mu.waited}
}

// refusedFor is how long calls that Force rejected count as waiting: they are retried, or similar calls follow.
const refusedFor = 5 * time.Second

// Waiting reports whether loans wait for memory of any holder, or for memory of one of the given holders.
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

// adjust changes the reservation of a loan by n bytes. The caller holds mu.
func (b *Budget) adjust(l *Loan, n int64) {
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

// small reports whether a loan of n bytes may use the reserve.
func (b *Budget) small(n int64) bool { return n <= b.limit/smallPart }

// withinShares reports whether the shares of a loan's holders allow it n bytes in total: each holder may hold its
// share, or one loan of any size.
func (b *Budget) withinShares(l *Loan, n int64) bool {
	for _, h := range l.holders {
		if held := b.mu.holders[h.Key]; held > l.reserved && held-l.reserved+n > b.limit/h.Part {
			return false
		}
	}
	return true
}

// hasRoom reports whether a loan may have n bytes in total. If others wait, a small loan may use the reserve
// only. The caller holds mu.
func (b *Budget) hasRoom(l *Loan, n int64, others bool) bool {
	held := b.mu.held - l.reserved
	switch {
	case b.small(n) && others:
		return held+n <= b.limit && b.mu.small+n <= b.limit/reservePart
	case b.small(n):
		return held+n <= b.limit
	}
	return !others && held+n <= b.limit-b.limit/reservePart
}

// release returns n bytes of a loan and admits waiting loans. The caller holds mu.
func (b *Budget) release(l *Loan, n int64) {
	if n != 0 {
		b.adjust(l, -n)
		b.admitWaiting()
	}
}

// admitWaiting admits the waiting loans for which there is room. A loan that wants more than the limit waits
// until it can have all of the limit. The caller holds mu.
func (b *Budget) admitWaiting() {
	b.mu.pressed = false
	for i := 0; i < len(b.mu.queue); {
		l := b.mu.queue[i]
		n := min(l.want, b.limit)
		alone := b.mu.held == 0 && !b.mu.pressed
		if !alone {
			if !b.withinShares(l, n) {
				i++ // it waits for its own holders
				continue
			}
			if !b.hasRoom(l, n, b.mu.pressed) {
				b.mu.pressed = true
				i++
				continue
			}
		}
		b.adjust(l, n)
		b.mu.queue = slices.Delete(b.mu.queue, i, i+1)
		close(l.turn)
	}
}

// enqueue inserts l into the queue by its ticket. The caller holds mu.
func (b *Budget) enqueue(l *Loan) {
	if l.ticket == 0 {
		b.mu.tickets++
		l.ticket = b.mu.tickets
	}
	i, _ := slices.BinarySearchFunc(b.mu.queue, l.ticket, func(o *Loan, t uint64) int {
		if o.ticket < t {
			return -1
		}
		return 1
	})
	b.mu.queue = slices.Insert(b.mu.queue, i, l)
}
