package cli

import (
	"context"
	"errors"
	"time"

	"vigil/client"
)

// Attempts limits the attempts of a conditional write that meets concurrent writes or has an
// unknown outcome.
const Attempts = 20

// WaitToRetry waits before attempt n of a conditional write, counted from 0, is repeated because
// its outcome is unknown. It waits 25 ms at first and at most one second, about 15 seconds for all
// attempts. It returns false if there should be no further attempt.
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
