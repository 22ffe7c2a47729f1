package h2

import (
	"fmt"
	"time"
)

// epoch is the zero of link.lastRead and of deadlines. It has a monotonic reading, so setting the
// clock ends no connection.
var epoch = time.Now()

// keepAlive decides when to ping a silent client. It needs a timer and no goroutine. link.mu guards
// it.
type keepAlive struct {
	timer  *time.Timer
	pinged time.Time // zero if no ping is unanswered
}

func (k *keepAlive) stopTimer() {
	if k.timer != nil {
		k.timer.Stop()
	}
}

// check reports whether to ping the client now, and how long to wait before the next check. last is
// when the last byte came. A client is pinged after interval without a byte. After timeout without
// an answer check returns an error, and the connection must be closed.
func (k *keepAlive) check(now, last time.Time, interval, timeout time.Duration) (ping bool,
	wait time.Duration, err error) {
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

// A client may ping too often maxPingStrikes times in a row, without an answer in between. The next
// such ping ends its connection.
const (
	maxPingStrikes = 2
	idlePingTime   = 2 * time.Hour // the shortest interval of pings without requests
)

// pingPolicy counts pings that are too frequent. The reader owns it.
type pingPolicy struct {
	strikes int
	last    time.Time
	any     bool // guard alone bounds pings
}

// tooMany counts a ping and reports whether it is one too many. answered says that the server has
// sent something since the ping before, busy that there are requests.
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
