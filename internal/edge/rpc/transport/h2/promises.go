package h2

import (
	"math"
	"slices"
)

// promises divides memory among the long messages of a connection: a client may send the rest of a message that has a promise.
// It is guarded by link.mu.
type promises struct {
	most    int64     // bytes that clients may have promises for, unless one message needs more
	given   int64     // bytes of promises that were not taken up
	waiting []*Stream // in the order of their messages
	left    int       // streams in waiting that do not wait any more
}

// promise is the part of a stream in promises.
type promise struct {
	given   int64 // bytes of its promises that were not taken up
	wants   int32 // bytes that wait for a promise
	waiting bool  // the stream is in promises.waiting
}

// addWaiting lets a stream wait for a promise of n bytes, instead of one for which it has waited.
func (p *promises) addWaiting(s *Stream, n int64) {
	if !s.promise.waiting {
		p.waiting = append(p.waiting, s)
		s.promise.waiting = true
	}
	s.promise.wants = int32(min(n, math.MaxInt32)) // no window is larger
}

// giveNext gives the next promise, if there is memory for it or no other promise. It returns nil if there is none to give.
func (p *promises) giveNext() (s *Stream, n int64) {
	for len(p.waiting) > 0 {
		s, n = p.waiting[0], int64(p.waiting[0].promise.wants)
		if n > 0 && p.given > 0 && p.given+n > p.most {
			return nil, 0
		}
		p.waiting[0] = nil
		p.waiting = p.waiting[1:]
		s.promise.wants, s.promise.waiting = 0, false
		if n > 0 {
			p.given += n
			s.promise.given += n
			return s, n
		}
		p.left--
	}
	p.waiting = nil
	return nil, 0
}

// takeBack notes that up to n bytes of the promises of a stream were taken up.
func (p *promises) takeBack(s *Stream, n int64) {
	n = min(n, s.promise.given)
	s.promise.given -= n
	p.given -= n
}

// dropStream takes back the promises of a stream that ends, and lets it wait no more.
func (p *promises) dropStream(s *Stream) {
	p.takeBack(s, s.promise.given)
	if s.promise.wants == 0 {
		return
	}
	s.promise.wants = 0
	// The first one of those that wait may do so for long: others must not be kept in memory until then.
	if p.left++; p.left > len(p.waiting)/2 {
		p.waiting = slices.DeleteFunc(p.waiting, func(s *Stream) bool {
			s.promise.waiting = s.promise.wants > 0
			return !s.promise.waiting
		})
		p.left = 0
	}
}
