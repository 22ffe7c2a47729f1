package h2

import "time"

// A client may send framesAtOnce frames that have no effect, and framesPerSecond on average. Each frame that the server
// sends for good reason allows two more, since clients acknowledge what they receive.
const (
	framesAtOnce    = 20_000
	framesPerSecond = 2_000
)

// guard counts frames without effect: pings, settings, resets, empty and unknown frames, window updates. It is owned by the
// reader.
type guard struct {
	most, left int
	at         time.Time // of the last refill
}

func newGuard(most int) guard { return guard{most, most, time.Now()} }

// spend counts n frames and reports whether the client may go on. earned returns what the server's frames have allowed since
// it was called last.
func (g *guard) spend(n int, earned func() int) bool {
	if g.left -= n; g.left >= 0 {
		return true
	}
	now := time.Now()
	byTime := int64(now.Sub(g.at)) * framesPerSecond / int64(time.Second)
	g.at = now
	g.left = int(min(int64(g.left)+byTime+int64(earned()), int64(g.most)))
	return g.left >= 0
}
