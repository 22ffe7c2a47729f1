package watch

import "time"

// pacer decides when the matcher pauses, so that events published during the pause share responses.
//
// A response costs the member about the same with one event as with ten: most of the cost is the
// transport's work for a message and for waking a stream. So each queued response counts as a
// little work for other goroutines. If that work takes longer than leastPause, the matcher waits
// until it should be done, before it takes further events. It never delays events after less
// fan-out, or after a quiet time.
type pacer struct {
	cost, limit time.Duration // of a response, of a pause
	until       time.Time     // when the queued responses should be sent
	timer       *time.Timer
}

// leastPause is the resolution of timers.
const leastPause = time.Millisecond

func newPacer(cost, limit time.Duration) *pacer {
	p := &pacer{cost: cost, limit: limit, timer: time.NewTimer(time.Hour)}
	p.timer.Stop()
	return p
}

// add counts queued responses.
func (p *pacer) add(responses int) {
	if responses == 0 || p.limit < leastPause {
		return
	}
	now := time.Now()
	if p.until.Before(now) {
		p.until = now
	}
	p.until = p.until.Add(time.Duration(responses) * p.cost)
	if most := now.Add(p.limit); p.until.After(most) {
		p.until = most
	}
}

// pause waits until p.until, or until there is a token in urgent. It returns false if done is
// closed.
func (p *pacer) pause(urgent, done <-chan struct{}) bool {
	select {
	case <-done:
		return false
	default:
	}
	if p.until.IsZero() {
		return true
	}
	left := time.Until(p.until)
	if left < leastPause {
		return true
	}
	p.timer.Reset(left)
	defer p.timer.Stop()
	select {
	case <-p.timer.C:
	case <-urgent:
	case <-done:
		return false
	}
	return true
}
