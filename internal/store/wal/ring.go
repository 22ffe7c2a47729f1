package wal

// ring is a queue that grows at one end and shrinks at both.
type ring[T any] struct {
	buf  []T // its length is 0 or a power of two
	head int
	n    int
}

func (r *ring[T]) len() int { return r.n }

func (r *ring[T]) at(i int) *T { return &r.buf[(r.head+i)&(len(r.buf)-1)] }

func (r *ring[T]) push(v T) {
	if r.n == len(r.buf) {
		r.resize(max(16, 2*len(r.buf)))
	}
	r.n++
	*r.at(r.n - 1) = v
}

// popFront drops the first k, and the memory when most of it is unused.
func (r *ring[T]) popFront(k int) {
	r.zero(0, k)
	if k > 0 {
		r.head = (r.head + k) & (len(r.buf) - 1)
	}
	r.n -= k
	if len(r.buf) > 1024 && r.n < len(r.buf)/8 {
		r.resize(len(r.buf) / 4)
	}
}

// truncate keeps the first k.
func (r *ring[T]) truncate(k int) {
	r.zero(k, r.n)
	r.n = k
}

func (r *ring[T]) zero(from, to int) {
	var none T
	for i := from; i < to; i++ {
		*r.at(i) = none
	}
}

func (r *ring[T]) resize(size int) {
	buf := make([]T, size)
	for i := range r.n {
		buf[i] = *r.at(i)
	}
	r.buf, r.head = buf, 0
}
