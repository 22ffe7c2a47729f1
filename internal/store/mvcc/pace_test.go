package mvcc

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// TestPace: work in the background rests while there are requests, and only then.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Store{}
		p := s.newPace()
		// work works for a time and returns how long it rested.
		work := func(d time.Duration) time.Duration {
			time.Sleep(d)
			began := time.Now()
			p.pause()
			return time.Since(began)
		}
		procs := time.Duration(runtime.GOMAXPROCS(0))
		if got := work(paceSlice / 2); got != 0 {
			t.Errorf("rested for %v before a slice was over", got)
		}
		if got, want := work(paceSlice/2), min(paceSlice*paceRest/procs, paceMost); got != want {
			t.Errorf("rested for %v, want %v", got, want)
		}
		if got, want := work(20*time.Millisecond), min(20*time.Millisecond*paceRest/procs, paceMost); got != want {
			t.Errorf("rested for %v after a long slice, want %v", got, want)
		}
		if got := work(paceQuiet); got != 0 {
			t.Errorf("rested for %v without requests", got)
		}
		s.counts.ranges.Add(1)
		if got := work(time.Millisecond); got == 0 {
			t.Error("did not rest after a request")
		}
	})
}
