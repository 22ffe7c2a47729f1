package history

import (
	"context"
	"fmt"
	"math"
	"time"
)

// pace spreads work over time.
type pace struct {
	stop  context.Context
	rate  int64
	start time.Time
	done  int64
}

// wait returns when n more bytes may be handled. Its error is that of stop.
func (p *pace) wait(n int) error {
	if err := p.stop.Err(); err != nil {
		return fmt.Errorf("history: reclaim: %w", err)
	}
	p.done += int64(n)
	if p.rate == math.MaxInt64 {
		return nil
	}
	due := time.Duration(float64(p.done) / float64(p.rate) * float64(time.Second))
	ahead := due - time.Since(p.start)
	if ahead < time.Millisecond {
		return nil
	}
	t := time.NewTimer(ahead)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-p.stop.Done():
		return fmt.Errorf("history: reclaim: %w", p.stop.Err())
	}
}
