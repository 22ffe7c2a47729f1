package concurrency_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strconv"
	"time"

	"vigil/client"
	"vigil/client/concurrency"
)

// session returns a client and a session for an example.
func session() (*client.Client, *concurrency.Session, context.Context) {
	ctx := context.Background()
	c, err := client.Connect(ctx, client.Config{Endpoints: []string{endpoint}})
	if err != nil {
		log.Fatal(err)
	}
	s, err := concurrency.NewSession(ctx, c, 10*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	return c, s, ctx
}

func ExampleMutex_While() {
	c, s, ctx := session()
	defer c.Close()
	defer s.Close(ctx)

	err := concurrency.NewMutex(s, "locks/report").While(ctx,
		func(ctx context.Context, h *concurrency.Held) error {
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
	c, s, ctx := session()
	defer c.Close()
	defer s.Close(ctx)

	e := concurrency.NewElection(c, "scheduler")
	err := e.While(ctx, s, []byte("host-1"),
		func(ctx context.Context, _ *concurrency.Leadership) error {
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

// A lock is held until Unlock, or until its session is lost.
func ExampleMutex() {
	c, s, ctx := session()
	defer c.Close()
	defer s.Close(ctx)
	m := concurrency.NewMutex(s, "locks/job")
	held, err := m.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = m.TryLock(ctx)
	fmt.Println("locked:", errors.Is(err, concurrency.ErrLocked))
	fmt.Println(held.Unlock(ctx))
	// Output:
	// locked: true
	// <nil>
}

// Readers hold a lock together, and a writer holds it alone.
func ExampleRWMutex() {
	c, s, ctx := session()
	defer c.Close()
	defer s.Close(ctx)
	m := concurrency.NewRWMutex(s, "locks/file")
	for range 2 {
		if _, err := m.RLock(ctx); err != nil {
			log.Fatal(err)
		}
	}
	soon, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	_, err := m.Lock(soon)
	fmt.Println("a writer waits:", errors.Is(err, context.DeadlineExceeded))
	// Output: a writer waits: true
}

// Sessions of one lease need one keep-alive.
func ExampleSession() {
	c, s, ctx := session()
	defer c.Close()
	defer s.Close(ctx)
	work, cancel := s.Context(ctx) // it ends when the session may be lost
	defer cancel()
	if _, err := c.Put(work, "workers/1", nil, client.WithLease(s.Lease())); err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Status().State, s.Err())
	// Output: alive <nil>
}

// A candidate wins, says where it is, and resigns.
func ExampleElection() {
	c, s, ctx := session()
	defer c.Close()
	defer s.Close(ctx)
	e := concurrency.NewElection(c, "primary")
	l, err := e.Campaign(ctx, s, []byte("host-1:80"))
	if err != nil {
		log.Fatal(err)
	}
	if err := l.Proclaim(ctx, []byte("host-1:81")); err != nil {
		log.Fatal(err)
	}
	for leader, err := range e.Observe(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s, the same: %v\n", leader.Value, leader.Fence == l.Fence())
		break
	}
	fmt.Println(l.Resign(ctx))
	// Output:
	// host-1:81, the same: true
	// <nil>
}

// Programs wait until another one has finished.
func ExampleBarrier() {
	c, s, ctx := session()
	defer c.Close()
	defer s.Close(ctx)
	b := concurrency.NewBarrier(c, "barriers/import")
	if err := b.Hold(ctx, client.WithLease(s.Lease())); err != nil {
		log.Fatal(err)
	}
	go func() {
		if err := b.Release(ctx); err != nil {
			log.Fatal(err)
		}
	}()
	fmt.Println(b.Wait(ctx))
	// Output: <nil>
}
