package times_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"vigil/client"
	"vigil/client/times"
)

// The store as it was five minutes ago. Here it is too young for that.
func ExampleRevisionAt() {
	ctx := context.Background()
	c, err := client.Connect(ctx, client.Config{Endpoints: []string{endpoint}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	rev, err := times.RevisionAt(ctx, c, time.Now().Add(-5*time.Minute))
	switch {
	case errors.Is(err, times.ErrUnknown), errors.Is(err, client.ErrCompacted):
		fmt.Println("no revision is known")
	case err != nil:
		log.Fatal(err)
	default:
		if _, err := c.Get(ctx, "config", client.WithRevision(rev)); err != nil {
			log.Fatal(err)
		}
	}
	// Output: no revision is known
}

// When a key was written.
func ExampleOf() {
	ctx := context.Background()
	c, err := client.Connect(ctx, client.Config{Endpoints: []string{endpoint}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	r, err := c.Put(ctx, "config", nil)
	if err != nil {
		log.Fatal(err)
	}
	spans, err := times.Of(ctx, c, r.Header.Revision)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("in the future:", spans[0].After.After(time.Now()))
	// Output: in the future: false
}
