package throttle

import (
	"testing"
	"time"
)

func TestThrottle(t *testing.T) {
	th := New(3)
	at := time.Now()
	var reported []uint64
	for i := range 35 { // three and a half seconds
		if ok, dropped := th.Allow(at.Add(time.Duration(i) * 100 * time.Millisecond)); ok {
			reported = append(reported, dropped)
		}
	}
	want := []uint64{0, 0, 0, 7, 0, 0, 7, 0, 0, 7, 0, 0}
	if len(reported) != len(want) {
		t.Fatalf("%v, want %v", reported, want)
	}
	for i := range want {
		if reported[i] != want[i] {
			t.Fatalf("%v, want %v", reported, want)
		}
	}
	// A clock that was set back does not silence it for long.
	if ok, _ := th.Allow(at.Add(-time.Hour)); !ok {
		t.Error("silent after the clock was set back")
	}
}
