package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/proc"
)

// TestAutoCompaction: only the leader compacts revisions older than the retention, and the next
// leader goes on with it.
func TestAutoCompaction(t *testing.T) {
	t.Parallel()
	const starting = "starting auto periodic compaction"
	g := start(t, 3, "--auto-compaction-mode=periodic", "--auto-compaction-retention=1s", steady)
	c := g.list[0].client
	ctx := proc.Context(t)
	// compacts writes until the first revision that it has written is gone.
	compacts := func(lead *member) {
		t.Helper()
		first, err := c.Put(ctx, "k", "first")
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		g.until(fmt.Sprintf("revision %d to be compacted", first.Header.Revision), func() bool {
			if _, err := c.Put(ctx, "k", fmt.Sprint(n)); err != nil {
				t.Log(err)
			}
			n++
			_, err := c.Get(ctx, "k", clientv3.WithRev(first.Header.Revision))
			return errors.Is(err, rpctypes.ErrCompacted)
		})
		g.logged(lead, starting)
	}
	lead := g.leader()
	compacts(lead)
	for _, m := range g.others(lead) {
		if strings.Contains(m.Log().String(), starting) {
			t.Errorf("%s compacted and %s leads", m.name, lead.name)
		}
	}
	next := g.others(lead)[0]
	if _, err := lead.client.MoveLeader(ctx, next.id(g)); err != nil {
		t.Fatal(err)
	}
	compacts(next)
	g.logged(next, "completed auto periodic compaction")
	if strings.Contains(next.Log().String(), `"level":"error"`) {
		t.Error(next.Log().Tail(20))
	}
}
