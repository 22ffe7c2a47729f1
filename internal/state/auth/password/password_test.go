package password

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/bcrypt"

	"vigil/internal/kv"
)

func TestHashAndCompare(t *testing.T) {
	p, err := NewPool(MinCost)
	if err != nil {
		t.Fatal(err)
	}
	for _, password := range []string{"", "secret", strings.Repeat("x", 70)} {
		text, err := p.Hash(t.Context(), password)
		if err != nil {
			t.Fatal(err)
		}
		hash, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if cost, err := bcrypt.Cost(hash); cost != MinCost {
			t.Errorf("cost %d, %v", cost, err)
		}
		if err := p.Compare(t.Context(), hash, password); err != nil {
			t.Errorf("%q: %v", password, err)
		}
		for _, other := range []string{"Secret", password + "x"} {
			if err := p.Compare(t.Context(), hash, other); !errors.Is(err, kv.ErrAuthFailed) {
				t.Errorf("%q for %q: %v", other, password, err)
			}
		}
	}
	// bcrypt looks at 72 bytes. A longer password cannot be set.
	if _, err := p.Hash(t.Context(), strings.Repeat("x", 73)); !errors.Is(err, bcrypt.ErrPasswordTooLong) {
		t.Errorf("73 bytes: %v", err)
	}
	for _, hash := range [][]byte{nil, {}, []byte("no hash"), []byte("$2a$31$")} {
		if err := p.Compare(t.Context(), hash, ""); !errors.Is(err, kv.ErrAuthFailed) {
			t.Errorf("hash %q: %v", hash, err)
		}
	}
	for _, cost := range []int{-1, 1, 3, 32} {
		if _, err := NewPool(cost); err == nil {
			t.Errorf("cost %d", cost)
		}
	}
}

// Without a hash there is as much to do as with one, and no password fits.
func TestNoHashTakesAsLong(t *testing.T) {
	p, err := NewPool(9)
	if err != nil {
		t.Fatal(err)
	}
	text, err := p.Hash(t.Context(), "secret")
	if err != nil {
		t.Fatal(err)
	}
	hash, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	least := func(hash []byte) time.Duration {
		best := time.Hour
		for _, password := range []string{"wrong", "", "x"} {
			began := time.Now()
			if err := p.Compare(t.Context(), hash, password); !errors.Is(err, kv.ErrAuthFailed) {
				t.Errorf("hash %q: %v", hash, err)
			}
			best = min(best, time.Since(began))
		}
		return best
	}
	known := least(hash)
	for _, hash := range [][]byte{nil, []byte("no hash")} {
		// Without the work of a hash it would be ten thousand times as fast; other programs disturb the figures less.
		if took := least(hash); took < known/10 {
			t.Errorf("hash %q: %v, and with a hash %v", hash, took, known)
		}
	}
}

// As many run as there is room for; the others wait in turn, leave when their time is over, or are refused.
func TestPoolIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := NewPool(MinCost)
		if err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		running := make(chan struct{}, maxWaiting)
		n := cap(p.running)
		results := make(chan error, maxWaiting)
		work := func() error {
			running <- struct{}{}
			<-release
			return nil
		}
		for range maxWaiting {
			go func() { results <- p.run(t.Context(), work) }()
		}
		synctest.Wait()
		if len(running) != n {
			t.Errorf("%d run, want %d", len(running), n)
		}
		if err := p.run(t.Context(), work); !errors.Is(err, kv.ErrTooManyRequests) {
			t.Errorf("one too many: %v", err)
		}
		close(release)
		for range maxWaiting {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		hold := make(chan struct{})
		for range n {
			go p.run(t.Context(), func() error { <-hold; return nil })
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.run(ctx, func() error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("one that left: %v", err)
		}
		close(hold)
	})
}
