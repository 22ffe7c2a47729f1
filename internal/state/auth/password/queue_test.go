package password

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"vigil/internal/kv"
)

// crowd is a queue with calls of clients.
type crowd struct {
	t    *testing.T
	q    *queue
	turn chan struct{} // a value ends the running call
	// done are the names of the calls that have run, refused of those that were rejected.
	done, refused []string
}

// newCrowd returns a queue for one running call, which is there already, and limit waiting ones.
func newCrowd(t *testing.T, limit int) *crowd {
	c := &crowd{t: t, q: newQueue(1, limit), turn: make(chan struct{})}
	c.call(t.Context(), "first", "", "", "")
	return c
}

// call makes a call and returns when it runs, waits or was rejected.
func (c *crowd) call(ctx context.Context, name, host, connection, user string) {
	c.t.Helper()
	go func() {
		err := c.q.run(kv.WithOrigin(ctx, kv.Origin{Host: host, Connection: connection}), user, func() error {
			<-c.turn
			c.done = append(c.done, name)
			return nil
		})
		switch {
		case errors.Is(err, kv.ErrTooManyRequests):
			c.refused = append(c.refused, name)
		case err != nil && !errors.Is(err, context.Canceled):
			c.t.Errorf("%s: %v", name, err)
		}
	}()
	synctest.Wait()
}

// turns lets n calls end.
func (c *crowd) turns(n int) {
	for range n {
		c.turn <- struct{}{}
		synctest.Wait()
	}
}

// place returns how many calls ran before one with a name, a large number if it did not run.
func (c *crowd) place(name string) int {
	if i := slices.Index(c.done, name); i >= 0 {
		return i
	}
	return 1 << 20
}

// No client delays the calls of others by more than a few turns, however it spreads its own over connections and names.
func TestTurns(t *testing.T) {
	for name, attack := range map[string]func(c *crowd, i int){
		"one connection, one name":        func(c *crowd, i int) { c.call(c.t.Context(), "", "evil", "e", "root") },
		"one connection, many names":      func(c *crowd, i int) { c.call(c.t.Context(), "", "evil", "e", fmt.Sprint(i)) },
		"the same host, one connection":   func(c *crowd, i int) { c.call(c.t.Context(), "", "good", "e", fmt.Sprint(i)) },
		"many connections":                func(c *crowd, i int) { c.call(c.t.Context(), "", "evil", fmt.Sprint(i), "root") },
		"many connections, many names":    func(c *crowd, i int) { c.call(c.t.Context(), "", "evil", fmt.Sprint(i), fmt.Sprint(i)) },
		"many hosts, one other user name": func(c *crowd, i int) { c.call(c.t.Context(), "", fmt.Sprint("evil", i), fmt.Sprint(i), "app") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrowd(t, 100)
				for i := range 250 {
					attack(c, i)
				}
				if len(c.refused) != 150 {
					t.Errorf("%d of 250 were rejected, and 100 may wait", len(c.refused))
				}
				for i := range 3 {
					c.call(t.Context(), fmt.Sprint("good", i), "good", "g", "root")
					attack(c, 1000+i)
				}
				c.turns(101)
				if last := max(c.place("good0"), c.place("good1"), c.place("good2")); last > 12 {
					t.Errorf("the calls of another client ran after %d others: %q, rejected %q", last, c.done, slices.Compact(c.refused))
				}
				if n := len(c.q.mu.lines[byHost]) + len(c.q.mu.lines[byConnection]) + len(c.q.mu.lines[byUser]); n > 0 || c.q.mu.running > 0 {
					t.Errorf("%d lines are left, %d calls run", n, c.q.mu.running)
				}
			})
		})
	}
}

// A client with many calls is not starved by others that come one by one.
func TestManyCallsAreServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 1000)
		for range 20 {
			c.call(t.Context(), "many", "m", "m", "m")
		}
		for i := range 200 {
			one := fmt.Sprint("one", i)
			c.call(t.Context(), one, one, one, one)
			c.turns(1)
		}
		// The others come as fast as calls are served, so more and more clients share the turns.
		if n := len(slices.DeleteFunc(slices.Clone(c.done), func(s string) bool { return s != "many" })); n < 10 {
			t.Errorf("%d of 20 calls were served in 200 turns", n)
		}
		c.turns(len(c.q.mu.waiting) + 1)
	})
}

// Calls leave when their context ends, while they wait and when their turn comes at that moment.
func TestCallsLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 10)
		ctx, cancel := context.WithCancel(t.Context())
		for range 5 {
			c.call(ctx, "left", "h", "c", "u")
		}
		c.call(t.Context(), "stays", "h", "c", "u")
		cancel()
		synctest.Wait()
		if n := len(c.q.mu.waiting); n != 1 {
			t.Errorf("%d calls wait", n)
		}
		c.turns(2)
		if fmt.Sprint(c.done) != "[first stays]" {
			t.Errorf("%q have run", c.done)
		}
		// Its turn has come, and it has not noticed.
		c.call(t.Context(), "second", "", "", "")
		late := c.q.join(kv.Origin{}, "u")
		c.turns(1)
		c.q.quit(late)
		if n := c.q.mu.running; n != 0 {
			t.Errorf("%d calls run", n)
		}
	})
}

// As many run as there is room for.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, hold, running := newQueue(3, 10), make(chan struct{}), 0
		for range 8 {
			go q.run(t.Context(), "", func() error {
				running++
				<-hold
				running--
				return nil
			})
			synctest.Wait()
		}
		for left := 8; left > 0; left-- {
			if want := min(left, 3); running != want {
				t.Errorf("%d of %d run, want %d", running, left, want)
			}
			hold <- struct{}{}
			synctest.Wait()
		}
	})
}
