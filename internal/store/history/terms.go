package history

import (
	"math"

	"vigil/internal/store/history/garbage"
)

const (
	// garbageShare is how many bytes may be dead for each one that is live before segments are
	// rewritten, in percent. With the slack that segments have on their own it keeps the directory
	// below 1.5 times the live bytes.
	garbageShare = 15
)

// terms returns the terms of the next choice, and how many bytes a second the rewrite may take.
func (r *reclaimer) terms(dead, live int64, thorough bool) (t garbage.Terms, rate int64) {
	share, rate, free := r.urgency()
	t = garbage.Terms{Allowed: live/100*share + r.o.SegmentBytes/1024, Size: r.cat.mergedSize(), Room: math.MaxInt64, Thorough: thorough}
	if thorough {
		t.Allowed, rate = 0, max(rate, 4*reclaimRate)
	}
	if dead > live {
		rate = max(rate, 4*reclaimRate)
	}
	if rate == math.MaxInt64 {
		// On a full disk only the reserve can be written to, on a nearly full one a part of the free space.
		r.mu.Lock()
		t.Room = max(r.alloc.reserveSize, free/2)
		r.mu.Unlock()
		t.Size = min(t.Size, t.Room)
	}
	return t, rate
}

// urgency returns how many percent of the live bytes may be garbage and how fast it is reclaimed: less and
// faster the fuller the disk is. free is the free space.
func (r *reclaimer) urgency() (share, rate, free int64) {
	free, err := r.o.FS.Free(r.o.Dir)
	if err != nil {
		return garbageShare, reclaimRate, 0
	}
	total, _ := r.cat.size()
	switch {
	case free < 4*r.o.SegmentBytes || free < total/16:
		return 1, math.MaxInt64, free
	case free < 16*r.o.SegmentBytes || free < total/4:
		return garbageShare / 3, 4 * reclaimRate, free
	default:
		return garbageShare, reclaimRate, free
	}
}
