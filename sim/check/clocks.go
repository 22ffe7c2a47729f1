package check

import "time"

// Clocks knows how fast the clocks of the members ran: the fastest of them, by time. Without a pace
// all run like those of the clients.
type Clocks []Pace

// Pace is the rate of the fastest clock from a time on, in millionths above that of the clients.
type Pace struct {
	At  time.Duration
	PPM int64
}

// count returns the most that a member can have counted from one time to another.
func (c Clocks) count(from, to time.Duration) time.Duration {
	total := to - from
	for n, p := range c {
		end := to
		if n+1 < len(c) {
			end = min(c[n+1].At, to)
		}
		if d := end - max(p.At, from); d > 0 {
			total += time.Duration(int64(d) / 1e6 * p.PPM)
		}
	}
	return total
}
