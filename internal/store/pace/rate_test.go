package pace

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestRate: work keeps to the rate, and a pause is not made up for.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Rate{BytesPerSecond: 1 << 20}
		begin := time.Now()
		r.at = begin
		for range 80 {
			if err := r.Wait(t.Context(), 128<<10); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); took < 9900*time.Millisecond || took > 10100*time.Millisecond {
			t.Errorf("10 MiB at 1 MiB/s took %v", took)
		}
		// Time that passed otherwise is made up for a little and not as a burst.
		time.Sleep(time.Hour)
		begin = time.Now()
		for range 8 {
			if err := r.Wait(t.Context(), 128<<10); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); took < 850*time.Millisecond {
			t.Errorf("1 MiB at 1 MiB/s took %v", took)
		}
	})
}
