package raftnode

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"vigil/internal/store/wal"
)

// panicking is a Proposals that panics after a tick has come, as raft does where it cannot go on.
type panicking struct {
	Proposals
	armed, panicked atomic.Bool
	after           atomic.Int32 // calls since
}

func (p *panicking) NextGroup(term uint64) []byte {
	if p.panicked.Load() {
		p.after.Add(1)
	} else if p.armed.Load() {
		time.Sleep(250 * time.Millisecond)
		p.panicked.Store(true)
		panic("raft cannot go on")
	}
	return p.Proposals.NextGroup(term)
}

func (p *panicking) Outstanding(term uint64) int {
	if p.panicked.Load() {
		p.after.Add(1)
	}
	return p.Proposals.Outstanding(term)
}

// TestNoTurnAfterPanic: after a turn that panicked there is no other one, not even for a tick that
// came during that turn.
func TestNoTurnAfterPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &panicking{}
		m := startMember(t, newMemLog(wal.Start{Index: 1, Term: 1}), func(c *Config) {
			p.Proposals, c.Proposals = c.Proposals, p
		})
		synctest.Wait()
		p.armed.Store(true)
		m.Wake()
		<-m.Failed()
		time.Sleep(time.Second)
		if n := p.after.Load(); n != 0 {
			t.Errorf("%d calls from a later turn", n)
		}
		if m.Err() == nil {
			t.Error("no error")
		}
	})
}
