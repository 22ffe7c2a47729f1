package h2

import (
	"fmt"
	"time"
)

// epoch is the time that lastRead counts from. It has a monotonic clock, so that setting the clock ends no connection.
var epoch = time.Now()

// keepAlive pings a silent client. It has a timer and no goroutine.
type keepAlive struct {
	timer  *time.Timer
	pinged time.Time // zero if no ping is unanswered
}

func (k *keepAlive) stop() {
	if k.timer != nil {
		k.timer.Stop()
	}
}

// startKeepAlive begins to watch for silence. c.mu is held.
func (c *Conn) startKeepAlive() {
	if c.mu.lost {
		return // a timer would keep the memory of the connection
	}
	c.mu.keep.timer = time.AfterFunc(c.o.PingInterval, c.checkSilence)
}

// checkSilence pings the client after PingInterval without a byte, and closes the connection PingTimeout later.
func (c *Conn) checkSilence() {
	c.mu.Lock()
	if c.mu.lost {
		c.mu.Unlock()
		return
	}
	now := time.Now()
	k := &c.mu.keep
	last := epoch.Add(time.Duration(c.lastRead.Load()))
	silent := now.Sub(last)
	switch {
	case !k.pinged.IsZero() && last.Before(k.pinged):
		if now.Sub(k.pinged) >= c.o.PingTimeout {
			c.mu.Unlock()
			c.close(fmt.Errorf("no answer to a ping within %v", c.o.PingTimeout))
			return
		}
		k.timer.Reset(min(c.o.PingInterval, c.o.PingTimeout-now.Sub(k.pinged)))
	case silent >= c.o.PingInterval:
		k.pinged = now
		c.mu.control = appendPing(c.mu.control, false, [8]byte{})
		c.handOver()
		k.timer.Reset(min(c.o.PingInterval, c.o.PingTimeout))
	default:
		k.pinged = time.Time{}
		k.timer.Reset(c.o.PingInterval - silent)
	}
	c.mu.Unlock()
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

// AllowPings lets the client ping as often as it likes, which is bounded like other frames without effect: the policy is one of gRPC,
// and browsers and proxies do not know it. The reader of the connection calls it.
func (s *Stream) AllowPings() { s.c.pings.any = true }

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
