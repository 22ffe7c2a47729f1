// Package password hashes passwords and compares them with their hashes, with bcrypt. That takes tens of milliseconds of
// processor time on purpose; so only a few run concurrently, and other requests keep processors.
package password

import (
	"cmp"
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

	// maxWaiting is how many calls may wait. At ten or more a second for each processor, further calls would wait longer
	// than the timeout of a request.
	maxWaiting = 1 << 10
)

// Pool limits how many passwords are hashed concurrently. It is safe for concurrent use.
type Pool struct {
	cost int
	// dummy is a hash of no password, which takes as long to compare as a hash of this pool.
	dummy   []byte
	running chan struct{}
	waiting chan struct{}
}

// NewPool returns a pool that hashes with a cost, 0 for the default. It hashes concurrently on all processors but one, at
// least on one.
func NewPool(cost int) (*Pool, error) {
	cost = cmp.Or(cost, DefaultCost)
	if cost < MinCost || cost > MaxCost {
		return nil, errors.New("password: cost outside the range of bcrypt")
	}
	// 22 digits of salt and 31 of a hash that no password has, in bcrypt's alphabet.
	dummy := fmt.Appendf(nil, "$2a$%02d$%s", cost, strings.Repeat(".", 53))
	return &Pool{cost: cost, dummy: dummy, running: make(chan struct{}, max(runtime.GOMAXPROCS(0)-1, 1)), waiting: make(chan struct{}, maxWaiting)}, nil
}

// run calls f after the calls before it. Errors: kv.ErrTooManyRequests, those of ctx, and f's.
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

// Compare returns kv.ErrAuthFailed if the hash is not of the password. Without a hash, or with a malformed hash, it takes
// as long as with a valid one, so that the time does not show which users exist.
func (p *Pool) Compare(ctx context.Context, hash []byte, password string) error {
	if _, err := bcrypt.Cost(hash); err != nil {
		hash = p.dummy
	}
	return p.run(ctx, func() error {
		if bcrypt.CompareHashAndPassword(hash, []byte(password)) != nil {
			return kv.ErrAuthFailed
		}
		return nil
	})
}
