package operate

import (
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"vigil/test/proc"
)

// TestStockProxies: clients reach a member through etcd's own proxies, the one for gRPC and the one
// for TCP, and find what the API promises: reads and writes, watches with former values, leases,
// transactions, locks.
func TestStockProxies(t *testing.T) {
	if proc.Subject() != proc.Vigil {
		t.Skip("etcd tests its own proxies")
	}
	for name, arguments := range map[string][]string{
		"grpc-proxy": {"grpc-proxy", "start", "--endpoints=%s", "--listen-addr=%s"},
		"gateway":    {"gateway", "start", "--endpoints=%s", "--listen-addr=%s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := proc.Start(t, proc.Config{Memory: true})
			at := fmt.Sprintf("127.0.0.1:%d", proc.FreePort(t))
			args := append([]string{proc.Path(t, proc.Etcd)}, arguments...)
			for i, target := range []string{s.Addr(), at} {
				args[3+i] = fmt.Sprintf(args[3+i], target)
			}
			proxy, err := proc.Launch(args, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(proxy.Kill)
			c, err := clientv3.New(clientv3.Config{Endpoints: []string{at}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			ctx := proc.Context(t)

			if _, err := c.Put(ctx, "k/1", "one"); err != nil {
				t.Fatal(err)
			}
			watch := c.Watch(ctx, "k/", clientv3.WithPrefix(), clientv3.WithPrevKV(),
				clientv3.WithCreatedNotify())
			if r := <-watch; !r.Created {
				t.Fatalf("the watch begins with %+v", r)
			}
			lease, err := c.Grant(ctx, 60)
			if err != nil {
				t.Fatal(err)
			}
			if r, err := c.KeepAliveOnce(ctx, lease.ID); err != nil || r.TTL != 60 {
				t.Errorf("keep-alive: %+v, %v", r, err)
			}
			r, err := c.Txn(ctx).If(clientv3.Compare(clientv3.Value("k/1"), "=", "one")).
				Then(clientv3.OpPut("k/1", "two", clientv3.WithLease(lease.ID)),
					clientv3.OpPut("k/2", "x")).Commit()
			if err != nil || !r.Succeeded {
				t.Fatalf("transaction: %+v, %v", r, err)
			}
			var seen []string
			for len(seen) < 2 {
				for _, ev := range (<-watch).Events {
					former := ""
					if ev.PrevKv != nil {
						former = string(ev.PrevKv.Value)
					}
					seen = append(seen, fmt.Sprintf("%s=%s after %q at %d", ev.Kv.Key, ev.Kv.Value,
						former, ev.Kv.ModRevision-r.Header.Revision))
				}
			}
			if got, want := strings.Join(seen, "; "),
				`k/1=two after "one" at 0; k/2=x after "" at 0`; got != want {
				t.Errorf("events %s, want %s", got, want)
			}
			if _, err := c.Revoke(ctx, lease.ID); err != nil {
				t.Error(err)
			}
			if list, err := c.Get(ctx, "k/", clientv3.WithPrefix()); err != nil ||
				len(list.Kvs) != 1 || string(list.Kvs[0].Key) != "k/2" {
				t.Errorf("after the revocation: %v, %v", list, err)
			}
			session, err := concurrency.NewSession(c)
			if err != nil {
				t.Fatal(err)
			}
			m := concurrency.NewMutex(session, "lock")
			if err := m.Lock(ctx); err != nil {
				t.Error(err)
			}
			if err := m.Unlock(ctx); err != nil {
				t.Error(err)
			}
			_ = session.Close()
		})
	}
}
