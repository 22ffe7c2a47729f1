package library

import (
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"vigil/client"
	"vigil/client/lease"
	"vigil/test/link"
	"vigil/test/proc"
)

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestLeases: leases outlive the member that keeps them alive, and when no member can be reached
// they are lost no later than the server can have ended them.
func TestLeases(t *testing.T) {
	on(t, func(t *testing.T, p proc.Program) {
		t.Parallel()
		const n, ttl = 300, 10 * time.Second
		c := start(t, p, 3)
		k := c.open()
		keeper := lease.NewKeeper(k)
		defer keeper.Close()
		list := make([]*lease.Lease, n)
		var wg sync.WaitGroup
		for i := range list {
			wg.Go(func() {
				l, err := keeper.Grant(ctx(t), ttl)
				if err != nil {
					t.Error(err)
					return
				}
				list[i] = l
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		away := c.at(k)
		c.members[away].Kill()
		killed := time.Now()
		// Until every one has been kept alive by another member.
		for _, l := range list {
			for end := time.Now().Add(patience); !l.Status().Confirmed.After(killed); time.Sleep(10 * time.Millisecond) {
				if s := l.Status(); s.State == lease.Lost || time.Now().After(end) {
					t.Fatalf("%+v", s)
				}
			}
		}
		for _, name := range c.names {
			c.net.Set(me, name, link.Rule{Stall: true})
			c.net.Set(name, me, link.Rule{Stall: true})
		}
		for _, l := range list {
			select {
			case <-l.Lost():
			case <-time.After(patience):
				t.Fatalf("%+v", l.Status())
			}
			if err := l.Err(); !errors.Is(err, lease.ErrUnconfirmed) {
				t.Fatal(err)
			}
		}
		c.net.Heal()
		// The keeper goes on for others.
		var l *lease.Lease
		for end := time.Now().Add(patience); ; {
			var err error
			if l, err = keeper.Grant(ctx(t), ttl); err == nil {
				break
			}
			if !errors.Is(err, client.ErrUnreachable) && !errors.Is(err, client.ErrUncertain) ||
				time.Now().After(end) {
				t.Fatal(err)
			}
		}
		if err := l.Revoke(ctx(t)); err != nil {
			t.Error(err)
		}
	})
}
