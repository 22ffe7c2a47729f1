package replica

import (
	"context"
	"fmt"
	"testing"
	"time"

	"vigil/internal/kv"
	"vigil/internal/vfs/memfs"
)

// A member without others keeps no applied entries in memory, and a member among others keeps the
// newest ones for those that lag.
func TestAppliedEntriesInMemory(t *testing.T) {
	alone := start(t, config(memfs.New()))
	t.Cleanup(func() { alone.Stop(context.Background()) })
	for i := range 20 {
		if _, err := alone.Put(t.Context(),
			&kv.PutRequest{Key: fmt.Appendf(nil, "k%d", i),
				Value: make([]byte, 1000)}); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "no entries in memory", func() bool { return alone.raftLog.Metrics().CacheBytes == 0 })

	g := startGroup(t, func(_ int, c *Config) {
		c.SnapshotCount,
			c.SnapshotCatchUpEntries = 1<<30, 1<<30
	})
	for i := range 20 {
		g.put(fmt.Sprintf("k%d", i), make([]byte, 1000))
	}
	// Some ticks pass, in which a member without others would have removed them.
	for begun := time.Now(); time.Since(begun) < 20*g.cfg[0].TickInterval; {
		g.put("k", nil)
	}
	for _, r := range g.list {
		g.caughtUp(r)
		await(t, "raft to know the applied position",
			func() bool { return r.node.Acknowledged() >= 20 })
		if n := r.raftLog.Metrics().CacheBytes; n < 20*1000 {
			t.Errorf("%s has %d bytes of entries in memory", r.cfg.Name, n)
		}
	}
}
