package lease_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"vigil/client"
	"vigil/client/internal/serverprocess"
	"vigil/client/lease"
)

var endpoint string

func TestMain(m *testing.M) { serverprocess.Run(m, &endpoint) }

func keeper(t *testing.T) (*client.Client, *lease.Keeper) {
	t.Helper()
	c, err := client.Connect(t.Context(), client.Config{Endpoints: []string{endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	k := lease.NewKeeper(c)
	t.Cleanup(func() {
		k.Close()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c, k
}

// wait waits for the end of a lease.
func wait(t *testing.T, l *lease.Lease) error {
	t.Helper()
	select {
	case <-l.Lost():
		return l.Err()
	case <-time.After(time.Minute):
		t.Fatalf("the lease is not lost: %+v", l.Status())
		return nil
	}
}

// TestKept keeps many leases for longer than they would live, on one stream.
func TestKept(t *testing.T) {
	c, k := keeper(t)
	const n = 500
	leases := make([]*lease.Lease, n)
	var wg sync.WaitGroup
	for i := range leases {
		wg.Go(func() {
			l, err := k.Grant(t.Context(), 4*time.Second)
			if err != nil {
				t.Error(err)
				return
			}
			leases[i] = l
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	// Until a keep-alive was answered that was sent when the lease would have been gone without
	// others.
	first := leases[0].Status().Confirmed
	for end := time.Now().Add(time.Minute); leases[0].Status().Confirmed.Sub(first) < leases[0].TTL()+time.Second; time.Sleep(10 * time.Millisecond) {
		if s := leases[0].Status(); s.State == lease.Lost || time.Now().After(end) {
			t.Fatalf("%+v", s)
		}
	}
	alive, err := c.Leases(t.Context())
	if err != nil || len(alive) < n {
		t.Errorf("%d leases live, %v", len(alive), err)
	}
	for _, l := range leases {
		if s := l.Status(); s.State == lease.Lost {
			t.Errorf("%+v", s)
		}
		wg.Go(func() {
			if err := l.Revoke(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := wait(t, leases[0]); !errors.Is(err, lease.ErrReleased) {
		t.Error(err)
	}
}

func TestGone(t *testing.T) {
	c, k := keeper(t)
	l, err := k.Grant(t.Context(), 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if same, err := k.Keep(t.Context(), l.ID()); err != nil || same != l {
		t.Errorf("%v, %v", same, err)
	}
	if _, err := c.Revoke(t.Context(), l.ID()); err != nil {
		t.Fatal(err)
	}
	if err := wait(t, l); !errors.Is(err, lease.ErrGone) {
		t.Error(err)
	}
	if _, err := k.Keep(t.Context(), l.ID()); !errors.Is(err, client.ErrLeaseNotFound) {
		t.Error(err)
	}
}

func TestRelease(t *testing.T) {
	c, k := keeper(t)
	l, err := k.Grant(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	l.Release()
	if err := wait(t, l); !errors.Is(err, lease.ErrReleased) {
		t.Error(err)
	}
	if r, err := c.TimeToLive(t.Context(), l.ID(), false); err != nil || r.Remaining <= 0 {
		t.Errorf("%+v, %v", r, err)
	}
	k.Close()
	if _, err := k.Grant(t.Context(), time.Minute); !errors.Is(err, lease.ErrReleased) {
		t.Error(err)
	}
}
