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
	// FreeSize is the size in bytes up to which a Budget does not count an answer, which then never
	// waits. A client may run any number of calls, so FreeSize is not much more than the memory of
	// a call without its answer.
	FreeSize = 64 << 10
	// 1/reservePart of the limit is the reserve for answers of up to 1/smallPart of the limit. The
	// rest is the main part.
	reservePart = 8
	smallPart   = 64
	// MinLimit is the smallest limit of a Budget, in bytes.
	MinLimit = 4 << 20
	// DefaultLimit is the limit of a member without a configured limit, in bytes.
	DefaultLimit = 256 << 20
)

// Budget is the limit and the pool. It is safe for concurrent use.
type Budget struct {
	limit int64
	pool  sync.Pool // of *[]byte of PieceSize

	mu struct {
		sync.Mutex
		held    int64
		small   int64         // the part of held that small loans hold
		holders map[any]int64 // the part of held that each holder holds
		queue   []*Loan       // waiting loans, by ticket
		pressed bool          // one of them waits for memory of other holders
		// first holds, for each holder, the first waiting loan that the holder's share does not
		// allow. Only admitWaiting uses it.
		first   map[any]*Loan
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
	b.mu.holders, b.mu.first = map[any]int64{}, map[any]*Loan{}
	b.pool.New = func() any {
		p := make([]byte, PieceSize)
		return &p
	}
	return b, nil
}

// Stats are counts of a Budget.
type Stats struct {
	// Limit is the limit, Held the part of it in use; both in bytes.
	Limit, Held int64
	// Waiting is the number of waiting loans.
	Waiting int
	// Waits is the number of loans that waited and no longer wait, GaveUp how many of them ended
	// before their turn, Waited the total waiting time of them all.
	Waits, GaveUp uint64
	Waited        time.Duration
}

// Stats returns the current counts.
func (b *Budget) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Stats{Limit: b.limit, Held: b.mu.held, Waiting: len(b.mu.queue), Waits: b.mu.waits,
		GaveUp: b.mu.denied, Waited: b.mu.waited}
}

// refusedFor is how long calls that Force rejected count as waiting: clients retry them, or similar
// calls follow.
const refusedFor = 5 * time.Second

// Waiting reports whether loans wait for memory of any holder, or for memory of one of the given
// holders.
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

// exceeds reports whether the share of a holder of l does not allow the loan n bytes in total: a
// holder may hold its share, or one loan of any size.
func (b *Budget) exceeds(l *Loan, h Holder, n int64) bool {
	held := b.mu.holders[h.Key] - l.reserved
	return held > 0 && held+n > b.limit/h.Part
}

// withinShares reports whether the shares of a loan's holders allow it n bytes in total.
func (b *Budget) withinShares(l *Loan, n int64) bool {
	for _, h := range l.holders {
		if b.exceeds(l, h, n) {
			return false
		}
	}
	return true
}

// others returns how many bytes other loans than l hold, and how many of these are small loans in
// the reserve. The rest is in the main part. The caller holds mu.
func (b *Budget) others(l *Loan) (held, reserve int64) {
	held, reserve = b.mu.held-l.reserved, b.mu.small
	if b.small(l.reserved) {
		reserve -= l.reserved
	}
	return held, min(reserve, b.limit/reservePart)
}

// hasRoom reports whether a loan may have n bytes in total. Small loans fill the reserve, and the
// main part if no earlier loan waits. So later small loans do not delay a large loan that waits.
// Alone in the main part, a large loan may have any size. The caller holds mu.
func (b *Budget) hasRoom(l *Loan, n int64, waits bool) bool {
	held, reserve := b.others(l)
	kept := b.limit / reservePart
	switch {
	case b.small(n):
		return reserve+n <= kept || !waits && held+n <= b.limit
	case waits:
		return false
	}
	return held-reserve+n <= b.limit-kept || held == reserve
}

// release returns n bytes of a loan and admits waiting loans. The caller holds mu.
func (b *Budget) release(l *Loan, n int64) {
	if n != 0 {
		b.adjust(l, -n)
		b.admitWaiting()
	}
}

// admitWaiting admits the waiting loans for which there is room. A loan that wants more than the
// limit waits until it can have all of the limit. The caller holds mu.
func (b *Budget) admitWaiting() {
	b.mu.pressed = false
	clear(b.mu.first)
	smallWaits := false
	for i := 0; i < len(b.mu.queue); {
		l := b.mu.queue[i]
		n := min(l.want, b.limit)
		if b.waitsForHolders(l, n) {
			i++
			continue
		}
		small := b.small(n)
		if small && smallWaits || !b.hasRoom(l, n, b.mu.pressed) {
			b.mu.pressed, smallWaits = true, smallWaits || small
			i++
			continue
		}
		for _, h := range l.holders {
			if f := b.mu.first[h.Key]; f != nil {
				f.passed += n
			}
		}
		b.adjust(l, n)
		b.mu.queue = slices.Delete(b.mu.queue, i, i+1)
		close(l.turn)
	}
}

// waitsForHolders reports whether a waiting loan has to wait for memory of its own holders: because
// of a share, or because an earlier loan waits for a share and later loans have got as much as the
// share since. Only admitWaiting calls it.
func (b *Budget) waitsForHolders(l *Loan, n int64) (waits bool) {
	for _, h := range l.holders {
		f := b.mu.first[h.Key]
		switch {
		case f != nil && f.passed >= b.limit/h.Part:
			waits = true
		case b.exceeds(l, h, n):
			waits = true
			if f == nil {
				b.mu.first[h.Key] = l
			}
		}
	}
	return waits
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
