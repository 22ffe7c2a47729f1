package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"time"

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
	if _, err := c.Put(ctx, "colour", []byte("green")); err != nil {
		log.Fatal(err)
	}
	r, err := c.Get(ctx, "colour")
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

// A listing of any size is read in pieces, all of one revision; a watch from the next revision on continues it.
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
		fmt.Println(len(b.Events), "events, the transaction's revision:", b.Revision == r.Header.Revision)
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
	read := client.Permission{Type: client.PermissionRead, Key: "auth/", End: client.PrefixEnd("auth/")}
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
