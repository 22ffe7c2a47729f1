package lease_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"vigil/client"
	"vigil/client/lease"
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

// A key that exists as long as this program runs.
func Example() {
	c, ctx := connected()
	defer c.Close()
	k := lease.NewKeeper(c)
	defer k.Close()

	l, err := k.Grant(ctx, 10*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.Put(ctx, "services/web/1", []byte("10.0.0.1:80"),
		client.WithLease(l.ID())); err != nil {
		log.Fatal(err)
	}
	fmt.Println(l.Status().State)

	// Another client revokes it.
	if _, err := c.Revoke(ctx, l.ID()); err != nil {
		log.Fatal(err)
	}
	<-l.Lost()
	fmt.Println(l.Status().State, "because", l.Err())
	// Output:
	// alive
	// lost because the lease is gone
}

// A lease that another program has created is kept alive, and given back.
func ExampleKeeper() {
	c, ctx := connected()
	defer c.Close()
	g, err := c.Grant(ctx, time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	k := lease.NewKeeper(c)
	defer k.Close()
	l, err := k.Keep(ctx, g.ID)
	if err != nil {
		log.Fatal(err)
	}
	l.Release() // it lives until its time has passed
	t, err := c.TimeToLive(ctx, l.ID(), false)
	fmt.Println(l.TTL(), t.Remaining > 0, err)
	// Output: 1m0s true <nil>
}

// Work that must stop when the lease may be lost.
func ExampleLease() {
	c, ctx := connected()
	defer c.Close()
	k := lease.NewKeeper(c)
	defer k.Close()
	l, err := k.Grant(ctx, time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		select {
		case <-l.Lost():
			fmt.Println("stop:", l.Err())
		default:
			fmt.Println("work while the lease is", l.Status().State)
			if err := l.Revoke(ctx); err != nil {
				log.Fatal(err)
			}
		}
	}
	// Output:
	// work while the lease is alive
	// stop: the lease was released
}
