package concurrency

import (
	"context"
	"errors"
	"fmt"

	"vigil/client"
)

// ErrBarrierHeld means that the barrier is held already.
var ErrBarrierHeld = errors.New("the barrier is held already")

// Barrier blocks the callers of Wait until it is released.
type Barrier struct {
	c   *client.Client
	key string
}

// NewBarrier returns the barrier with a key, which exists while it is held.
func NewBarrier(c *client.Client, key string) *Barrier { return &Barrier{c, key} }

// Hold creates the key. With [client.WithLease] the barrier is released when the lease ends.
func (b *Barrier) Hold(ctx context.Context, opts ...client.PutOption) error {
	r, err := b.c.Txn(ctx).If(client.Missing(b.key)).Then(client.OpPut(b.key, nil,
		opts...)).Commit()
	if err == nil && !r.Succeeded {
		err = fmt.Errorf("%w: %q", ErrBarrierHeld, b.key)
	}
	return err
}

// Release deletes the key, whichever client created it.
func (b *Barrier) Release(ctx context.Context) error {
	_, err := b.c.Delete(ctx, b.key)
	return err
}

// Wait waits until the barrier is not held.
func (b *Barrier) Wait(ctx context.Context) error {
	for {
		r, err := b.c.Get(ctx, b.key, client.WithKeysOnly())
		if err != nil || r.KV() == nil {
			return causeOf(ctx, err)
		}
		if err := waitDeleted(ctx, b.c, b.key, r.Header.Revision+1); err != nil {
			return err
		}
	}
}
