package pace

import (
	"context"
	"time"
)

// credit bounds how much of an overlong pause a Rate makes up for.
const credit = 100 * time.Millisecond

// Rate lets a number of bytes per second pass. One goroutine owns it.
type Rate struct {
	BytesPerSecond int64 // math.MaxInt64 for no limit

	debt time.Duration
	at   time.Time // when debt was computed
}

// Wait waits until n more bytes are within the rate. Its error is ctx's.
func (r *Rate) Wait(ctx context.Context, n int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	now := time.Now()
	r.debt = max(r.debt-now.Sub(r.at), -credit) +
		time.Duration(float64(n)/float64(r.BytesPerSecond)*float64(time.Second))
	r.at = now
	if r.debt <= 0 {
		return nil
	}
	t := time.NewTimer(r.debt)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
