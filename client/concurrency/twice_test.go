package concurrency_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"vigil/client"
	"vigil/client/concurrency"
	"vigil/client/lease"
)

// TestUnlockTwice: a second Unlock does not free the key of a later claim, which a third one would
// take for its own.
func TestUnlockTwice(t *testing.T) {
	c, err := client.New(client.Config{Endpoints: []string{endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := concurrency.NewSession(t.Context(), c, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	m := concurrency.NewMutex(s, "twice/unlock")
	first, err := m.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	second, err := m.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var again sync.WaitGroup
	for range 4 {
		again.Go(func() {
			if err := first.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	again.Wait()
	if third, err := m.TryLock(t.Context()); !errors.Is(err, concurrency.ErrLocked) {
		t.Errorf("a second holder: %v, %v", third, err)
	}
	if err := second.Err(); err != nil {
		t.Error(err)
	}
	if err := second.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestSessionsOfOneLease: sessions of one lease exclude each other, also with several keepers
// and clients.
func TestSessionsOfOneLease(t *testing.T) {
	c, err := client.New(client.Config{Endpoints: []string{endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	k, other := lease.NewKeeper(c), lease.NewKeeper(c)
	defer k.Close()
	defer other.Close()
	l, err := k.Grant(t.Context(), 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Revoke(t.Context())
	same, err := other.Keep(t.Context(), l.ID())
	if err != nil {
		t.Fatal(err)
	}
	sessions := []*concurrency.Session{concurrency.SessionOf(c, l), concurrency.SessionOf(c, l),
		concurrency.SessionOf(c, same)}
	for i, s := range sessions {
		name := fmt.Sprintf("twice/lease-%d", i)
		h, err := concurrency.NewMutex(s, name).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for j, s := range sessions {
			if h, err := concurrency.NewMutex(s, name).TryLock(t.Context()); !errors.Is(err,
				concurrency.ErrLocked) {
				t.Errorf("session %d holds it next to session %d: %v, %v", j, i, h, err)
			}
		}
		if err := h.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
