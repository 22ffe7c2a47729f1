package segfile

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestDiskReaderKeepsToTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &DiskReader{BytesPerSecond: 1 << 20}
		begin := time.Now()
		s.at = begin
		for range 80 {
			s.pay(t.Context(), 128<<10)
		}
		if took := time.Since(begin); took < 9900*time.Millisecond || took > 10100*time.Millisecond {
			t.Errorf("10 MiB at 1 MiB/s took %v", took)
		}
		// Time that passed otherwise is made up for a little and not as a burst.
		time.Sleep(time.Hour)
		begin = time.Now()
		for range 8 {
			s.pay(t.Context(), 128<<10)
		}
		if took := time.Since(begin); took < 850*time.Millisecond {
			t.Errorf("1 MiB at 1 MiB/s took %v", took)
		}
	})
}
