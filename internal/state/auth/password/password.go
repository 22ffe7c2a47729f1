// Package password hashes passwords and compares them with their hashes, with bcrypt. Each call
// takes tens of milliseconds of processor time on purpose, so only a few run concurrently and leave
// processors to other requests. Further calls wait and take turns among hosts, connections and user
// names: no client can lock out the logins of others.
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
	// MinCost, MaxCost and DefaultCost are bcrypt's: a step doubles the time.
	MinCost     = bcrypt.MinCost
	MaxCost     = bcrypt.MaxCost
	DefaultCost = bcrypt.DefaultCost

	// maxWaiting is how many calls may wait. At ten or more a second for each processor, further
	// calls would wait longer than the timeout of a request.
	maxWaiting = 1 << 10
)

// Pool limits how many passwords are hashed concurrently. It is safe for concurrent use.
type Pool struct {
	cost int
	// dummy is a hash of no password, which takes as long to compare as a hash of this pool.
	dummy []byte
	queue *queue
}

// NewPool returns a pool that hashes with a cost, 0 for the default. It hashes concurrently on all
// processors but one, at least on one.
func NewPool(cost int) (*Pool, error) {
	cost = cmp.Or(cost, DefaultCost)
	if cost < MinCost || cost > MaxCost {
		return nil, errors.New("password: cost outside the range of bcrypt")
	}
	// 22 digits of salt and 31 of a hash that no password has, in bcrypt's alphabet.
	dummy := fmt.Appendf(nil, "$2a$%02d$%s", cost, strings.Repeat(".", 53))
	return &Pool{cost: cost, dummy: dummy,
		queue: newQueue(max(runtime.GOMAXPROCS(0)-1, 1), maxWaiting)}, nil
}

// Hash returns the hash of a password in base64, for a user who sets it. A password of more than 72
// bytes is an error. The context carries the origin of the call (kv.OriginOf). Errors:
// kv.ErrTooManyRequests, and from bcrypt and ctx.
func (p *Pool) Hash(ctx context.Context, user, password string) (string, error) {
	var out string
	err := p.queue.run(ctx, user, func() error {
		h, err := bcrypt.GenerateFromPassword([]byte(password), p.cost)
		out = base64.StdEncoding.EncodeToString(h)
		return err
	})
	if err != nil {
		return "", err
	}
	return out, nil
}

// Compare returns kv.ErrAuthFailed if hash, the hash of the named user, does not match the
// password. The context carries the origin of the call. Further errors: kv.ErrTooManyRequests, and
// from ctx. Without a hash, or with a malformed hash, it takes as long as with a valid one, so that
// the time does not show which users exist.
func (p *Pool) Compare(ctx context.Context, user string, hash []byte, password string) error {
	if _, err := bcrypt.Cost(hash); err != nil {
		hash = p.dummy
	}
	return p.queue.run(ctx, user, func() error {
		if bcrypt.CompareHashAndPassword(hash, []byte(password)) != nil {
			return kv.ErrAuthFailed
		}
		return nil
	})
}
