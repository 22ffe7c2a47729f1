package raftnode

import (
	"sync"
	"time"
)

// turns lets goroutines do turns, one at a time.
type turns struct {
	n  *Node
	mu sync.Mutex // held for a turn; guards Node.raft
	// open is set while turns may be done: after QuietTime, and before the end. Guarded by mu.
	open bool
}

// do does something, if given, and a turn. It waits for the turn under way.
func (t *turns) do(first func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn(first)
}

// now does a turn on the goroutine of the caller, which saves waking the raft goroutine. If another goroutine does one, which
// may have passed what this one is for, the raft goroutine does one afterwards.
func (t *turns) now() {
	if !t.mu.TryLock() {
		t.n.wake()
		return
	}
	defer t.mu.Unlock()
	if t.open {
		t.turn(nil)
	}
}

// turn does something, if given, and a turn. The library panics where it cannot go on, which ends the node. mu is held.
func (t *turns) turn(first func()) {
	n := t.n
	defer func() {
		if p := recover(); p != nil {
			n.fail(n.panicked(p))
			t.open = false
		}
	}()
	if first != nil {
		first()
	}
	n.turn()
}

// begin lets turns be done. mu is held.
func (t *turns) begin() {
	n := t.n
	t.open = true
	if n.raft.single {
		// There is no other member to wait for.
		if err := n.raft.node.Campaign(); err != nil {
			n.cfg.Logger.Debug("campaign", "error", err)
		}
		n.raft.moved = true
	}
}

// tick lets raft's clock advance. mu is held.
func (t *turns) tick() {
	n, now := t.n, time.Now()
	n.punctual(now)
	n.countOrphaned(now)
	n.watchProgress(now)
	n.raft.node.Tick()
	n.raft.moved = true
	n.raft.ticks++
	n.raft.forward.tick(n)
	n.retire()
	n.fetcher.tick(n.cfg.ElectionTicks)
}

// end waits for the turn under way, if there is one, which is the last one.
func (t *turns) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open = false
	t.n.alone.Store(false)
}
