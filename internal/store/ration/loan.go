package ration

import (
	"context"
	"errors"
	"slices"
	"time"
)

// ErrFull means that there is no room for a loan to grow.
var ErrFull = errors.New("ration: no room")

// Loan is the memory of one answer.
type Loan struct {
	b       *Budget
	holders []Holder // connection and user of the answer, for example

	// used is the memory taken so far, including pieces. Owned by the builder.
	used   int64
	pieces []*[]byte
	// want is the size to reserve next. Owned by the builder, and by b while the loan waits.
	want int64
	turn chan struct{} // closed when the loan is admitted; each wait makes a new one
	// took is set once the loan has reserved something. Owned by the builder; not changed after
	// Finish.
	took bool

	// Guarded by b.mu.
	ticket   uint64
	reserved int64
	// bytes of later loans that were admitted while this one waited for the same holder
	passed int64
	over   bool // abandoned
}

// Borrow starts the loan of an answer for the holders in ctx.
func (b *Budget) Borrow(ctx context.Context) *Loan { return &Loan{b: b, holders: holdersOf(ctx)} }

// Holder is a connection or user that receives answers. It may hold 1/Part of the limit in total.
type Holder struct {
	Key  any // comparable
	Part int64
}

// Holders returns the holders of an answer. A loan calls it when the answer is not small.
type Holders interface {
	Holders(context.Context) []Holder
}

type holdersKey struct{}

// WithHolders returns a context for answers to holders.
func WithHolders(ctx context.Context, h Holders) context.Context {
	return context.WithValue(ctx, holdersKey{}, h)
}

func holdersOf(ctx context.Context) []Holder {
	if h, ok := ctx.Value(holdersKey{}).(Holders); ok {
		return h.Holders(ctx)
	}
	return nil
}

// Take waits until there is room for an answer of n bytes, which the caller then builds without
// pieces. The budget counts it until Abandon, or until Sent has returned all of it. The error is
// ctx's.
func (b *Budget) Take(ctx context.Context, n int64) (*Loan, error) {
	l := b.Borrow(ctx)
	for {
		err := l.Charge(n, n)
		if err != ErrFull {
			return l, err
		}
		if err := l.Wait(ctx); err != nil {
			return nil, err
		}
	}
}

// Force makes a loan for an answer of n bytes that was built before the call. The budget counts it
// from now on. The error is ErrFull if the sum would exceed twice the limit and other loans hold
// memory.
func (b *Budget) Force(ctx context.Context, n int64) (*Loan, error) {
	l := &Loan{b: b, holders: holdersOf(ctx), used: n, took: true}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.held > 0 && b.mu.held+n > 2*b.limit {
		b.mu.refused = time.Now()
		return nil, ErrFull
	}
	b.adjust(l, n)
	return l, nil
}

// Piece returns the next piece, of length PieceSize and with any content. expect is the probable
// size of the whole answer in bytes, 0 if unknown. After ErrFull, Wait or Abandon must follow.
func (l *Loan) Piece(expect int64) (*[]byte, error) {
	if err := l.grow(PieceSize, expect); err != nil {
		return nil, err
	}
	p := l.b.pool.Get().(*[]byte)
	l.pieces = append(l.pieces, p)
	return p, nil
}

// Charge counts n bytes of other memory that the builder needs until Finish. Otherwise it is like
// Piece.
func (l *Loan) Charge(n, expect int64) error { return l.grow(n, expect) }

func (l *Loan) grow(n, expect int64) error {
	need := l.used + n
	if need > FreeSize && need > l.reserved {
		if expect < need {
			// Reserving twice the need keeps restarts rare.
			expect = 2 * need
		}
		expect = min(expect, max(need, l.b.limit))
		if !l.reserve(expect) && (!l.took || !l.reserve(need)) {
			l.want = expect
			return ErrFull
		}
	}
	l.used = need
	return nil
}

// reserve raises the reservation to n bytes in total if no wait is needed.
func (l *Loan) reserve(n int64) bool {
	b := l.b
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case l.reserved == 0 && len(b.mu.queue) > 0:
		return false // others wait already
	case b.mu.held == l.reserved:
		// The only loan.
	case !b.withinShares(l, n) || !b.hasRoom(l, n, false):
		return false
	}
	b.adjust(l, n-l.reserved)
	l.took = true
	return true
}

// Drop takes back all pieces of an unfinished answer, whose builder starts again. The reservation
// stays.
func (l *Loan) Drop() {
	for _, p := range l.pieces {
		l.b.put(p)
	}
	l.used, l.pieces = 0, nil
}

func (b *Budget) put(piece *[]byte) {
	if cap(*piece) == PieceSize {
		*piece = (*piece)[:PieceSize]
		b.pool.Put(piece)
	}
}

// Wait drops all pieces, returns the reservation and waits until there is room for the last
// requested size. It returns ctx's error if that ends first; the loan then holds nothing.
func (l *Loan) Wait(ctx context.Context) error {
	l.Drop()
	b := l.b
	turn := make(chan struct{})
	begun := time.Now()
	b.mu.Lock()
	b.adjust(l, -l.reserved)
	l.turn = turn
	b.enqueue(l)
	b.admitWaiting()
	b.mu.Unlock()

	var err error
	select {
	case <-turn:
	case <-ctx.Done():
		err = ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.waits++
	b.mu.waited += time.Since(begun)
	if err == nil {
		l.took = true
		return nil
	}
	b.mu.denied++
	if i := slices.Index(b.mu.queue, l); i >= 0 {
		b.mu.queue = slices.Delete(b.mu.queue, i, i+1)
		b.admitWaiting() // this loan may have blocked others
	} else {
		b.release(l, l.reserved)
	}
	return err
}

// Finish ends the building of an answer and reports whether the budget counts it. From now on the
// caller owns the pieces. Finish returns the reservation beyond them.
func (l *Loan) Finish() bool {
	keep := int64(len(l.pieces)) * PieceSize
	l.pieces = nil
	if !l.took {
		return false
	}
	b := l.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if keep <= FreeSize {
		keep = 0
	}
	b.release(l, l.reserved-keep)
	return keep > 0
}

// Return takes back a piece that was sent.
func (l *Loan) Return(piece *[]byte) {
	l.Sent(PieceSize)
	l.b.put(piece)
}

// Sent returns n bytes that were sent.
func (l *Loan) Sent(n int64) {
	if !l.took {
		return
	}
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	if !l.over {
		l.b.release(l, min(n, l.reserved))
	}
}

// Abandon returns everything held. Pieces that were not dropped or returned are left to the garbage
// collector.
func (l *Loan) Abandon() {
	if !l.took {
		return
	}
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	l.over = true
	l.b.release(l, l.reserved)
}

// Held returns how many bytes the budget counts for the loan.
func (l *Loan) Held() int64 {
	if !l.took {
		return 0
	}
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	return l.reserved
}
