// Package concurrency_test tests the promises of client/concurrency with Vigil and a stock etcd,
// together with the package of the same name in etcd's client.
package concurrency_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	stock "go.etcd.io/etcd/client/v3/concurrency"

	"vigil/client"
	"vigil/client/concurrency"
	"vigil/test/link"
	"vigil/test/proc"
)

// each runs a test against both servers.
func each(t *testing.T, test func(t *testing.T, s *proc.Server)) {
	for _, p := range []proc.Program{proc.Vigil, proc.Etcd} {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			test(t, proc.Start(t, proc.Config{Program: p, Memory: true}))
		})
	}
}

func connect(t *testing.T, addr string) *client.Client {
	t.Helper()
	c, err := client.Connect(proc.Context(t), client.Config{Endpoints: []string{addr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func session(t *testing.T, c *client.Client, ttl time.Duration) *concurrency.Session {
	t.Helper()
	s, err := concurrency.NewSession(proc.Context(t), c, ttl)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Close(ctx)
	})
	return s
}

// TestMutex has holders of both libraries, and several of one session, take turns.
func TestMutex(t *testing.T) {
	each(t, func(t *testing.T, s *proc.Server) {
		ctx := proc.Context(t)
		c := connect(t, s.Addr())
		var inside atomic.Int32
		var last int64 // guarded by the lock
		enter := func(fence int64) {
			if inside.Add(1) != 1 {
				t.Error("two hold the lock")
			}
			if fence <= last {
				t.Errorf("fence %d after %d", fence, last)
			}
			last = fence
			inside.Add(-1)
		}
		var all sync.WaitGroup
		shared := session(t, c, 60*time.Second)
		for i := range 4 {
			mine := shared
			if i > 1 {
				mine = session(t, c, 60*time.Second)
			}
			all.Go(func() {
				m := concurrency.NewMutex(mine, "lock")
				for range 10 {
					if err := m.While(ctx,
						func(_ context.Context,
							h *concurrency.Held) error {
							enter(h.Fence())
							return nil
						}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for range 2 {
			all.Go(func() {
				session, err := stock.NewSession(s.Client())
				if err != nil {
					t.Error(err)
					return
				}
				defer session.Close()
				m := stock.NewMutex(session, "lock")
				for range 10 {
					if err := m.Lock(ctx); err != nil {
						t.Error(err)
						return
					}
					r, err := s.Client().Get(ctx, m.Key())
					if err != nil {
						t.Error(err)
						return
					}
					enter(r.Kvs[0].CreateRevision)
					if err := m.Unlock(ctx); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()

		m := concurrency.NewMutex(shared, "lock")
		h, err := m.Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.TryLock(ctx); !errors.Is(err, concurrency.ErrLocked) {
			t.Errorf("TryLock: %v", err)
		}
		// A client that gives up leaves no key.
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		if _, err := m.Lock(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock: %v", err)
		}
		if n, err := c.Count(ctx, "lock/", client.WithPrefix()); n != 1 || err != nil {
			t.Errorf("%d keys, %v", n, err)
		}
		if err := h.Unlock(ctx); err != nil || h.Err() == nil {
			t.Error(err, h.Err())
		}
		if h, err = m.TryLock(ctx); err != nil {
			t.Fatal(err)
		}
		// Somebody deletes the key.
		if _, err := c.Delete(ctx, h.Key()); err != nil {
			t.Fatal(err)
		}
		<-h.Lost()
		if err := h.Unlock(ctx); !errors.Is(err, concurrency.ErrLost) {
			t.Error(err)
		}
		// History may go while a lock is held.
		err = m.While(ctx, func(during context.Context, h *concurrency.Held) error {
			r, err := c.Put(ctx, "other", nil)
			if err == nil {
				_, err = c.Compact(ctx, r.Header.Revision)
			}
			s.Kill()
			s.Restart()
			if _, err := c.Get(ctx, "other"); err != nil {
				return err
			}
			ok, terr := c.Txn(during).If(h.Guard()).Commit()
			if terr != nil || !ok.Succeeded {
				return errors.Join(errors.New("lost"), terr)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// TestCutOff: a disconnected holder is notified in time that the lock may be lost, and others get
// it.
func TestCutOff(t *testing.T) {
	each(t, func(t *testing.T, s *proc.Server) {
		ctx := proc.Context(t)
		net := link.New(t)
		net.Runs("client", os.Getpid())
		addr := net.Node("member", s.Addr())
		first, second := session(t, connect(t, addr), 5*time.Second),
			session(t, connect(t, s.Addr()), 60*time.Second)
		h, err := concurrency.NewMutex(first, "lock").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		next := make(chan *concurrency.Held, 1)
		go func() {
			h, err := concurrency.NewMutex(second, "lock").Lock(ctx)
			if err != nil {
				t.Error(err)
			}
			next <- h
		}()
		net.Set("client", "member", link.Rule{Stall: true})
		n := <-next
		if n == nil {
			return
		}
		select {
		case <-h.Lost():
		default:
			t.Error("another client holds the lock, and the first was not notified")
		}
		if !errors.Is(h.Err(), concurrency.ErrLost) || n.Fence() <= h.Fence() {
			t.Error(h.Err(), n.Fence(), h.Fence())
		}
		net.Heal()
		if r, err := connect(t,
			s.Addr()).Txn(ctx).If(h.Guard()).Then(client.OpPut("x", nil)).Commit(); err != nil ||
			r.Succeeded {
			t.Errorf("the guard of a lock that was lost: %+v, %v", r, err)
		}
	})
}

func TestRWMutex(t *testing.T) {
	each(t, func(t *testing.T, s *proc.Server) {
		ctx := proc.Context(t)
		mine := session(t, connect(t, s.Addr()), 60*time.Second)
		m := concurrency.NewRWMutex(mine, "rw")
		a, err := m.RLock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		b, err := m.RLock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		order := make(chan string, 2)
		writer, reader := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(writer)
			w, err := m.Lock(ctx)
			order <- "writer"
			if err != nil || w.Unlock(ctx) != nil {
				t.Error(err)
			}
		}()
		// The reader waits after the waiting writer.
		for n := int64(0); n < 3; {
			if n, err = connect(t, s.Addr()).Count(ctx, "rw/", client.WithPrefix()); err != nil {
				t.Fatal(err)
			}
		}
		go func() {
			defer close(reader)
			r, err := m.RLock(ctx)
			order <- "reader"
			if err != nil || r.Unlock(ctx) != nil {
				t.Error(err)
			}
		}()
		if err := errors.Join(a.Unlock(ctx), b.Unlock(ctx)); err != nil {
			t.Error(err)
		}
		<-writer
		<-reader
		if first := <-order; first != "writer" {
			t.Errorf("the %s was first", first)
		}
	})
}

// TestElection has candidates of both libraries, observed by both.
func TestElection(t *testing.T) {
	each(t, func(t *testing.T, s *proc.Server) {
		ctx, cancel := context.WithCancel(proc.Context(t))
		defer cancel()
		c := connect(t, s.Addr())
		e := concurrency.NewElection(c, "office")
		if _, err := e.Leader(ctx); !errors.Is(err, concurrency.ErrNoLeader) {
			t.Error(err)
		}
		seen := make(chan string, 100)
		go func() {
			for l, err := range e.Observe(ctx) {
				if err != nil {
					break
				}
				seen <- string(l.Value)
			}
			close(seen)
		}()
		expect := func(want string) {
			t.Helper()
			for got := range seen {
				if got == want {
					return
				}
			}
			t.Errorf("%q was never observed", want)
		}
		mine := session(t, c, 60*time.Second)
		o, err := e.Campaign(ctx, mine, []byte("one"))
		if err != nil {
			t.Fatal(err)
		}
		expect("one")
		other, err := stock.NewSession(s.Client())
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		theirs := stock.NewElection(other, "office")
		won := make(chan error, 1)
		go func() { won <- theirs.Campaign(ctx, "two") }()
		if err := o.Proclaim(ctx, []byte("one again")); err != nil {
			t.Fatal(err)
		}
		expect("one again")
		if r, err := theirs.Leader(ctx); err != nil || string(r.Kvs[0].Value) != "one again" {
			t.Error(r, err)
		}
		if err := o.Resign(ctx); err != nil {
			t.Fatal(err)
		}
		if err := <-won; err != nil {
			t.Fatal(err)
		}
		expect("two")
		if err := o.Proclaim(ctx, nil); !errors.Is(err, concurrency.ErrLost) {
			t.Error(err)
		}
		if l, err := e.Leader(ctx); err != nil || string(l.Value) != "two" || l.Fence <= o.Fence() {
			t.Error(l, err)
		}
		cancel()
		for range seen { // it ends
		}
	})
}

// TestTransact: increments by many are all there, and no transaction sees half of another.
func TestTransact(t *testing.T) {
	each(t, func(t *testing.T, s *proc.Server) {
		ctx := proc.Context(t)
		c := connect(t, s.Addr())
		number := func(tx *concurrency.Tx, key string) (int, error) {
			v, found, err := tx.Get(key)
			if err != nil || !found {
				return 0, err
			}
			return strconv.Atoi(string(v))
		}
		const workers, times = 4, 15
		var all sync.WaitGroup
		for range workers {
			all.Go(func() {
				for range times {
					_, err := concurrency.Transact(ctx, c, func(tx *concurrency.Tx) error {
						a, aerr := number(tx, "a")
						b, berr := number(tx, "b")
						if err := errors.Join(aerr, berr); err != nil {
							return err
						}
						if a != -b {
							return fmt.Errorf("half of a transaction: %d, %d", a, b)
						}
						tx.Put("a", strconv.AppendInt(nil, int64(a+1), 10))
						tx.Put("b", strconv.AppendInt(nil, int64(b-1), 10))
						if v, found, err := tx.Get("a"); string(v) != strconv.Itoa(a+1) ||
							!found || err != nil {
							return fmt.Errorf("it does not see its own write: %q", v)
						}
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if r, err := c.Get(ctx, "a"); err != nil ||
			string(r.KV().Value) != strconv.Itoa(workers*times) {
			t.Error(r, err)
		}
		if _, err := concurrency.Transact(ctx, c, func(tx *concurrency.Tx) error {
			tx.Delete("a")
			_, found, err := tx.Get("a")
			if found {
				t.Error("what was deleted is found")
			}
			return err
		}); err != nil {
			t.Error(err)
		}
		reason := errors.New("no")
		if _, err := concurrency.Transact(ctx, c,
			func(tx *concurrency.Tx) error { tx.Put("c", nil); return reason }); err != reason {
			t.Error(err)
		}
		if n, err := c.Count(ctx, "", client.WithPrefix()); n != 1 || err != nil {
			t.Error(n, err)
		}
	})
}

func TestBarrier(t *testing.T) {
	each(t, func(t *testing.T, s *proc.Server) {
		ctx := proc.Context(t)
		c := connect(t, s.Addr())
		b := concurrency.NewBarrier(c, "barrier")
		if err := errors.Join(b.Wait(ctx), b.Hold(ctx)); err != nil {
			t.Fatal(err)
		}
		if err := b.Hold(ctx); !errors.Is(err, concurrency.ErrBarrierHeld) {
			t.Error(err)
		}
		short, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
		defer cancel()
		if err := b.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		waited := make(chan error)
		for range 3 {
			go func() { waited <- b.Wait(ctx) }()
		}
		if err := b.Release(ctx); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := <-waited; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestSessionEnds: a session that somebody revokes says so, and its contexts end.
func TestSessionEnds(t *testing.T) {
	each(t, func(t *testing.T, s *proc.Server) {
		ctx := proc.Context(t)
		c := connect(t, s.Addr())
		mine := session(t, c, 6*time.Second)
		during, stop := mine.Context(ctx)
		defer stop()
		h, err := concurrency.NewMutex(mine, "lock").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Revoke(ctx, mine.Lease()); err != nil {
			t.Fatal(err)
		}
		<-during.Done()
		<-h.Lost()
		if !errors.Is(context.Cause(during), concurrency.ErrLost) || mine.Err() == nil {
			t.Error(context.Cause(during), mine.Err())
		}
		if _, err := concurrency.NewMutex(mine, "lock").Lock(ctx); !errors.Is(err,
			concurrency.ErrLost) {
			t.Error(err)
		}
	})
}
