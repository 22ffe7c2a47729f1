package backup

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"vigil/test/proc"
)

const (
	patience = 2 * time.Minute
	root     = "root:top secret"
)

// run runs a program that must succeed, and returns what it prints.
func run(t testing.TB, p proc.Program, args ...string) string {
	t.Helper()
	r := proc.Run(t, patience, proc.Spec{Name: proc.Path(t, p), Args: args})
	if r.Code != 0 {
		t.Fatalf("%s %q: exit code %d\n%s%s", p, args, r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// refused runs a program that must fail, and returns its error.
func refused(t testing.TB, p proc.Program, args ...string) string {
	t.Helper()
	r := proc.Run(t, patience, proc.Spec{Name: proc.Path(t, p), Args: args})
	if r.Code == 0 {
		t.Fatalf("%s %q succeeded\n%s%s", p, args, r.Stdout, r.Stderr)
	}
	return r.Stderr
}

// client returns a client of a server, as the user root if it asks for users.
func client(t testing.TB, s *proc.Server, auth bool) *clientv3.Client {
	t.Helper()
	c := clientv3.Config{Endpoints: []string{s.Addr()}, DialTimeout: patience,
		DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}}
	if auth {
		c.Username, c.Password, _ = strings.Cut(root, ":")
	}
	cl, err := clientv3.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cl.Close() })
	return cl
}

func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// fill writes something of everything: keys that change, go, come back and go and come in one
// revision, large values, leases, a compaction, users and roles.
func fill(t testing.TB, c *clientv3.Client) {
	t.Helper()
	ctx := t.Context()
	put := func(k, v string, opts ...clientv3.OpOption) { must(c.Put(ctx, k, v, opts...))(t) }
	for i := range 100 {
		put(fmt.Sprintf("key-%02d", i%30), fmt.Sprintf("value %d", i))
		if i%7 == 0 {
			must(c.Delete(ctx, fmt.Sprintf("key-%02d", (i+3)%30)))(t)
		}
		if i == 60 {
			put("large", strings.Repeat("0123456789abcdef", 8<<10))
		}
	}
	again := func() {
		must(c.Txn(ctx).Then(clientv3.OpDelete("key-05"), clientv3.OpPut("key-05b", "x"),
			clientv3.OpDelete("key-06"), clientv3.OpPut("key-07", "y")).Commit())(t)
	}
	again()
	for i, ttl := range []int64{600, 1200, 9_000_000_000} {
		l := must(c.Grant(ctx, ttl))(t)
		for j := range i * 2 {
			put(fmt.Sprintf("leased-%d-%d", i, j), "v", clientv3.WithLease(l.ID))
		}
	}
	rev := must(c.Get(ctx, "x"))(t).Header.Revision
	must(c.Compact(ctx, rev-60, clientv3.WithCompactPhysical()))(t)
	for i := range 40 {
		put(fmt.Sprintf("after-%d", i%9), fmt.Sprint(i))
	}
	must(c.Delete(ctx, "after-", clientv3.WithPrefix()))(t)
	must(c.Delete(ctx, "leased-1-0"))(t)
	put("after-1", "back")
	again()
	again()

	must(c.RoleAdd(ctx, "root"))(t)
	must(c.RoleAdd(ctx, "reader"))(t)
	must(c.RoleGrantPermission(ctx, "reader", "key-", clientv3.GetPrefixRangeEnd("key-"),
		clientv3.PermissionType(clientv3.PermRead)))(t)
	must(c.RoleGrantPermission(ctx, "reader", "one", "",
		clientv3.PermissionType(clientv3.PermReadWrite)))(t)
	must(c.RoleGrantPermission(ctx, "reader", "z", "\x00",
		clientv3.PermissionType(clientv3.PermWrite)))(t)
	name, password, _ := strings.Cut(root, ":")
	must(c.UserAdd(ctx, name, password))(t)
	must(c.UserAdd(ctx, "bob", "bob's"))(t)
	must(c.UserAddWithOptions(ctx, "cert", "", &clientv3.UserAddOptions{NoPassword: true}))(t)
	must(c.UserGrantRole(ctx, name, "root"))(t)
	must(c.UserGrantRole(ctx, "bob", "reader"))(t)
	must(c.AuthEnable(ctx))(t)
}

// dump is everything that a client can see: all keys at all revisions, the leases with their keys,
// users and roles, and the hashes of the history. With a step of more than one it leaves revisions
// out.
func dump(t testing.TB, s *proc.Server, auth bool, step int64) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := client(t, s, auth)
	var b strings.Builder
	now := must(c.Get(ctx, "a", clientv3.WithFromKey(), clientv3.WithCountOnly()))(t)
	newest := now.Header.Revision
	compact := must(c.HashKV(ctx, s.Addr(), 0))(t).CompactRevision
	fmt.Fprintf(&b, "revision %d, compacted at %d, %d keys\n", newest, compact, now.Count)
	if _, err := c.Get(ctx, "a", clientv3.WithRev(compact-1)); compact > 1 {
		fmt.Fprintf(&b, "below: %v\n", err)
	}
	for rev := max(compact, 1); rev <= newest; rev += step {
		r := must(c.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(rev)))(t)
		fmt.Fprintf(&b, "at %d: %d\n", rev, r.Count)
		for _, kv := range r.Kvs {
			v := string(kv.Value)
			if len(v) > 40 {
				v = fmt.Sprintf("%s... of %d", v[:40], len(v))
			}
			fmt.Fprintf(&b, "  %q = %q created %d modified %d version %d lease %x\n", kv.Key, v,
				kv.CreateRevision, kv.ModRevision, kv.Version, kv.Lease)
		}
		if rev > compact {
			h := must(c.HashKV(ctx, s.Addr(), rev))(t)
			fmt.Fprintf(&b, "  hash %08x compacted at %d\n", h.Hash, h.CompactRevision)
		}
	}
	for _, ev := range must(events(ctx, c, max(compact, 1), newest))(t) {
		fmt.Fprintf(&b, "%s\n", ev)
	}
	var leases []string
	for _, l := range must(c.Leases(ctx))(t).Leases {
		ttl := must(c.TimeToLive(ctx, l.ID, clientv3.WithAttachedKeys()))(t)
		slices.SortFunc(ttl.Keys, bytes.Compare)
		leases = append(leases,
			fmt.Sprintf("lease %x granted %d keys %q\n", l.ID, ttl.GrantedTTL, ttl.Keys))
	}
	slices.Sort(leases)
	b.WriteString(strings.Join(leases, ""))
	if st := must(c.AuthStatus(ctx))(t); st.Enabled || auth {
		fmt.Fprintf(&b, "auth enabled %v revision %d\n", st.Enabled, st.AuthRevision)
		for _, u := range must(c.UserList(ctx))(t).Users {
			fmt.Fprintf(&b, "user %s roles %q\n", u, must(c.UserGet(ctx, u))(t).Roles)
		}
		for _, r := range must(c.RoleList(ctx))(t).Roles {
			fmt.Fprintf(&b, "role %s\n", r)
			for _, p := range must(c.RoleGet(ctx, r))(t).Perm {
				fmt.Fprintf(&b, "  %v %q %q\n", p.PermType, p.Key, p.RangeEnd)
			}
		}
		bob := clientv3.Config{Endpoints: []string{s.Addr()}, Username: "bob", Password: "bob's",
			DialTimeout: patience}
		bc := must(clientv3.New(bob))(t)
		defer bc.Close()
		_, err1 := bc.Get(ctx, "key-", clientv3.WithPrefix())
		_, err2 := bc.Get(ctx, "after-1")
		fmt.Fprintf(&b, "bob reads his keys: %v, another's: %v\n", err1, err2)
	}
	return b.String()
}

// events returns the events of a watcher from one revision to another.
func events(ctx context.Context, c *clientv3.Client, from, to int64) ([]string, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := c.Watch(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(from), clientv3.WithPrevKV())
	var list []string
	defer cancel()
	for r := range w {
		if err := r.Err(); err != nil {
			return nil, err
		}
		for _, ev := range r.Events {
			list = append(list, fmt.Sprintf("%s %q at %d before %d", ev.Type, ev.Kv.Key,
				ev.Kv.ModRevision, ev.PrevKv.GetModRevision()))
		}
		if r.Header.Revision >= to && len(r.Events) > 0 &&
			r.Events[len(r.Events)-1].Kv.ModRevision >= to {
			break
		}
	}
	return list, nil
}

// equal compares dumps and shows the first line that differs.
func equal(t testing.TB, what, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			from := max(i-2, 0)
			t.Fatalf("%s differs in line %d:\n%s\nwant\n%s", what, i,
				strings.Join(g[from:i+1], "\n"), strings.Join(w[from:i+1], "\n"))
		}
	}
	t.Fatalf("%s has %d lines, want %d", what, len(g), len(w))
}

// save takes a snapshot with the stock etcdctl. It waits for the version of the data, which etcd
// sets a moment after it begins to serve.
func save(t testing.TB, s *proc.Server, name string, auth bool) string {
	t.Helper()
	c, ctx := client(t, s, auth), proc.Context(t)
	for {
		st := must(c.Status(ctx, s.Addr()))(t)
		if st.StorageVersion == "3.7.0" {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	path := filepath.Join(proc.Dir(t), name)
	args := []string{"snapshot", "save", path, "--endpoints", s.Addr()}
	if auth {
		args = append(args, "--user", root)
	}
	if out := run(t, proc.Etcdctl, args...); !strings.Contains(out, "Server version 3.7.0") {
		t.Errorf("etcdctl says\n%s", out)
	}
	return path
}

// restore builds a data directory with etcdutl or vigilctl and starts the server that it is for.
func restore(t testing.TB, tool, server proc.Program, source string, args ...string) *proc.Server {
	t.Helper()
	c := proc.Config{Program: server, DataDir: filepath.Join(proc.Dir(t), "data"),
		ClientPort: proc.FreePort(t), PeerPort: proc.FreePort(t)}
	peer := fmt.Sprintf("http://127.0.0.1:%d", c.PeerPort)
	run(t, tool, append([]string{"snapshot", "restore", source, "--data-dir", c.DataDir,
		"--name", "m1",
		"--initial-cluster", "m1=" + peer, "--initial-advertise-peer-urls", peer}, args...)...)
	return proc.Start(t, c)
}
