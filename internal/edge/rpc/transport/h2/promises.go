package h2

import (
	"math"
	"slices"
)

// promises divides memory among the long messages of a connection. A client may send the rest of a
// message that has a promise. link.mu guards it.
type promises struct {
	most    int64     // limit of given, unless a single message needs more
	given   int64     // bytes that are promised and not taken yet
	waiting []*Stream // streams that wait for a promise, in order
	left    int       // streams in waiting that have stopped waiting
}

// promise is a stream's part of promises.
type promise struct {
	given   int64 // bytes that are promised and not taken yet
	wants   int32 // bytes that wait for a promise
	waiting bool  // the stream is in promises.waiting
}

// addWaiting lets a stream wait for a promise of n bytes. If it waits already, n replaces the
// number before.
func (p *promises) addWaiting(s *Stream, n int64) {
	if !s.promise.waiting {
		p.waiting = append(p.waiting, s)
		s.promise.waiting = true
	}
	s.promise.wants = int32(min(n, math.MaxInt32)) // no window is larger
}

// giveNext gives the next promise if there is memory for it, or no other promise. It returns nil if
// it gives none.
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

// takeBack takes back up to n bytes of a stream's promises, because the bytes were taken.
func (p *promises) takeBack(s *Stream, n int64) {
	n = min(n, s.promise.given)
	s.promise.given -= n
	p.given -= n
}

// dropStream takes back all promises of a stream that ends. The stream stops waiting.
func (p *promises) dropStream(s *Stream) {
	p.takeBack(s, s.promise.given)
	if s.promise.wants == 0 {
		return
	}
	s.promise.wants = 0
	// The first stream may wait for long, and streams behind it that have ended must not stay in
	// memory until then.
	if p.left++; p.left > len(p.waiting)/2 {
		p.waiting = slices.DeleteFunc(p.waiting, func(s *Stream) bool {
			s.promise.waiting = s.promise.wants > 0
			return !s.promise.waiting
		})
		p.left = 0
	}
}
