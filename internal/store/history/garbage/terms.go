package garbage

import "math"

const (
	// allowedShare is how many bytes may be dead for each one that is live before segments are
	// rewritten, in percent. With the slack that segments have on their own it keeps the directory
	// below 1.5 times the live bytes.
	allowedShare = 15
	// rewriteRate is how many bytes a second a rewrite reads and writes while nothing is urgent.
	rewriteRate = 32 << 20
)

// Disk is what a history occupies, and what its disk has, in bytes.
type Disk struct {
	Free, Total int64 // free space, and the size of the history
	Unknown     bool  // how much is free could not be found out
	Segment     int64 // what a segment may have
	Merged      int64 // what a merged one should have
	Reserve     int64 // the size of the file that is kept for rewrites
}

// Terms returns the terms of the next choice, and how many bytes a second the rewrite may take.
func (d *Disk) Terms(dead, live int64, thorough bool) (t Terms, rate int64) {
	share, rate := d.urgency()
	t = Terms{Allowed: live/100*share + d.Segment/1024, Size: d.Merged, Room: math.MaxInt64,
		Thorough: thorough}
	if thorough {
		t.Allowed, rate = 0, max(rate, 4*rewriteRate)
	}
	if dead > live {
		rate = max(rate, 4*rewriteRate)
	}
	if rate == math.MaxInt64 {
		// On a full disk only the reserve can be written to, on a nearly full one a part of the
		// free space.
		t.Room = max(d.Reserve, d.Free/2)
		t.Size = min(t.Size, t.Room)
	}
	return t, rate
}

// urgency returns how many percent of the live bytes may be garbage and how fast it is reclaimed:
// less and faster the fuller the disk is.
func (d *Disk) urgency() (share, rate int64) {
	switch {
	case d.Unknown:
		return allowedShare, rewriteRate
	case d.Free < 4*d.Segment || d.Free < d.Total/16:
		return 1, math.MaxInt64
	case d.Free < 16*d.Segment || d.Free < d.Total/4:
		return allowedShare / 3, 4 * rewriteRate
	default:
		return allowedShare, rewriteRate
	}
}
