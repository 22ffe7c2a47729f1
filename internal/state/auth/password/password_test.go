package password

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
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
		text, err := p.Hash(t.Context(), "u", password)
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
		if err := p.Compare(t.Context(), "u", hash, password); err != nil {
			t.Errorf("%q: %v", password, err)
		}
		for _, other := range []string{"Secret", password + "x"} {
			if err := p.Compare(t.Context(), "u", hash, other); !errors.Is(err, kv.ErrAuthFailed) {
				t.Errorf("%q for %q: %v", other, password, err)
			}
		}
	}
	// bcrypt looks at 72 bytes. A longer password cannot be set.
	if _, err := p.Hash(t.Context(), "u", strings.Repeat("x", 73)); !errors.Is(err, bcrypt.ErrPasswordTooLong) {
		t.Errorf("73 bytes: %v", err)
	}
	for _, hash := range [][]byte{nil, {}, []byte("no hash"), []byte("$2a$31$")} {
		if err := p.Compare(t.Context(), "u", hash, ""); !errors.Is(err, kv.ErrAuthFailed) {
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
//
//vigil:norace
func TestNoHashTakesAsLong(t *testing.T) {
	p, err := NewPool(9)
	if err != nil {
		t.Fatal(err)
	}
	text, err := p.Hash(t.Context(), "u", "secret")
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
			if err := p.Compare(t.Context(), "u", hash, password); !errors.Is(err, kv.ErrAuthFailed) {
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
