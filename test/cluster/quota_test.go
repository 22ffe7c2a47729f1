package cluster

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/proc"
)

// TestQuota fills a cluster to its quota again and again, like etcd's own tests: a rejected client
// finds one alarm, which stays until there is room and it is disarmed, and then there is room at
// once.
func TestQuota(t *testing.T) {
	t.Parallel()
	const page = 4096
	small := func(c *clientv3.Client, i int) error {
		_, err := c.Put(t.Context(), fmt.Sprint("small", i), "v")
		return err
	}
	for _, c := range []struct {
		members, value int
		between        bool // a small key follows each large value
	}{{1, page, false}, {1, page, true}, {1, 3 * page, false}, {3, page, false}, {3, page, true},
		{3, 3 * page, true}} {
		t.Run(fmt.Sprintf("members=%d,value=%d,between=%t", c.members, c.value, c.between),
			func(t *testing.T) {
				t.Parallel()
				g := start(t, c.members, fmt.Sprint("--quota-backend-bytes=", 13*page), steady)
				var endpoints []string
				for _, m := range g.list {
					endpoints = append(endpoints, fmt.Sprintf("127.0.0.1:%d", m.cfg.ClientPort))
				}
				ctl := func(args ...string) (string, error) {
					cmd := exec.CommandContext(proc.Context(t), proc.Path(t, proc.Etcdctl),
						append([]string{"--endpoints=" + strings.Join(endpoints, ",")}, args...)...)
					out, err := cmd.CombinedOutput()
					return string(out), err
				}
				must := func(args ...string) string {
					t.Helper()
					out, err := ctl(args...)
					if err != nil {
						t.Fatalf("%q: %v: %s", args, err, out)
					}
					return out
				}
				value := strings.Repeat("v", c.value)
				for round := range 3 {
					// The client of one member, so that it is the same that is asked each time;
					// another in each round.
					client := g.list[round%c.members].client
					var err error
					n := 0
					for ; err == nil; n++ {
						if n > 100 {
							t.Fatal("the quota refuses nothing")
						}
						if _, err = client.Put(t.Context(), "key", value); err == nil && c.between {
							err = small(client, n)
						}
					}
					if !errors.Is(err, rpctypes.ErrNoSpace) {
						t.Fatal(err)
					}
					if n < 3 {
						t.Errorf("round %d: refused after %d puts", round, n)
					}
					if out := must("alarm", "list"); strings.Count(out, "\n") != 1 ||
						strings.Count(out, "alarm:NOSPACE") != 1 {
						t.Errorf("round %d: alarms %q", round, out)
					}
					if out, err := ctl("endpoint", "health"); err == nil ||
						strings.Count(out, "is unhealthy") != c.members {
						t.Errorf("round %d: health %v: %s", round, err, out)
					}
					for _, m := range g.list {
						if err := small(m.client, 0); !errors.Is(err, rpctypes.ErrNoSpace) {
							t.Errorf("round %d: a small put after it: %v", round, err)
						}
					}
					if out := must("alarm", "list"); strings.Count(out, "\n") != 1 {
						t.Errorf("round %d: alarms later %q", round, out)
					}
					res, err := client.Get(t.Context(), "key")
					if err != nil {
						t.Fatal(err)
					}
					must("compact", fmt.Sprint(res.Header.Revision))
					must("defrag")
					must("alarm", "disarm")
					for i, m := range g.list {
						// A member refuses by the alarms of the state that it has, and may be
						// behind the one that was asked.
						g.until("cleared alarm at "+m.name, func() bool {
							list, err := m.client.AlarmList(t.Context())
							return err == nil && len(list.Alarms) == 0
						})
						if err := small(m.client, i); err != nil {
							t.Errorf("round %d: a put when there is room: %v", round, err)
						}
					}
					if out := must("alarm", "list"); out != "" {
						t.Errorf("round %d: alarms in the end %q", round, out)
					}
				}
			})
	}
}
