package h2

import (
	"testing"
	"time"
)

// TestKeepAliveCheck: a client is pinged after an interval of silence, and lost after the timeout
// without a byte.
func TestKeepAliveCheck(t *testing.T) {
	const interval, timeout = 10 * time.Second, 3 * time.Second
	start := time.Now()
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	var k keepAlive
	for _, step := range []struct {
		now, last int // seconds
		ping      bool
		wait      time.Duration
		lost      bool
	}{
		{4, 0, false, 6 * time.Second, false},
		{10, 0, true, timeout, false},
		{11, 0, false, 2 * time.Second, false},  // no answer yet
		{12, 11, false, 9 * time.Second, false}, // an answer
		{21, 11, true, timeout, false},
		{24, 11, false, 0, true},
	} {
		ping, wait, err := k.check(at(step.now), at(step.last), interval, timeout)
		if ping != step.ping || wait != step.wait || (err != nil) != step.lost {
			t.Errorf("after %d s, the last byte at %d s: ping %v, wait %v, %v; want %+v", step.now,
				step.last, ping, wait, err, step)
		}
	}
}
