// Package password hashes passwords and compares them with their hashes, with bcrypt. That takes tens of
// milliseconds of a processor each time, on purpose; so only a few are under way at once, and what serves
// everyone else has processors left.
package password

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"golang.org/x/crypto/bcrypt"

	"vigil/internal/kv"
)

const (
	// MinCost, MaxCost and DefaultCost are those of bcrypt: a step doubles the time.
	MinCost     = bcrypt.MinCost
	MaxCost     = bcrypt.MaxCost
	DefaultCost = bcrypt.DefaultCost

	// maxWaiting is how many calls may wait. At ten or more a second for each processor, those behind
	// would wait for longer than a request lasts.
	maxWaiting = 1 << 10
)

// Pool bounds how many passwords are worked on. It is safe for concurrent use.
type Pool struct {
	cost int
	// nobodys is a hash of no password, which takes as long to compare as one that was made here.
	nobodys []byte
	running chan struct{}
	waiting chan struct{}
}

// NewPool returns a pool that hashes with a cost, 0 for the default. It works on as many passwords at once
// as there are processors but one, at least on one.
func NewPool(cost int) (*Pool, error) {
	if cost == 0 {
		cost = DefaultCost
	}
	if cost < MinCost || cost > MaxCost {
		return nil, errors.New("password: cost outside the range of bcrypt")
	}
	// 22 digits of salt and 31 of a hash that no password has, in bcrypt's alphabet.
	nobodys := fmt.Appendf(nil, "$2a$%02d$%s", cost, strings.Repeat(".", 53))
	return &Pool{cost: cost, nobodys: nobodys, running: make(chan struct{}, max(runtime.GOMAXPROCS(0)-1, 1)), waiting: make(chan struct{}, maxWaiting)}, nil
}

// run calls f when its turn has come. Errors: kv.ErrTooManyRequests, those of ctx, and f's.
func (p *Pool) run(ctx context.Context, f func() error) error {
	select {
	case p.waiting <- struct{}{}:
		defer func() { <-p.waiting }()
	default:
		return kv.ErrTooManyRequests
	}
	select {
	case p.running <- struct{}{}:
		defer func() { <-p.running }()
		return f()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Hash returns the hash of a password in base64. A password of more than 72 bytes is an error.
func (p *Pool) Hash(ctx context.Context, password string) (string, error) {
	var out string
	err := p.run(ctx, func() error {
		h, err := bcrypt.GenerateFromPassword([]byte(password), p.cost)
		out = base64.StdEncoding.EncodeToString(h)
		return err
	})
	if err != nil {
		return "", err
	}
	return out, nil
}

// Compare returns kv.ErrAuthFailed if the hash is not one of the password. Without a hash, or with a malformed
// one, it takes as long as with one that the pool made, so that the time does not tell which users exist.
func (p *Pool) Compare(ctx context.Context, hash []byte, password string) error {
	if _, err := bcrypt.Cost(hash); err != nil {
		hash = p.nobodys
	}
	return p.run(ctx, func() error {
		if bcrypt.CompareHashAndPassword(hash, []byte(password)) != nil {
			return kv.ErrAuthFailed
		}
		return nil
	})
}
