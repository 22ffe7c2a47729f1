package command

import (
	"math"
	"testing"
	"time"
)

func TestSeconds(t *testing.T) {
	for n, want := range map[int64]time.Duration{0: 0, 10: 10 * time.Second, -1: -time.Second,
		18_446_744_083: 9223372036 * time.Second,
		math.MaxInt64:  9223372036 * time.Second, math.MinInt64: -9223372036 * time.Second} {
		if got := Seconds(n); got != want {
			t.Errorf("%d s are %v, want %v", n, got, want)
		}
	}
}
