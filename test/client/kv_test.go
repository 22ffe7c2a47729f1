package client

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/proc"
)

func TestKV(t *testing.T) {
	t.Parallel()
	c := proc.Start(t, proc.Config{Memory: true}).Client()
	ctx := proc.Context(t)

	first, err := c.Put(ctx, "k/a", "1")
	if err != nil {
		t.Fatal(err)
	}
	second, err := c.Put(ctx, "k/a", "2", clientv3.WithPrevKV())
	if err != nil {
		t.Fatal(err)
	}
	if second.Header.Revision != first.Header.Revision+1 || string(second.PrevKv.Value) != "1" {
		t.Fatalf("second put: %v", second)
	}
	for i := range 10 {
		if _, err := c.Put(ctx, fmt.Sprintf("k/%02d", i), fmt.Sprint(9-i)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := c.Get(ctx, "k/a", clientv3.WithRev(first.Header.Revision))
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "1" {
		t.Fatalf("get of the past: %v %v", got, err)
	}

	// A list by pages, all at the revision of the first page, while keys come and go.
	var keys []string
	opts := []clientv3.OpOption{clientv3.WithLimit(3),
		clientv3.WithRange(clientv3.GetPrefixRangeEnd("k/"))}
	for from, rev := "k/", int64(0); ; {
		page, err := c.Get(ctx, from, append(opts, clientv3.WithRev(rev))...)
		if err != nil {
			t.Fatal(err)
		}
		if rev == 0 {
			rev = page.Header.Revision
		}
		for _, kv := range page.Kvs {
			keys = append(keys, string(kv.Key))
		}
		if !page.More {
			break
		}
		from = keys[len(keys)-1] + "\x00"
		if _, err := c.Delete(ctx, "k/", clientv3.WithPrefix()); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Put(ctx, "k/other", ""); err != nil {
			t.Fatal(err)
		}
	}
	if len(keys) != 11 || keys[0] != "k/00" || keys[10] != "k/a" {
		t.Fatalf("paged list: %q", keys)
	}

	all, err := c.Delete(ctx, "", clientv3.WithFromKey(), clientv3.WithPrevKV())
	if err != nil || all.Deleted != 1 || len(all.PrevKvs) != 1 {
		t.Fatalf("delete of all: %v %v", all, err)
	}
	for name, do := range map[string]func() error{
		"empty key": func() error { _, err := c.Put(ctx, "", ""); return err },
		"future": func() error {
			_,
				err := c.Get(ctx, "a", clientv3.WithRev(1<<40))
			return err
		},
		"lease": func() error {
			_,
				err := c.Put(ctx, "a", "", clientv3.WithLease(99))
			return err
		},
		"ignored value": func() error {
			_,
				err := c.Put(ctx, "none", "", clientv3.WithIgnoreValue())
			return err
		},
		"compaction": func() error { _, err := c.Compact(ctx, 1<<40); return err },
	} {
		want := map[string]error{
			"empty key": rpctypes.ErrEmptyKey, "future": rpctypes.ErrFutureRev,
			"lease":         rpctypes.ErrLeaseNotFound,
			"ignored value": rpctypes.ErrKeyNotFound, "compaction": rpctypes.ErrFutureRev,
		}[name]
		if err := do(); !errors.Is(err, want) {
			t.Errorf("%s: have %v, want %v", name, err, want)
		}
	}
}

// TestTxnCounter lets clients count together by compare and swap: no increment is lost, and each
// successful one is a revision of its own.
func TestTxnCounter(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Memory: true})
	c := s.Client()
	ctx := proc.Context(t)
	const clients, each = 8, 25
	start, err := c.Put(ctx, "counter", "0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range clients {
		own := s.Client()
		all.Go(func() {
			for done := 0; done < each; {
				got, err := own.Get(ctx, "counter")
				if err != nil {
					t.Error(err)
					return
				}
				kv := got.Kvs[0]
				var n int
				if _, err := fmt.Sscan(string(kv.Value), &n); err != nil {
					t.Error(err)
					return
				}
				txn, err := own.Txn(ctx).
					If(clientv3.Compare(clientv3.ModRevision("counter"), "=", kv.ModRevision)).
					Then(clientv3.OpPut("counter", fmt.Sprint(n+1))).
					Else(clientv3.OpGet("counter")).
					Commit()
				if err != nil {
					t.Error(err)
					return
				}
				if txn.Succeeded {
					done++
				}
			}
		})
	}
	all.Wait()
	got, err := c.Get(ctx, "counter")
	if err != nil {
		t.Fatal(err)
	}
	kv := got.Kvs[0]
	if string(kv.Value) != fmt.Sprint(clients*each) || kv.Version != clients*each+1 ||
		kv.ModRevision != start.Header.Revision+clients*each {
		t.Fatalf("the counter is %v, it began at revision %d", kv, start.Header.Revision)
	}
}

// TestNestedTxn is the shape that lock and election recipes use.
func TestNestedTxn(t *testing.T) {
	t.Parallel()
	c := proc.Start(t, proc.Config{Memory: true}).Client()
	ctx := proc.Context(t)
	if _, err := c.Put(ctx, "a", "1"); err != nil {
		t.Fatal(err)
	}
	inner := clientv3.OpTxn(
		[]clientv3.Cmp{clientv3.Compare(clientv3.Value("a"), "=", "1")},
		[]clientv3.Op{clientv3.OpPut("b", "inner")},
		nil)
	txn, err := c.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision("a").WithPrefix(), ">", 0)).
		Then(clientv3.OpPut("a", "2"), inner, clientv3.OpGet("", clientv3.WithFromKey())).
		Commit()
	if err != nil {
		t.Fatal(err)
	}
	kvs := txn.Responses[2].GetResponseRange().Kvs
	if !txn.Succeeded || !txn.Responses[1].GetResponseTxn().Succeeded || len(kvs) != 2 ||
		string(kvs[0].Value) != "2" || string(kvs[1].Value) != "inner" ||
		kvs[0].ModRevision != kvs[1].ModRevision {
		t.Fatalf("%v", txn)
	}
}

// TestDeleteAndIgnore deletes from a key on and puts a later key that is to keep its lease or
// value, in one transaction: no member may crash.
func TestDeleteAndIgnore(t *testing.T) {
	t.Parallel()
	c := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true}).Client()
	ctx := proc.Context(t)
	for value, put := range map[string]clientv3.Op{
		"after": clientv3.OpPut("f", "after", clientv3.WithIgnoreLease()),
		"":      clientv3.OpPut("f", "", clientv3.WithIgnoreValue()),
	} {
		if _, err := c.Put(ctx, "f", "before"); err != nil {
			t.Fatal(err)
		}
		r, err := c.Txn(ctx).Then(clientv3.OpDelete("c", clientv3.WithFromKey()), put,
			clientv3.OpGet("f")).Commit()
		if err != nil {
			t.Fatal(err)
		}
		kvs := r.Responses[2].GetResponseRange().Kvs
		if len(kvs) != 1 || string(kvs[0].Value) != value || kvs[0].Version != 1 ||
			kvs[0].Lease != 0 {
			t.Errorf("the key is %v", kvs)
		}
	}
}
