package concurrency_test

import (
	"context"
	"fmt"
	"log"
	"strconv"
	"time"

	"vigil/client"
	"vigil/client/concurrency"
)

func ExampleMutex_While() {
	ctx := context.Background()
	c, err := client.Connect(ctx, client.Config{Endpoints: []string{endpoint}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	s, err := concurrency.NewSession(ctx, c, 10*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)

	err = concurrency.NewMutex(s, "locks/report").While(ctx, func(ctx context.Context, h *concurrency.Held) error {
		// Written only if the lock is still held when it is written.
		r, err := c.Txn(ctx).If(h.Guard()).Then(client.OpPut("report", []byte("done"))).Commit()
		fmt.Println("written:", err == nil && r.Succeeded)
		return err
	})
	fmt.Println(err)
	// Output:
	// written: true
	// <nil>
}

func ExampleElection_While() {
	ctx := context.Background()
	c, err := client.Connect(ctx, client.Config{Endpoints: []string{endpoint}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	s, err := concurrency.NewSession(ctx, c, 10*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)

	e := concurrency.NewElection(c, "scheduler")
	err = e.While(ctx, s, []byte("host-1"), func(ctx context.Context, _ *concurrency.Leadership) error {
		l, err := e.Leader(ctx)
		fmt.Printf("%s is elected\n", l.Value)
		return err
	})
	fmt.Println(err)
	// Output:
	// host-1 is elected
	// <nil>
}

func ExampleTransact() {
	ctx := context.Background()
	c, err := client.Connect(ctx, client.Config{Endpoints: []string{endpoint}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	for key, v := range map[string]string{"account/a": "100", "account/b": "0"} {
		if _, err := c.Put(ctx, key, []byte(v)); err != nil {
			log.Fatal(err)
		}
	}
	move := func(from, to string, n int) error {
		_, err := concurrency.Transact(ctx, c, func(tx *concurrency.Tx) error {
			for key, change := range map[string]int{from: -n, to: n} {
				v, _, err := tx.Get(key)
				if err != nil {
					return err
				}
				has, err := strconv.Atoi(string(v))
				if err != nil {
					return err
				}
				if has+change < 0 {
					return fmt.Errorf("%s has only %d", key, has)
				}
				tx.Put(key, strconv.AppendInt(nil, int64(has+change), 10))
			}
			return nil
		})
		return err
	}
	fmt.Println(move("account/a", "account/b", 70))
	fmt.Println(move("account/a", "account/b", 70))
	// Output:
	// <nil>
	// account/a has only 30
}
