package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"vigil/client"
)

// connected returns a client for an example.
func connected() (*client.Client, context.Context) {
	ctx := context.Background()
	c, err := client.Connect(ctx, client.Config{Endpoints: []string{endpoint}})
	if err != nil {
		log.Fatal(err)
	}
	return c, ctx
}

func ExampleConnect() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.Connect(ctx, client.Config{
		Endpoints:   []string{endpoint}, // more than one, to survive the loss of one
		DialTimeout: 10 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Put(ctx, "color", []byte("green")); err != nil {
		log.Fatal(err)
	}
	r, err := c.Get(ctx, "color")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", r.KV().Value)
	// Output: green
}

// A write without an answer may have been applied. A condition makes a retry safe.
func ExampleClient_Put() {
	c, ctx := connected()
	defer c.Close()
	_, err := c.Put(ctx, "put/k", []byte("v"))
	switch {
	case err == nil:
		fmt.Println("written")
	case errors.Is(err, client.ErrUncertain):
		fmt.Println("read the key to find out")
	default:
		fmt.Println("not written:", err)
	}
	// Output: written
}

func ExampleClient_Get() {
	c, ctx := connected()
	defer c.Close()
	for _, k := range []string{"get/a", "get/b", "get/c"} {
		if _, err := c.Put(ctx, k, []byte("x")); err != nil {
			log.Fatal(err)
		}
	}
	r, err := c.Get(ctx, "get/", client.WithPrefix(), client.WithLimit(2))
	if err != nil {
		log.Fatal(err)
	}
	for _, kv := range r.KVs {
		fmt.Println(kv.Key)
	}
	fmt.Println(r.Count, "in all, more:", r.More)
	// Output:
	// get/a
	// get/b
	// 3 in all, more: true
}

// A transaction compares and sets: it writes only keys that were not written since they were read.
func ExampleClient_Txn() {
	c, ctx := connected()
	defer c.Close()
	p, err := c.Put(ctx, "counter", []byte("1"))
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		r, err := c.Txn(ctx).
			If(client.ModRevision("counter").Equal(p.Header.Revision)).
			Then(client.OpPut("counter", []byte("2"))).
			Else(client.OpGet("counter")).
			Commit()
		if err != nil {
			log.Fatal(err)
		}
		if r.Succeeded {
			fmt.Println("set")
		} else {
			fmt.Printf("another client set it to %s\n", r.Responses[0].Get.KV().Value)
		}
	}
	// Output:
	// set
	// another client set it to 2
}

// A listing of any size is read in pieces, all of one revision; a watch from the next revision on
// continues it.
func ExampleClient_List() {
	c, ctx := connected()
	defer c.Close()
	for i := range 3 {
		if _, err := c.Put(ctx, fmt.Sprintf("list/%d", i), nil); err != nil {
			log.Fatal(err)
		}
	}
	l := c.List(ctx, "list/", client.WithPrefix())
	for kv, err := range l.All() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(kv.Key)
	}
	w := c.Watch(ctx, "list/", client.WithPrefix(), client.FromRevision(l.Revision()+1))
	defer w.Close()
	if _, err := c.Delete(ctx, "list/1"); err != nil {
		log.Fatal(err)
	}
	for ev, err := range w.Events() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(ev.Type, ev.KV.Key)
		break
	}
	// Output:
	// list/0
	// list/1
	// list/2
	// DELETE list/1
}

func ExampleClient_Watch() {
	c, ctx := connected()
	defer c.Close()
	w := c.Watch(ctx, "watch/", client.WithPrefix(), client.WithPrevKV())
	defer w.Close()
	if _, err := w.Created(ctx); err != nil { // what is written from here on is seen
		log.Fatal(err)
	}
	for _, v := range []string{"red", "green"} {
		if _, err := c.Put(ctx, "watch/light", []byte(v)); err != nil {
			log.Fatal(err)
		}
	}
	for ev, err := range w.Events() {
		if gone, ok := errors.AsType[*client.CompactedError](err); ok {
			log.Printf("read everything again and watch from %d on", gone.Revision)
			return
		}
		if err != nil {
			log.Fatal(err)
		}
		if ev.PrevKV != nil {
			fmt.Printf("%s: %s, was %s\n", ev.KV.Key, ev.KV.Value, ev.PrevKV.Value)
			break
		}
		fmt.Printf("%s: %s\n", ev.KV.Key, ev.KV.Value)
	}
	// Output:
	// watch/light: red
	// watch/light: green, was red
}

// Batches keep the events of a revision together and report how far the watch is.
func ExampleWatcher_Batches() {
	c, ctx := connected()
	defer c.Close()
	w := c.Watch(ctx, "batch/", client.WithPrefix())
	defer w.Close()
	if _, err := w.Created(ctx); err != nil {
		log.Fatal(err)
	}
	r, err := c.Txn(ctx).Then(client.OpPut("batch/a", nil), client.OpPut("batch/b", nil)).Commit()
	if err != nil {
		log.Fatal(err)
	}
	for b, err := range w.Batches() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(len(b.Events), "events, the transaction's revision:",
			b.Revision == r.Header.Revision)
		break
	}
	// Output: 2 events, the transaction's revision: true
}

// A client for a part of the keys: its users need not know the prefix.
func ExampleClient_In() {
	c, ctx := connected()
	defer c.Close()
	team := c.In("teams/blue/")
	if _, err := team.Put(ctx, "member", []byte("ann")); err != nil {
		log.Fatal(err)
	}
	r, err := c.Get(ctx, "teams/blue/member")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s = %s\n", r.KV().Key, r.KV().Value)
	// Output: teams/blue/member = ann
}

// Calls about one member are made at that member.
func ExampleClient_At() {
	c, ctx := connected()
	defer c.Close()
	for _, e := range c.Endpoints() {
		m, err := c.At(e)
		if err != nil {
			log.Fatal(err)
		}
		s, err := m.Maintenance().Status(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("leads:", s.Leader == s.Header.MemberID)
	}
	// Output: leads: true
}

// Hooks make metrics and traces possible.
func ExampleHooks() {
	ctx := context.Background()
	c, err := client.Connect(ctx, client.Config{Endpoints: []string{endpoint}, Hooks: client.Hooks{
		EndCall: func(_ context.Context, call client.Call) {
			fmt.Println(call.Method, call.Attempts, call.Err)
		},
	}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Count(ctx, "", client.WithPrefix()); err != nil {
		log.Fatal(err)
	}
	// Output: /etcdserverpb.KV/Range 1 <nil>
}

// The calls about members change the cluster.
func ExampleCluster() {
	c, ctx := connected()
	defer c.Close()
	r, err := c.Cluster().MemberList(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range r.Members {
		fmt.Println("learner:", m.IsLearner)
	}
	_, err = c.Cluster().MemberRemove(ctx, 1)
	fmt.Println("no such member:", errors.Is(err, client.ErrMemberNotFound))
	// Output:
	// learner: false
	// no such member: true
}

// The calls for operators describe members and change their state.
func ExampleMaintenance() {
	c, ctx := connected()
	defer c.Close()
	alarms, err := c.Maintenance().Alarms(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, a := range alarms {
		if a.Type == client.AlarmNoSpace {
			fmt.Printf("member %x has no space\n", a.Member)
		}
	}
	s, err := c.Maintenance().Status(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("problems:", s.Errors, "downgrade:", s.DowngradeTarget != "")
	// Output: problems: [] downgrade: false
}

// A snapshot is an io.Reader that checks the checksum at its end.
func ExampleSnapshot() {
	c, ctx := connected()
	defer c.Close()
	s, err := c.Maintenance().Snapshot(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	n, err := io.Copy(io.Discard, s) // into a file
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("complete:", n == s.Size)
	// Output: complete: true
}

// A role has permissions, and a user has roles.
func ExampleAuth() {
	c, ctx := connected()
	defer c.Close()
	a := c.Auth()
	read := client.Permission{Type: client.PermissionRead, Key: "auth/",
		End: client.PrefixEnd("auth/")}
	for _, step := range []func() (client.Header, error){
		func() (client.Header, error) { return a.RoleAdd(ctx, "reader") },
		func() (client.Header, error) { return a.RoleGrantPermission(ctx, "reader", read) },
		func() (client.Header, error) { return a.UserAdd(ctx, "ann", "secret") },
		func() (client.Header, error) { return a.UserGrantRole(ctx, "ann", "reader") },
	} {
		if _, err := step(); err != nil {
			log.Fatal(err)
		}
	}
	u, err := a.UserGet(ctx, "ann")
	if err != nil {
		log.Fatal(err)
	}
	r, err := a.RoleGet(ctx, u.Roles[0])
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range r.Permissions {
		fmt.Printf("%s may %v %q to %q\n", u.Name, p.Type, p.Key, p.End)
	}
	// Output: ann may READ "auth/" to "auth0"
}

// Several members, TLS with files that may be renewed, and a password.
func ExampleConfig() {
	cfg := client.Config{
		Endpoints: []string{"https://a.example:2379", "https://b.example:2379",
			"https://c.example:2379"},
		TLSFiles: client.TLSFiles{CA: "ca.pem", Cert: "client.pem"},
		Username: "ann",
		Password: "secret",
	}
	fmt.Println(cfg.Validate())
	// Output: invalid argument: TLSFiles: Cert is "client.pem" and Key is "": set both or none
}

// A token comes from elsewhere, such as an identity provider. It is renewed before it expires.
func ExampleToken() {
	cfg := client.Config{
		Endpoints: []string{endpoint},
		Token: func(context.Context) (client.Token, error) {
			return client.Token{Value: "a signed token", Expires: time.Now().Add(time.Hour)}, nil
		},
	}
	fmt.Println(cfg.Validate())
	// Output: <nil>
}

// errors.Is finds what an error means, and the Error has the call and its key.
func ExampleError() {
	c, ctx := connected()
	defer c.Close()
	_, err := c.Put(ctx, "error/k", nil, client.WithLease(7))
	e, ok := errors.AsType[*client.Error](err)
	if !ok {
		log.Fatal(err)
	}
	fmt.Println(errors.Is(err, client.ErrLeaseNotFound), e.Op, e.Key, e.Uncertain,
		client.Temporary(err))
	// Output: true put error/k false false
}

// A watch of revisions that are compacted ends, and its error says from where it is possible.
func ExampleCompactedError() {
	c, ctx := connected()
	defer c.Close()
	var last int64
	for range 3 {
		r, err := c.Put(ctx, "compacted/k", nil)
		if err != nil {
			log.Fatal(err)
		}
		last = r.Header.Revision
	}
	if _, err := c.Compact(ctx, last); err != nil {
		log.Fatal(err)
	}
	for _, err := range c.Watch(ctx, "compacted/k", client.FromRevision(1)).Events() {
		gone, ok := errors.AsType[*client.CompactedError](err)
		fmt.Println(ok && gone.Revision == last)
	}
	// Output: true
}

// No member can be reached: the error has the reason of each endpoint.
func ExampleUnreachableError() {
	c, err := client.New(client.Config{Endpoints: []string{"127.0.0.1:1"},
		DialTimeout: 100 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	_, err = c.Get(context.Background(), "k")
	none, ok := errors.AsType[*client.UnreachableError](err)
	fmt.Println(ok && errors.Is(err, client.ErrUnreachable), none.Endpoints)
	// Output: true [127.0.0.1:1]
}

// Several keys are deleted at once, and returned.
func ExampleClient_Delete() {
	c, ctx := connected()
	defer c.Close()
	if _, err := c.Txn(ctx).Then(client.OpPut("delete/a", []byte("1")),
		client.OpPut("delete/b", []byte("2"))).Commit(); err != nil {
		log.Fatal(err)
	}
	r, err := c.Delete(ctx, "delete/", client.WithPrefix(), client.WithPrevKV())
	if err != nil {
		log.Fatal(err)
	}
	for _, kv := range r.PrevKVs {
		fmt.Printf("%s was %s\n", kv.Key, kv.Value)
	}
	// Output:
	// delete/a was 1
	// delete/b was 2
}

// The newest two keys, without their values.
func ExampleSortTarget() {
	c, ctx := connected()
	defer c.Close()
	for _, k := range []string{"sort/b", "sort/a", "sort/c"} {
		if _, err := c.Put(ctx, k, nil); err != nil {
			log.Fatal(err)
		}
	}
	r, err := c.Get(ctx, "sort/", client.WithPrefix(), client.WithKeysOnly(), client.WithLimit(2),
		client.WithSort(client.SortByModRevision, client.SortDescend))
	if err != nil {
		log.Fatal(err)
	}
	for _, kv := range r.KVs {
		fmt.Println(kv.Key)
	}
	// Output:
	// sort/c
	// sort/a
}

// Conditions compare numbers and values of keys. All of them must hold.
func ExampleCmp() {
	c, ctx := connected()
	defer c.Close()
	if _, err := c.Put(ctx, "cmp/k", []byte("v")); err != nil {
		log.Fatal(err)
	}
	for _, conditions := range [][]client.Cmp{
		{client.Exists("cmp/k"), client.Value("cmp/k").Equal([]byte("v")),
			client.Version("cmp/k").Less(2)},
		{client.Missing("cmp/k")},
	} {
		r, err := c.Txn(ctx).If(conditions...).Commit()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r.Succeeded)
	}
	// Output:
	// true
	// false
}

// A transaction in a transaction.
func ExampleOp() {
	c, ctx := connected()
	defer c.Close()
	unlessThere := client.OpTxn([]client.Cmp{client.Missing("op/k")},
		[]client.Op{client.OpPut("op/k", nil)}, nil)
	r, err := c.Txn(ctx).Then(unlessThere, client.OpGet("op/other")).Commit()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Responses[0].Txn.Succeeded, r.Responses[1].Get.Count)
	// Output: true 0
}

// An event says whether its key is new.
func ExampleEvent() {
	c, ctx := connected()
	defer c.Close()
	w := c.Watch(ctx, "event/k")
	defer w.Close()
	if _, err := w.Created(ctx); err != nil {
		log.Fatal(err)
	}
	for _, v := range []string{"1", "2"} {
		if _, err := c.Put(ctx, "event/k", []byte(v)); err != nil {
			log.Fatal(err)
		}
	}
	n := 0
	for ev, err := range w.Events() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(ev.Type, "new:", ev.IsCreate(), "changed:", ev.IsModify())
		if n++; n == 2 {
			break
		}
	}
	// Output:
	// PUT new: true changed: false
	// PUT new: false changed: true
}

// A lease deletes its keys when it ends. Package lease keeps it alive.
func ExampleClient_Grant() {
	c, ctx := connected()
	defer c.Close()
	l, err := c.Grant(ctx, time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.Put(ctx, "grant/k", nil, client.WithLease(l.ID)); err != nil {
		log.Fatal(err)
	}
	t, err := c.TimeToLive(ctx, l.ID, true)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(t.Granted, t.Keys)
	if _, err := c.Revoke(ctx, l.ID); err != nil {
		log.Fatal(err)
	}
	n, err := c.Count(ctx, "grant/k")
	fmt.Println(n, err)
	// Output:
	// 1m0s [grant/k]
	// 0 <nil>
}

// A watch that must not fall behind ends when its buffer is full, with the revision to continue
// from.
func ExampleLagError() {
	c, ctx := connected()
	defer c.Close()
	w := c.Watch(ctx, "lag/k", client.WithBuffer(1), client.WithLagError())
	defer w.Close()
	if _, err := w.Created(ctx); err != nil {
		log.Fatal(err)
	}
	for w.Err() == nil {
		if _, err := c.Put(ctx, "lag/k", nil); err != nil {
			log.Fatal(err)
		}
	}
	var last int64
	for ev, err := range w.Events() {
		if lag, ok := errors.AsType[*client.LagError](err); ok {
			fmt.Println("continues after the last event:", lag.Revision == last+1)
			break
		}
		last = ev.KV.ModRevision
	}
	// Output: continues after the last event: true
}

// One stream keeps many leases alive. Package lease does this and follows the answers.
func ExampleKeepAlives() {
	c, ctx := connected()
	defer c.Close()
	l, err := c.Grant(ctx, time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream
	k, err := c.OpenKeepAlives(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := k.Send(l.ID); err != nil {
		log.Fatal(err)
	}
	a, err := k.Recv()
	fmt.Println(a.ID == l.ID, a.TTL, err)
	// Output: true 1m0s <nil>
}

// A watcher reports where it would resume, and what keeps it from receiving.
func ExampleWatchStatus() {
	c, ctx := connected()
	defer c.Close()
	w := c.Watch(ctx, "status/k")
	defer w.Close()
	h, err := w.Created(ctx)
	if err != nil {
		log.Fatal(err)
	}
	s := w.Status()
	fmt.Println(s.Next == h.Revision+1, s.Queued, s.SetAside, s.Trouble)
	// Output: true 0 false <nil>
}

// A call that the library does not have, with messages of protocol buffers.
func ExampleClient_Conn() {
	c, ctx := connected()
	defer c.Close()
	r, err := healthpb.NewHealthClient(c.Conn()).Check(ctx, &healthpb.HealthCheckRequest{})
	fmt.Println(r.GetStatus(), err)
	// Output: SERVING <nil>
}
