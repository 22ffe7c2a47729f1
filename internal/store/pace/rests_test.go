package pace

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// TestRests: work in the background rests while there are requests, and only then.
func TestRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := uint64(0)
		p := NewRests(func() uint64 { return requests })
		// work works for a time and returns how long it rested.
		work := func(d time.Duration) time.Duration {
			time.Sleep(d)
			began := time.Now()
			p.Pause()
			return time.Since(began)
		}
		procs := time.Duration(runtime.GOMAXPROCS(0))
		if got := work(slice / 2); got != 0 {
			t.Errorf("rested for %v before a slice was over", got)
		}
		if got, want := work(slice/2), min(slice*rest/procs, most); got != want {
			t.Errorf("rested for %v, want %v", got, want)
		}
		if got, want := work(20*time.Millisecond), min(20*time.Millisecond*rest/procs, most); got != want {
			t.Errorf("rested for %v after a long slice, want %v", got, want)
		}
		if got := work(quiet); got != 0 {
			t.Errorf("rested for %v without requests", got)
		}
		requests++
		if got := work(time.Millisecond); got == 0 {
			t.Error("did not rest after a request")
		}
	})
}
