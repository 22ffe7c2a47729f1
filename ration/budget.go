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
	// FreeSize is the size in bytes up to which an answer is not counted and never waits.
	FreeSize = 1 << 20
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
		queue   []*Lease // those who wait, by ticket
		tickets uint64
		waits   uint64
		waited  time.Duration
		denied  uint64 // that went away before it was their turn
	}
}

// New makes a Budget of limit bytes.
func New(limit int64) (*Budget, error) {
	if limit < MinLimit {
		return nil, fmt.Errorf("ration: a limit of %d bytes is less than %d", limit, MinLimit)
	}
	b := &Budget{limit: limit}
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

// Waiting reports whether a lease is in line.
func (b *Budget) Waiting() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.mu.queue) > 0
}

// release gives n bytes back and serves those who wait. The caller holds mu.
func (b *Budget) release(n int64) {
	if b.mu.held -= n; b.mu.held < 0 {
		panic("ration: more given back than was taken")
	}
	if n > 0 {
		b.serve()
	}
}

// serve admits those at the head of the line for whom there is room. One that wants more than the
// limit waits until it can have all of it. The caller holds mu.
func (b *Budget) serve() {
	for len(b.mu.queue) > 0 {
		l := b.mu.queue[0]
		n := min(l.want, b.limit)
		if b.mu.held+n > b.limit {
			return
		}
		b.mu.held += n
		l.reserved = n
		b.mu.queue = slices.Delete(b.mu.queue, 0, 1)
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
