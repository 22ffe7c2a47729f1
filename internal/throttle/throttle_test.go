package throttle

import (
	"testing"
	"time"
)

func TestThrottle(t *testing.T) {
	th := New(3)
	at := time.Now()
	var told []uint64
	for i := range 35 { // three and a half seconds
		if ok, dropped := th.Allow(at.Add(time.Duration(i) * 100 * time.Millisecond)); ok {
			told = append(told, dropped)
		}
	}
	want := []uint64{0, 0, 0, 7, 0, 0, 7, 0, 0, 7, 0, 0}
	if len(told) != len(want) {
		t.Fatalf("%v, want %v", told, want)
	}
	for i := range want {
		if told[i] != want[i] {
			t.Fatalf("%v, want %v", told, want)
		}
	}
	// A clock that was set back does not silence it for long.
	if ok, _ := th.Allow(at.Add(-time.Hour)); !ok {
		t.Error("silent after the clock was set back")
	}
}
