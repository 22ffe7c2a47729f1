package ration

import (
	"context"
	"errors"
	"slices"
	"time"
)

// ErrFull says that there is no room for a lease to grow.
var ErrFull = errors.New("ration: no room")

// Lease is the memory of one answer.
type Lease struct {
	b       *Budget
	holders []Holder // for whom it is

	// used is the memory taken so far, pieces what of it are pieces. Owned by the builder.
	used   int64
	pieces []*[]byte
	// want is how much is to be reserved next time. Owned by the builder, and by b while in line.
	want int64
	turn chan struct{} // closed when it is admitted; made anew for each wait
	// took is set once something was reserved. Owned by the builder; not changed after Settle.
	took bool

	// Guarded by b.mu.
	ticket   uint64
	reserved int64
	over     bool // abandoned
}

// Lease begins an answer for the holders that ctx names.
func (b *Budget) Lease(ctx context.Context) *Lease { return &Lease{b: b, holders: holdersOf(ctx)} }

// Holder is somebody for whom answers are made, and may have one Part of the limit in all.
type Holder struct {
	Key  any // comparable
	Part int64
}

// Holders are those for whom an answer is made, a connection and a user for example. They are asked for when it
// is no small one.
type Holders interface {
	Holders(context.Context) []Holder
}

type holdersKey struct{}

// WithHolders returns a context for answers that are made for holders.
func WithHolders(ctx context.Context, h Holders) context.Context {
	return context.WithValue(ctx, holdersKey{}, h)
}

func holdersOf(ctx context.Context) []Holder {
	if h, ok := ctx.Value(holdersKey{}).(Holders); ok {
		return h.Holders(ctx)
	}
	return nil
}

// Take waits until there is room for an answer of n bytes, which is then built without pieces. It counts until
// Abandon, or Sent for all of it. The error is ctx's.
func (b *Budget) Take(ctx context.Context, n int64) (*Lease, error) {
	l := b.Lease(ctx)
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

// Force makes a lease of an answer of n bytes that was built without asking. It counts from now on. ErrFull if others
// hold so much that there would be more than twice the limit.
func (b *Budget) Force(ctx context.Context, n int64) (*Lease, error) {
	l := &Lease{b: b, holders: holdersOf(ctx), used: n, took: true}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.held > 0 && b.mu.held+n > 2*b.limit {
		b.mu.refused = time.Now()
		return nil, ErrFull
	}
	b.change(l, n)
	return l, nil
}

// Piece returns the next piece, of length PieceSize and with any content. expect is the size in bytes
// that the whole answer will probably have, 0 if that is not known. ErrFull if there is no room for
// it; Wait must follow, or Abandon.
func (l *Lease) Piece(expect int64) (*[]byte, error) {
	if err := l.grow(PieceSize, expect); err != nil {
		return nil, err
	}
	p := l.b.pool.Get().(*[]byte)
	l.pieces = append(l.pieces, p)
	return p, nil
}

// Charge counts n bytes of other memory that is needed until Settle. As Piece otherwise.
func (l *Lease) Charge(n, expect int64) error { return l.grow(n, expect) }

func (l *Lease) grow(n, expect int64) error {
	need := l.used + n
	if need > FreeSize && need > l.reserved {
		if expect < need {
			// Nothing better is known. Asking for the double keeps beginning anew rare.
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

// reserve makes the reservation n bytes in all if that needs no waiting.
func (l *Lease) reserve(n int64) bool {
	b := l.b
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.mu.held == l.reserved && (l.reserved > 0 || len(b.mu.queue) == 0):
		// Alone. What is larger than the limit is admitted then.
	case l.reserved == 0 && len(b.mu.queue) > 0:
		return false // others were first
	case !b.within(l, n) || !b.room(l, n, false):
		return false
	}
	b.change(l, n-l.reserved)
	l.took = true
	return true
}

// Drop takes back all pieces while the answer is being built, to begin anew. What is reserved stays so.
func (l *Lease) Drop() {
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

// Wait drops all pieces, gives back what is reserved and waits until there is room for what was asked for last. It returns
// ctx's error if that ends first; nothing is held then.
func (l *Lease) Wait(ctx context.Context) error {
	l.Drop()
	b := l.b
	turn := make(chan struct{})
	begun := time.Now()
	b.mu.Lock()
	b.change(l, -l.reserved)
	l.turn = turn
	b.enqueue(l)
	b.serve()
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
		b.serve() // it may have been in the way
	} else {
		b.release(l, l.reserved)
	}
	return err
}

// Settle ends the building of an answer, and reports whether it is counted. The pieces belong to the
// caller from now on. What was reserved beyond them is given back.
func (l *Lease) Settle() bool {
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
func (l *Lease) Return(piece *[]byte) {
	l.Sent(PieceSize)
	l.b.put(piece)
}

// Sent gives back n bytes.
func (l *Lease) Sent(n int64) {
	if !l.took {
		return
	}
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	if !l.over {
		l.b.release(l, min(n, l.reserved))
	}
}

// Abandon gives back all that is held. Pieces that were not dropped or returned are left to the garbage
// collector.
func (l *Lease) Abandon() {
	if !l.took {
		return
	}
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	l.over = true
	l.b.release(l, l.reserved)
}

// Held returns how many bytes are counted.
func (l *Lease) Held() int64 {
	if !l.took {
		return 0
	}
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	return l.reserved
}
