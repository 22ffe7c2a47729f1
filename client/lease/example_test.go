package lease_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"vigil/client"
	"vigil/client/lease"
)

// A key that exists as long as this program runs.
func Example() {
	ctx := context.Background()
	c, err := client.Connect(ctx, client.Config{Endpoints: []string{endpoint}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	k := lease.NewKeeper(c)
	defer k.Close()

	l, err := k.Grant(ctx, 10*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.Put(ctx, "services/web/1", []byte("10.0.0.1:80"), client.WithLease(l.ID())); err != nil {
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
