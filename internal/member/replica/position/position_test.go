package position

import (
	"testing"
	"testing/synctest"
	"time"

	"vigil/internal/kv"
)

// Those that wait for one position time out by their own age and not by that of the first.
func TestReadersOfOnePositionHaveTheirOwnAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout, tick = 7 * time.Second, 100 * time.Millisecond
		var r Applied
		failed := func(w *Wait) bool {
			select {
			case <-w.done:
				return true
			default:
				return false
			}
		}
		type waiting struct {
			*Wait
			came time.Time
		}
		var all []waiting
		places := map[*Wait]bool{}
		for range 200 { // 20 s
			for range 5 {
				w := r.Join(9)
				all, places[w] = append(all, waiting{w, time.Now()}), true
			}
			r.Join(8 + uint64(len(all)%3)) // others in between
			time.Sleep(tick)
			r.Expire(time.Now().Add(-timeout), kv.ErrTimeoutWaitApplied)
			for _, w := range all {
				age := time.Since(w.came)
				if failed(w.Wait) != (age > timeout) && (age < timeout || age > timeout+tick) {
					t.Fatalf("a reader of %v: failed is %v", age, failed(w.Wait))
				}
			}
		}
		if len(places) > 200 {
			t.Errorf("%d places for 1,000 readers in 200 rounds", len(places))
		}
		r.Advance(9)
		for _, w := range all {
			if !failed(w.Wait) {
				t.Fatal("a reader waits for what is applied")
			}
		}
		if n := len(r.mu.waiting); n == 0 || r.mu.waiting[0].index != 10 {
			t.Errorf("%d places are left", n)
		}
	})
}
