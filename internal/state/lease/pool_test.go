package lease

import "testing"

// Places are used again, and a pool that was large does not stay so.
func TestPool(t *testing.T) {
	var p pool
	taken := map[place]bool{}
	fill := func(n int) {
		for range n {
			i := p.take()
			if taken[i] {
				t.Fatalf("place %d is taken twice", i)
			}
			taken[i] = true
			p.at(i).mark = uint64(i)
		}
	}
	fill(3 * blockTimers)
	for i := range taken {
		if p.at(i).mark != uint64(i) {
			t.Errorf("place %d holds timer %d", i, p.at(i).mark)
		}
		if i%2 == 0 {
			p.free(i)
			delete(taken, i)
		}
	}
	fill(3 * blockTimers / 2)
	if len(p.blocks) != 3 {
		t.Errorf("%d blocks for as many timers as before", len(p.blocks))
	}
	for i := range taken {
		p.free(i)
	}
	clear(taken)
	if len(p.blocks) != 1 || len(p.freed) != 0 {
		t.Errorf("%d blocks and %d free places without timers", len(p.blocks), len(p.freed))
	}
	fill(blockTimers)
}
