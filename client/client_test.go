package client_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"vigil/client"
)

func TestKV(t *testing.T) {
	c, ctx := connect(t), t.Context()
	p, err := c.Put(ctx, "a", []byte("1"))
	if err != nil {
		t.Fatal(err)
	}
	if p.PrevKV != nil || p.Header.Revision == 0 || p.Header.ClusterID == 0 {
		t.Errorf("%+v", p)
	}
	if p, err = c.Put(ctx, "a", []byte("2"), client.WithPrevKV()); err != nil || p.PrevKV == nil ||
		p.PrevKV.Key != "a" || string(p.PrevKV.Value) != "1" {
		t.Errorf("%+v, %v", p, err)
	}
	first := p.Header.Revision - 1
	g, err := c.Get(ctx, "a")
	if err != nil || g.KV() == nil {
		t.Fatal(g, err)
	}
	if kv := g.KV(); kv.Key != "a" || string(kv.Value) != "2" || kv.Version != 2 ||
		kv.CreateRevision != first || kv.ModRevision != first+1 {
		t.Errorf("%+v", kv)
	}
	if g, err = c.Get(ctx, "a", client.WithRevision(first),
		client.WithSerializable()); err != nil || string(g.KV().Value) != "1" {
		t.Errorf("%+v, %v", g, err)
	}
	if g, err = c.Get(ctx, "none"); err != nil || g.KV() != nil {
		t.Errorf("%+v, %v", g, err)
	}
	for i := range 20 {
		if _, err := c.Put(ctx, fmt.Sprintf("dir/%02d", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := c.Count(ctx, "dir/", client.WithPrefix()); n != 20 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := c.Count(ctx, "", client.WithPrefix()); n != 21 || err != nil {
		t.Errorf("all of the namespace: %d, %v", n, err)
	}
	if n, err := c.Count(ctx, "dir/05", client.WithFromKey()); n != 15 || err != nil {
		t.Errorf("from a key: %d, %v", n, err)
	}
	g, err = c.Get(ctx, "dir/", client.WithPrefix(),
		client.WithSort(client.SortByKey, client.SortDescend), client.WithLimit(2),
		client.WithKeysOnly())
	if err != nil || len(g.KVs) != 2 || !g.More || g.Count != 20 || g.KVs[0].Key != "dir/19" {
		t.Errorf("%+v, %v", g, err)
	}
	d, err := c.Delete(ctx, "dir/", client.WithRange("dir"), client.WithPrevKV())
	if err != nil || d.Deleted != 0 {
		t.Errorf("an inverted range: %+v, %v", d, err)
	}
	d, err = c.Delete(ctx, "dir/", client.WithPrefix(), client.WithPrevKV())
	if err != nil || d.Deleted != 20 || len(d.PrevKVs) != 20 || d.PrevKVs[3].Key != "dir/03" {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := c.Put(ctx, "", nil); !errors.Is(err, client.ErrEmptyKey) {
		t.Error(err)
	}
	if _, err := c.Get(ctx, "a", client.WithRevision(1<<40)); !errors.Is(err,
		client.ErrFutureRevision) {
		t.Error(err)
	}
}

// An empty key is rejected in each operation and each call, with a namespace too, where the server
// would get the namespace as the key.
func TestEmptyKeys(t *testing.T) {
	c, ctx := connect(t), t.Context()
	for name, c := range map[string]*client.Client{"in a namespace": c,
		"in a namespace of that": c.In("ns/")} {
		for what, op := range map[string]client.Op{
			"get": client.OpGet(""), "put": client.OpPut("", []byte("v")),
			"delete": client.OpDelete(""),
			"nested put": client.OpTxn(nil,
				[]client.Op{client.OpTxn(nil, nil, []client.Op{client.OpPut("", nil)})}, nil),
			"nested compare": client.OpTxn([]client.Cmp{client.Exists("")}, nil, nil),
		} {
			if _, err := c.Txn(ctx).Then(client.OpGet("a"), op).Commit(); !errors.Is(err,
				client.ErrEmptyKey) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
			if _, err := c.Txn(ctx).Else(op).Commit(); !errors.Is(err, client.ErrEmptyKey) {
				t.Errorf("%s, %s otherwise: %v", name, what, err)
			}
		}
		if _, err := c.Txn(ctx).If(client.Missing("")).Then(client.OpGet("a")).Commit(); !errors.Is(err, client.ErrEmptyKey) {
			t.Errorf("%s, compare: %v", name, err)
		}
		for what, call := range map[string]func() error{
			"get":    func() error { _, err := c.Get(ctx, ""); return err },
			"put":    func() error { _, err := c.Put(ctx, "", nil); return err },
			"delete": func() error { _, err := c.Delete(ctx, ""); return err },
			"list": func() (err error) {
				for _, err = range c.List(ctx, "").All() {
				}
				return err
			},
		} {
			if err := call(); !errors.Is(err, client.ErrEmptyKey) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
		// All keys are a range.
		if _, err := c.Txn(ctx).If(client.Version("",
			client.WithPrefix()).Greater(-1)).Then(client.OpGet("", client.WithPrefix()),
			client.OpDelete("", client.WithFromKey())).Commit(); err != nil {
			t.Errorf("%s, all keys: %v", name, err)
		}
	}
}

func TestTxn(t *testing.T) {
	c, ctx := connect(t), t.Context()
	create := func() *client.Txn {
		return c.Txn(ctx).If(client.Missing("k")).
			Then(client.OpPut("k", []byte("v")),
				client.OpTxn(nil, []client.Op{client.OpGet("k")}, nil)).
			Else(client.OpGet("k"), client.OpDelete("k", client.WithPrevKV()))
	}
	r, err := create().Commit()
	if err != nil || !r.Succeeded || len(r.Responses) != 2 || r.Responses[0].Put == nil {
		t.Fatalf("%+v, %v", r, err)
	}
	if in := r.Responses[1].Txn; in == nil || in.Responses[0].Get.KV().Key != "k" {
		t.Errorf("%+v", in)
	}
	r, err = create().Commit()
	if err != nil || r.Succeeded || string(r.Responses[0].Get.KV().Value) != "v" ||
		r.Responses[1].Delete.PrevKVs[0].Key != "k" {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err := c.Txn(ctx).Then(client.OpPut("x", nil),
		client.OpPut("x", nil)).Commit(); !errors.Is(err, client.ErrDuplicateKey) {
		t.Error(err)
	}
	r, err = c.Txn(ctx).If(client.Value("x").NotEqual([]byte("y")),
		client.Version("x").Less(3)).Commit()
	if err != nil || r.Succeeded {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestList(t *testing.T) {
	c, ctx := connect(t), t.Context()
	const n = 2500
	var want []string
	for i := 0; i < n; i += 100 {
		tx := c.Txn(ctx)
		for j := i; j < i+100; j++ {
			k := fmt.Sprintf("%05d", j)
			want = append(want, k)
			tx.Then(client.OpPut(k, []byte(k)))
		}
		if _, err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	l := c.List(ctx, "", client.WithPrefix())
	var got []string
	for kv, err := range l.All() {
		if err != nil {
			t.Fatal(err)
		}
		if len(got) == 10 {
			// It stays on its revision.
			if _, err := c.Put(ctx, "00011a", nil); err != nil {
				t.Fatal(err)
			}
		}
		got = append(got, kv.Key)
	}
	if !slices.Equal(got, want) || l.Count() != n {
		t.Errorf("%d keys, count %d", len(got), l.Count())
	}
	if g, err := c.Get(ctx, "00011a"); err != nil || g.KV().ModRevision != l.Revision()+1 {
		t.Errorf("%+v, %v, listed at %d", g, err, l.Revision())
	}
	for _, limit := range []int64{1, 1000, 1001, 2000, 9999} {
		k := 0
		for _, err := range c.List(ctx, "", client.WithPrefix(), client.WithLimit(limit)).All() {
			if err != nil {
				t.Fatal(err)
			}
			k++
		}
		if k != int(min(limit, n+1)) {
			t.Errorf("limit %d: %d keys", limit, k)
		}
	}
}

func TestWatch(t *testing.T) {
	c, ctx := connect(t), t.Context()
	w := c.Watch(ctx, "", client.WithPrefix(), client.WithPrevKV())
	defer w.Close()
	if _, err := w.Created(ctx); err != nil {
		t.Fatal(err)
	}
	for _, v := range []string{"1", "2"} {
		if _, err := c.Put(ctx, "k", []byte(v)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Delete(ctx, "k"); err != nil {
		t.Fatal(err)
	}
	var got []string
	for ev, err := range w.Events() {
		if err != nil {
			t.Fatal(err)
		}
		s := ev.Type.String() + " " + ev.KV.Key + "=" + string(ev.KV.Value)
		if ev.PrevKV != nil {
			s += " was " + string(ev.PrevKV.Value)
		}
		if got = append(got, s); len(got) == 3 {
			break
		}
	}
	if s := strings.Join(got, "; "); s != "PUT k=1; PUT k=2 was 1; DELETE k= was 2" {
		t.Error(s)
	}
	w.RequestProgress()
	for b, err := range w.Batches() {
		if err != nil || len(b.Events) > 0 {
			t.Fatalf("%+v, %v", b, err)
		}
		break
	}
	w.Close()
	for range w.Events() {
		t.Error("an event after the end")
	}
	if w.Err() != nil {
		t.Error(w.Err())
	}
}

func TestLeaseCalls(t *testing.T) {
	c, ctx := connect(t), t.Context()
	g, err := c.Grant(ctx, 59500*time.Millisecond)
	if err != nil || g.TTL != time.Minute {
		t.Fatal(g, err)
	}
	if _, err := c.Put(ctx, "k", nil, client.WithLease(g.ID)); err != nil {
		t.Fatal(err)
	}
	if ttl, err := c.KeepAliveOnce(ctx, g.ID); err != nil || ttl != time.Minute {
		t.Error(ttl, err)
	}
	if r, err := c.TimeToLive(ctx, g.ID, true); err != nil || len(r.Keys) != 1 || r.Keys[0] != "k" {
		t.Errorf("%+v, %v", r, err)
	}
	if ids, err := c.Leases(ctx); err != nil || !slices.Contains(ids, g.ID) {
		t.Error(ids, err)
	}
	if _, err := c.Revoke(ctx, g.ID); err != nil {
		t.Error(err)
	}
	if _, err := c.Revoke(ctx, g.ID); !errors.Is(err, client.ErrLeaseNotFound) {
		t.Error(err)
	}
	if _, err := c.KeepAliveOnce(ctx, g.ID); !errors.Is(err, client.ErrLeaseNotFound) {
		t.Error(err)
	}
	if g, err := c.Get(ctx, "k"); err != nil || g.KV() != nil {
		t.Error(g, err)
	}
}

func TestAdmin(t *testing.T) {
	c, ctx := connect(t), t.Context()
	at, err := c.At(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := at.Maintenance().Status(ctx); err != nil || s.Version == "" {
		t.Error(s, err)
	}
	if m, err := c.Cluster().MemberList(ctx); err != nil || len(m.Members) != 1 {
		t.Error(m, err)
	}
	if _, err := c.Maintenance().HashKV(ctx, 0); err != nil {
		t.Error(err)
	}
	if _, err := c.Cluster().MemberRemove(ctx, 1); !errors.Is(err, client.ErrMemberNotFound) {
		t.Error(err)
	}
	s, err := c.Maintenance().Snapshot(ctx)
	if err != nil {
		t.Logf("no snapshot: %v", err)
		return
	}
	defer s.Close()
	if n, err := io.Copy(io.Discard, s); err != nil || n != s.Size {
		t.Error(n, s.Size, err)
	}
}
