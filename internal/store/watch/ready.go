package watch

import "sync"

// Ready collects the streams that have responses, for one goroutine that serves many streams. After
// Stream.NotifyReady it reports a stream once after each call of Take that returned nothing.
type Ready struct {
	wake chan struct{} // one token: owners is not empty
	mu   struct {
		sync.Mutex
		owners []any
	}
}

// NewReady returns an empty collection.
func NewReady() *Ready { return &Ready{wake: make(chan struct{}, 1)} }

// Add reports the streams of these owners. It never waits.
func (r *Ready) Add(owners ...any) {
	if len(owners) == 0 {
		return
	}
	r.mu.Lock()
	r.mu.owners = append(r.mu.owners, owners...)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Wait waits for reported streams, and appends their owners to dst. It returns false if stop is
// closed.
func (r *Ready) Wait(stop <-chan struct{}, dst []any) ([]any, bool) {
	for {
		select {
		case <-stop:
			return dst, false
		case <-r.wake:
		}
		r.mu.Lock()
		n := len(dst)
		dst = append(dst, r.mu.owners...)
		clear(r.mu.owners)
		r.mu.owners = reuse(r.mu.owners, 4096)
		r.mu.Unlock()
		if len(dst) > n {
			return dst, true
		}
	}
}

// NotifyReady lets r report the stream as owner instead of waking a sender in Next: when there is
// something to take after this call, and after each call of Take that has returned nothing. The
// caller must call it before anything else, and from then on Take instead of Next.
func (s *Stream) NotifyReady(r *Ready, owner any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.ready, s.mu.owner = r, owner
	if s.mu.closed {
		r.Add(owner)
		return
	}
	s.mu.waiting = true
}

// Take returns queued responses as Next does, but never waits, and returns at most approximately
// the given number of bytes. Watchers that get the same response share one. The error is ErrClosed
// when the stream or the hub is closed; the Ready reports the stream then too.
func (s *Stream) Take(dst []Response, most int64) ([]Response, error) {
	dst, _, err := s.next(dst, most, true)
	return dst, err
}
