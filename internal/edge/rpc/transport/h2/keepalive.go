package h2

import (
	"fmt"
	"time"
)

// epoch is the time that lastRead counts from. It has a monotonic clock, so that setting the clock ends no connection.
var epoch = time.Now()

// keepAlive decides when a silent client is pinged. It has a timer and no goroutine. It is guarded by link.mu.
type keepAlive struct {
	timer  *time.Timer
	pinged time.Time // zero if no ping is unanswered
}

func (k *keepAlive) stopTimer() {
	if k.timer != nil {
		k.timer.Stop()
	}
}

// check reports whether to ping a client from which the last byte has come at a time, and after how long to check again: after interval
// without a byte the client is pinged, and the connection is closed, with an error, after timeout without an answer.
func (k *keepAlive) check(now, last time.Time, interval, timeout time.Duration) (ping bool, wait time.Duration, err error) {
	switch silent := now.Sub(last); {
	case !k.pinged.IsZero() && last.Before(k.pinged):
		waited := now.Sub(k.pinged)
		if waited >= timeout {
			return false, 0, fmt.Errorf("no answer to a ping within %v", timeout)
		}
		return false, min(interval, timeout-waited), nil
	case silent >= interval:
		k.pinged = now
		return true, min(interval, timeout), nil
	default:
		k.pinged = time.Time{}
		return false, interval - silent, nil
	}
}

// A client that has pinged too often maxPingStrikes times in a row, without an answer in between, is closed at the next time.
const (
	maxPingStrikes = 2
	idlePingTime   = 2 * time.Hour // the shortest interval of pings without requests
)

// pingPolicy counts pings that are too frequent. It is owned by the reader.
type pingPolicy struct {
	strikes int
	last    time.Time
	any     bool // only guard bounds them
}

// tooMany counts a ping and reports whether it is one too many. answered says that something was sent since the last one,
// busy that there are requests.
func (p *pingPolicy) tooMany(now time.Time, answered, busy bool, least time.Duration) bool {
	since := now.Sub(p.last)
	p.last = now
	if !busy {
		least = idlePingTime
	}
	switch {
	case answered || p.any:
		p.strikes = 0
	case since < least:
		p.strikes++
	}
	return p.strikes > maxPingStrikes
}
