package lease

import (
	"errors"
	"testing"
	"time"

	"vigil/client"
)

// TestClock: a lease whose time passed while no goroutine ran counts as lost at the next call.
func TestClock(t *testing.T) {
	for _, ask := range []func(*Lease) error{
		func(l *Lease) error { return l.Err() },
		func(l *Lease) error { return l.Status().Reason },
	} {
		k := &Keeper{}
		k.mu.leases = map[client.LeaseID]*Lease{}
		l := &Lease{k: k, id: 1, ttl: time.Second, confirmed: time.Now().Add(-2 * time.Second),
			at: -1, lost: make(chan struct{})}
		k.mu.leases[1] = l
		if err := ask(l); !errors.Is(err, ErrUnconfirmed) {
			t.Errorf("%v", err)
		}
		select {
		case <-l.Lost():
		default:
			t.Error("the channel is open")
		}
		if s := l.Status(); s.State != Lost || len(k.mu.leases) != 0 {
			t.Errorf("%+v, %d leases kept", s, len(k.mu.leases))
		}
	}
}
