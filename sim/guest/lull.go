//go:build wasip1

package main

import (
	"time"

	"vigil/sim/scenario/setup"
)

// longPause is the pause between two actions of a client in a lull.
const longPause = 12 * time.Second

// lull returns how long the present lull lasts, 0 if there is none.
func lull(c *setup.Client) time.Duration { return time.Duration(c.LullLeft(int64(now()))) }

// rest waits in a lull, until its end or for a long pause.
func rest(c *setup.Client) {
	if left := lull(c); left > 0 {
		time.Sleep(min(left, longPause))
	}
}

// goesOn reports whether work goes on, which ends at a time. In a lull it waits before.
func goesOn(c *setup.Client, end int64) bool {
	if int64(now()) < end {
		rest(c)
	}
	return int64(now()) < end
}
