package cli

import (
	"context"
	"errors"
	"time"

	"vigil/client"
)

// Attempts is how often a conditional write is tried if there are concurrent writes, or its outcome
// is unknown.
const Attempts = 20

// WaitToRetry reports whether to repeat attempt n of a conditional write, counted from 0, because
// its outcome is unknown. It waits before that: 25 ms at first, at most a second, about 15 seconds
// for all attempts.
func WaitToRetry(ctx context.Context, n int, err error) bool {
	if !errors.Is(err, client.ErrUncertain) || !client.Temporary(err) || n >= Attempts-1 {
		return false
	}
	select {
	case <-time.After(min(time.Second, 25*time.Millisecond<<min(n, 6))):
		return true
	case <-ctx.Done():
		return false
	}
}
