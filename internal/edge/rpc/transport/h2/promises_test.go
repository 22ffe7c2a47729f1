package h2

import (
	"math/rand/v2"
	"testing"
)

// TestPromises: promises are given in the order of their messages, within the limit but for a
// single one, and a stream that ends gives them back at once and is not kept for long.
func TestPromises(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	p := promises{most: 1000}
	var live, queue []*Stream // queue is the order in which streams wait
	drop := func(list []*Stream, s *Stream) []*Stream {
		for i := range list {
			if list[i] == s {
				return append(list[:i:i], list[i+1:]...)
			}
		}
		return list
	}
	for step := range 20_000 {
		switch random.IntN(4) {
		case 0:
			s := &Stream{id: uint32(step)}
			live = append(live, s)
			p.addWaiting(s, 1+random.Int64N(1500))
			queue = append(queue, s)
		case 1:
			if len(live) > 0 {
				s := live[random.IntN(len(live))]
				waits := s.promise.wants > 0
				if p.dropStream(s); waits && p.left > len(p.waiting)/2 {
					t.Fatalf("seed %d, step %d: %d of %d streams are kept although they have ended",
						seed, step, p.left, len(p.waiting))
				}
				live, queue = drop(live, s), drop(queue, s)
			}
		case 2:
			if len(live) > 0 {
				s := live[random.IntN(len(live))]
				p.takeBack(s, random.Int64N(2000))
			}
		case 3:
			if len(live) > 0 {
				s := live[random.IntN(len(live))]
				if p.addWaiting(s, 1+random.Int64N(500)); len(drop(queue, s)) == len(queue) {
					queue = append(queue, s)
				}
			}
		}
		for {
			others := p.given
			s, n := p.giveNext()
			if s == nil {
				break
			}
			if len(queue) == 0 || s != queue[0] || n <= 0 || others > 0 && p.given > p.most {
				t.Fatalf("seed %d, step %d: stream %d gets %d bytes, while others have %d", seed,
					step, s.id, n, others)
			}
			queue = queue[1:]
		}
		given := int64(0)
		for _, s := range live {
			given += s.promise.given
		}
		if given != p.given || len(queue) > 0 && p.given == 0 ||
			len(p.waiting) != len(queue)+p.left {
			t.Fatalf("seed %d, step %d: streams have %d of %d bytes, %d wait, %d are kept", seed,
				step, given, p.given, len(queue), len(p.waiting))
		}
	}
}
