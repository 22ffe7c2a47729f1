package pace

import (
	"context"
	"math"
	"time"
)

// Rate lets a number of bytes a second pass. It is owned by one goroutine.
type Rate struct {
	rate  int64
	start time.Time
	done  int64
}

// NewRate returns a Rate of that many bytes a second, math.MaxInt64 for no limit.
func NewRate(bytesPerSecond int64) Rate { return Rate{rate: bytesPerSecond, start: time.Now()} }

// Wait returns when n more bytes may be handled. Its error is that of ctx.
func (r *Rate) Wait(ctx context.Context, n int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.done += int64(n)
	if r.rate == math.MaxInt64 {
		return nil
	}
	due := time.Duration(float64(r.done) / float64(r.rate) * float64(time.Second))
	ahead := due - time.Since(r.start)
	if ahead < time.Millisecond {
		return nil
	}
	t := time.NewTimer(ahead)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
