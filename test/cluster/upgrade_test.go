package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/proc"
)

// upgrade has a member run another version.
func (g *group) upgrade(m *member, p proc.Program) {
	g.t.Helper()
	if code := m.Stop(); code != 0 {
		g.t.Fatalf("%s: exit code %d", m.name, code)
	}
	m.SetProgram(p)
	m.Launch()
	g.serving(m)
}

// A cluster goes from the version before to this one and to the next, member by member and back in
// the middle, while clients write. Members of two versions apply the same entries to the same data;
// what a version brought is used once all members have run it, and nothing that was acknowledged is
// lost.
func TestRollingUpgrade(t *testing.T) {
	onlyVigil(t)
	t.Parallel()
	t.Log("the previous version is built from", proc.DescribePrevious())
	archive := t.TempDir()
	g := &group{t: t, args: []string{steady}}
	for i := range 3 {
		m := g.configure(fmt.Sprintf("m%d", i+1))
		m.cfg.Program = proc.Previous
		g.list = append(g.list, m)
	}
	for _, m := range g.list {
		m.cfg.InitialCluster = g.initialCluster()
		m.Server = proc.New(t, m.cfg)
		m.Launch()
	}
	for _, m := range g.list {
		g.serving(m)
	}
	w := g.write()
	lease, err := g.list[0].client.Grant(proc.Context(t), 600)
	if err != nil {
		t.Fatal(err)
	}
	check := func(after string) {
		t.Helper()
		w.more(50)
		for _, m := range g.list {
			ctx := proc.Context(t)
			key := fmt.Sprintf("upgrade/%s/%s", after, m.name)
			if _, err := m.client.Put(ctx, key, after, clientv3.WithLease(lease.ID)); err != nil {
				t.Fatalf("%s: put at %s: %v", after, m.name, err)
			}
			if _, err := m.client.KeepAliveOnce(ctx, lease.ID); err != nil {
				t.Fatalf("%s: keep-alive at %s: %v", after, m.name, err)
			}
			if _, err := m.client.Txn(ctx).If(clientv3.Compare(clientv3.Version(key), "=",
				1)).Then(clientv3.OpDelete(key), clientv3.OpPut("k", after)).Commit(); err != nil {
				t.Fatalf("%s: transaction at %s: %v", after, m.name, err)
			}
		}
	}
	check("at first")
	for _, m := range g.list {
		g.upgrade(m, proc.Vigil)
		check("with " + m.name + " of this version")
	}
	// The next one is tried at one member, given up, and then brought to all.
	g.upgrade(g.list[0], proc.Next)
	check("with one of the next version")
	g.upgrade(g.list[0], proc.Vigil)
	check("back from the next version")
	for _, m := range g.list {
		if archived(t, archive) {
			t.Errorf("before the upgrade of %s an archive has begun", m.name)
		}
		m.SetArgs(append(slices.Clone(g.args), "--archive=file://"+archive)...)
		g.upgrade(m, proc.Next)
		check("with " + m.name + " of the next version")
	}
	g.until("an archive", func() bool { return archived(t, archive) })
	w.check()
	g.agree()
	// The log has requests now that this version does not know.
	last := g.list[2]
	if code := last.Stop(); code != 0 {
		t.Fatalf("%s: exit code %d", last.name, code)
	}
	last.SetProgram(proc.Vigil)
	last.Launch()
	if code := last.Wait(); code == 0 ||
		!strings.Contains(last.Log().String(),
			"the cluster uses requests of level 2 and this version of the program knows 1") {
		t.Errorf("%s of this version: exit code %d, log %s", last.name, code, last.Log().String())
	}
}

// archived reports whether an archive has begun in a directory. That needs claims of terms, which
// the next version proposes as a new kind of request.
func archived(t *testing.T, dir string) bool {
	t.Helper()
	_, err := os.Stat(filepath.Join(dir, "vigil-archive.json"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}
