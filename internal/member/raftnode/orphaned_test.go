package raftnode

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestOrphaned: a member is orphaned after an election timeout without a leader. One that was
// suspended in that time is not, before it has listened for an election timeout again.
func TestOrphaned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tick = 100 * time.Millisecond
		var suspended atomic.Bool
		c := startCluster(t, 1, 3, voters(1, 2, 3), func(cfg *Config) {
			if cfg.TickInterval = tick; cfg.ID != 3 {
				return
			}
			from, to := cfg.Ticks, make(chan time.Time)
			cfg.Ticks = to
			go func() {
				for {
					select {
					case at := <-from:
						if suspended.Load() {
							continue
						}
						select {
						case to <- at:
						case <-t.Context().Done():
							return
						}
					case <-t.Context().Done():
						return
					}
				}
			}()
		})
		m := c.members[3]
		if m.Orphaned() {
			t.Error("a member with a leader is orphaned")
		}
		c.members[1].Stop()
		c.members[2].Stop()
		for m.Status().Lead != 0 {
			time.Sleep(tick)
		}
		time.Sleep(electionTimeout / 2)
		if m.Orphaned() {
			t.Error("orphaned after half an election timeout")
		}
		suspended.Store(true)
		time.Sleep(time.Hour)
		if m.Orphaned() {
			t.Error("orphaned while it was suspended")
		}
		suspended.Store(false)
		time.Sleep(electionTimeout / 2)
		if m.Orphaned() {
			t.Error("orphaned half an election timeout after it was suspended")
		}
		time.Sleep(electionTimeout)
		if !m.Orphaned() {
			t.Error("not orphaned, though it has listened for an election timeout")
		}
		suspended.Store(true)
		time.Sleep(time.Hour)
		if m.Orphaned() {
			t.Error("an orphaned member that was suspended is still orphaned")
		}
	})
}
