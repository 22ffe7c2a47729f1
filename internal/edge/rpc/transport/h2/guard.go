package h2

import "time"

// A client may send framesAtOnce frames without effect, and framesPerSecond on average. Each frame
// that the server sends for good reason allows two more, because clients acknowledge what they
// receive.
const (
	framesAtOnce    = 20_000
	framesPerSecond = 2_000
)

// guard counts frames without effect: pings, settings, resets, empty and unknown frames, window
// updates. The reader owns it.
type guard struct {
	most, left int
	rate       int       // a second
	at         time.Time // of the last refill
}

func newGuard(most int) guard { return guard{most, most, framesPerSecond, time.Now()} }

// spendFrames counts n frames and reports whether the client may go on. earned returns how many
// frames the server's frames have allowed since its last call.
func (g *guard) spendFrames(n int, earned func() int) bool {
	if g.left -= n; g.left >= 0 {
		return true
	}
	now := time.Now()
	g.left = refillFrames(g.left, g.most, g.rate, now.Sub(g.at), earned())
	g.at = now
	return g.left >= 0
}

// refillFrames returns how many frames a client may send. It had left frames before the silence,
// and the server's frames have allowed earned ones since. A silence of years must not overflow.
func refillFrames(left, most, rate int, silence time.Duration, earned int) int {
	byTime := int64(most) * 2
	if rate == 0 {
		byTime = 0
	} else if silence < time.Duration(byTime)*time.Second/time.Duration(rate) {
		byTime = int64(silence) * int64(rate) / int64(time.Second)
	}
	return int(min(int64(left)+byTime+int64(min(earned, most*2)), int64(most)))
}
