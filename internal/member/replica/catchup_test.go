package replica

import (
	"fmt"
	"testing"
)

// A member that is there and gets no entries for a while, under load, needs no snapshot: the leader
// has kept the entries that it lacks. With a bound it needs one, and catches up, too.
func TestTheLogIsKeptForAMemberThatLags(t *testing.T) {
	for _, most := range []int64{0, 1} {
		t.Run(fmt.Sprintf("at most %d bytes", most), func(t *testing.T) {
			g := startGroup(t, func(_ int, c *Config) { c.MaxCatchUpBytes = most })
			r := g.other()
			g.net.mu.Lock()
			g.net.drop = deaf(r.memberID)
			g.net.mu.Unlock()
			for i := range 1000 { // of 50 for which the log is shortened
				g.put(fmt.Sprintf("k%d", i), junk(500))
			}
			lead := g.leader()
			await(t, "a shorter log", func() bool {
				first, err := lead.raftLog.FirstIndex()
				return most == 0 || err == nil && first > r.applied.Load()+1
			})
			g.net.mu.Lock()
			g.net.drop = nil
			g.net.mu.Unlock()
			g.caughtUp(r)
			if n := len(g.net.transfers()); (n > 0) != (most > 0) {
				t.Errorf("%d snapshots were sent", n)
			}
			// The log is not kept once nobody lacks it.
			if most == 0 {
				for i := 0; ; i++ {
					g.put("end", junk(500))
					if first, err := lead.raftLog.FirstIndex(); err != nil ||
						first > 900 || i == 1000 {
						if first <= 900 {
							t.Errorf("the log begins at %d, %v", first, err)
						}
						break
					}
				}
			}
		})
	}
}
