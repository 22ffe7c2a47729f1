package position

import (
	"fmt"
	"testing"
)

// TestTrailKeepsWhatIsNotSynced: no bounds give up an entry that the store has not made durable:
// the raft log is its only copy (invariant 5 of package replica). Within that, what remains is at
// most the number of entries, and about the bytes.
func TestTrailKeepsWhatIsNotSynced(t *testing.T) {
	const first, last, size = 10, 60, 100 // entries of 100 bytes, a mark after each
	for synced := uint64(first); synced <= last; synced++ {
		for _, entries := range []uint64{0, 1, 5, 25, 1000} {
			for _, bytes := range []int64{0, size, 10 * size, 1000 * size} {
				t.Run(fmt.Sprintf("%d synced, %d entries, %d bytes", synced, entries, bytes),
					func(t *testing.T) {
						trail := NewTrail(first, 1, TrailBounds{Requests: 1 << 20, Bytes: 1 << 40})
						for i := uint64(first + 1); i <= last; i++ {
							trail.Add(i, 1, size)
						}
						// The second call has the marks that the first one has left.
						for range 2 {
							cut := trail.Keep(synced, entries, bytes)
							if cut > synced {
								t.Fatalf("gives up entries to %d", cut)
							}
							byBytes := uint64(0)
							if limit := last - bytes/size; limit >= first {
								byBytes = min(uint64(limit), synced)
							}
							byEntries := synced - min(synced, entries)
							if want := max(byEntries, byBytes); cut != want {
								t.Fatalf("gives up entries to %d, want %d", cut, want)
							}
						}
					})
			}
		}
	}
}
