package metrics

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/proc"
)

// missing are metrics of a stock server, or series of them, that ours need not have, with the
// reason. A key is a name, or a name and what the labels contain.
var missing = map[string]string{
	`etcd_server_apply_duration_seconds op="ClusterVersionSet"`:     "the version of the cluster is not an entry of the log",
	`etcd_server_request_duration_seconds type="ClusterVersionSet"`: "the version of the cluster is not an entry of the log",
}

// TestParity: every metric that a stock server has after some work, with its type and its labels,
// is there under the same name.
func TestParity(t *testing.T) {
	want := worked(t, proc.Etcd)
	got := ours(t)
	used := map[string]bool{}
	for _, name := range sorted(want) {
		w, g := want[name], got[name]
		switch {
		case g == nil && excused(name, "", used):
			continue
		case g == nil:
			t.Errorf("%s is missing", name)
			continue
		case g.kind != w.kind:
			t.Errorf("%s is a %s, a %s in etcd", name, g.kind, w.kind)
		}
		reported := false // one bucket of a histogram is enough
		for _, series := range sorted(w.series) {
			if !g.series[series] && !excused(name, series, used) &&
				!(reported && strings.Contains(series, "le=")) {
				t.Errorf("%s{%s is missing", name, series)
				reported = true
			}
		}
	}
	for key := range missing {
		if !used[key] {
			t.Errorf("%s is on the list of what may be missing, and is not", key)
		}
	}
}

// excused reports whether a series may be missing, and notes by what.
func excused(name, series string, used map[string]bool) bool {
	for key := range missing {
		if n, labels, _ := strings.Cut(key, " "); n == name && strings.Contains(series, labels) {
			used[key] = true
			return true
		}
	}
	return false
}

var workedVigil map[string]*family

// ours is what worked returns for Vigil, made once.
func ours(t *testing.T) map[string]*family {
	t.Helper()
	if workedVigil == nil {
		workedVigil = worked(t, proc.Vigil)
	}
	return workedVigil
}

// worked runs a cluster of two, lets it do some of everything, and returns the metrics of its
// leader.
func worked(t *testing.T, p proc.Program) map[string]*family {
	t.Helper()
	args := []string{"--metrics=extensive"}
	if p == proc.Vigil {
		// Members that get no processor for some seconds do not elect another leader. A stock etcd
		// would begin after that time. The certificate is not used; its expiry is exported. Metrics
		// of the archive are those of a member that has one.
		args = append(args, "--election-timeout=10000", "--peer-auto-tls",
			"--archive=file://"+t.TempDir())
	}
	list := cluster(t, p, 2, args...)
	ctx := proc.Context(t)
	lead := leader(ctx, t, list)
	c := lead.Client()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", p, err)
		}
	}
	lease, err := c.Grant(ctx, 60)
	must(err)
	watch := c.Watch(ctx, "k", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-watch
	var last int64
	for i := range 20 {
		res, err := c.Put(ctx, fmt.Sprint("k", i), "value", clientv3.WithLease(lease.ID))
		must(err)
		last = res.Header.Revision
	}
	for seen := int64(0); seen < last; {
		seen = (<-watch).Header.Revision
	}
	_, err = c.Get(ctx, "k", clientv3.WithPrefix())
	must(err)
	if _, err = c.Get(ctx, "k", clientv3.WithRev(1<<40)); err == nil {
		t.Fatal("a future revision can be read")
	}
	_, err = c.Txn(ctx).Then(clientv3.OpGet("k1"), clientv3.OpPut("k2", "")).Commit()
	must(err)
	_, err = c.Txn(ctx).Then(clientv3.OpGet("k1")).Commit()
	must(err)
	_, err = c.Delete(ctx, "k3")
	must(err)
	_, err = c.KeepAliveOnce(ctx, lease.ID)
	must(err)
	_, err = c.Revoke(ctx, lease.ID)
	must(err)
	_, err = c.UserAdd(ctx, "u", "p")
	must(err)
	_, err = c.Compact(ctx, last, clientv3.WithCompactPhysical())
	must(err)
	_, err = c.HashKV(ctx, lead.Addr(), 0)
	must(err)
	_, err = c.Status(ctx, lead.Addr())
	must(err)
	for _, path := range []string{"/health", "/livez", "/readyz"} {
		res, err := http.Get("http://" + lead.Addr() + path)
		must(err)
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
	alarm(ctx, t, lead)
	return scrape(t, lead)
}

// cluster runs n members.
func cluster(t *testing.T, p proc.Program, n int, args ...string) (out []*proc.Server) {
	t.Helper()
	var configs []proc.Config
	var members []string
	for i := range n {
		c := proc.Config{Program: p, Name: fmt.Sprint("m", i), Memory: true,
			PeerPort: proc.FreePort(t), ClientPort: proc.FreePort(t), Args: args}
		configs = append(configs, c)
		members = append(members, fmt.Sprintf("%s=http://127.0.0.1:%d", c.Name, c.PeerPort))
	}
	for _, c := range configs {
		c.InitialCluster = strings.Join(members, ",")
		s := proc.New(t, c)
		s.Launch()
		out = append(out, s)
	}
	for _, s := range out {
		s.Ready()
	}
	return out
}

// leader returns the member that leads.
func leader(ctx context.Context, t *testing.T, list []*proc.Server) *proc.Server {
	t.Helper()
	c := list[0].Client()
	for _, s := range list {
		st, err := c.Status(ctx, s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		if st.Leader == st.Header.MemberId {
			return s
		}
	}
	t.Fatal("there is no leader")
	return nil
}
