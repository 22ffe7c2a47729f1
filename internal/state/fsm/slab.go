package fsm

import "slices"

// slab allocates zeroed values and frees all of them at once.
type slab[T any] struct {
	all  []*T
	used int
}

func (s *slab[T]) next() *T {
	if s.used == len(s.all) {
		s.all = append(s.all, new(T))
	}
	p := s.all[s.used]
	s.used++
	var zero T
	*p = zero
	return p
}

// slabKeep is how many values a slab or an arena keeps for reuse.
const slabKeep = 1 << 10

func (s *slab[T]) reset() {
	if s.used > slabKeep {
		s.all = slices.Clone(s.all[:slabKeep])
	}
	s.used = 0
}

// arena allocates zeroed slices and frees all of them at once.
type arena[T any] struct {
	buf []T
}

func (a *arena[T]) next(n int) []T {
	if n == 0 {
		return nil
	}
	if cap(a.buf)-len(a.buf) < n {
		// Slices that were returned before keep the old array.
		a.buf = make([]T, 0, max(2*cap(a.buf), n, 16))
	}
	from := len(a.buf)
	a.buf = a.buf[:from+n]
	s := a.buf[from : from+n : from+n]
	clear(s)
	return s
}

func (a *arena[T]) reset() {
	if cap(a.buf) > slabKeep {
		a.buf = nil
	}
	a.buf = a.buf[:0]
}
