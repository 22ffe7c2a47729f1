package request

import "time"

// SecondsOf returns a duration in seconds, rounded up.
func SecondsOf(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}

// Seconds returns the duration of n seconds, as the API has them. A number that a Duration does not
// hold becomes the longest one that it holds.
func Seconds(n int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Second)
	return time.Duration(max(-most, min(n, most))) * time.Second
}
