package archiver

import (
	"slices"
	"time"
)

const (
	// orderInterval is the time between two orders of the leader, appointment the time for which an
	// order holds. The leader notices a stopped member within orderInterval, and one that does not
	// answer after answerWithin.
	orderInterval = 250 * time.Millisecond
	// askInterval is the time between two questions of a leader without an archive whether a member
	// has one. unableAfter is how long a new leader gives the members to reach the archive before
	// it reports that none can.
	askInterval  = 2 * time.Second
	unableAfter  = 15 * time.Second
	answerWithin = 1500 * time.Millisecond
	appointment  = 5 * time.Second
	// hearAllWithin is how long a new leader waits for the first answers of all voters.
	hearAllWithin = 2 * time.Second
	// heardWithin is the maximum age of the report of a member that the leader appoints.
	heardWithin = 3 * time.Second
	// maxApplyLag is the maximum lag in entries of a member that the leader appoints.
	maxApplyLag = 10_000
	// rotateAfter is how long an appointee fails before the leader tries another member, and
	// avoidFor how long it then prefers others.
	rotateAfter = 30 * time.Second
	avoidFor    = time.Hour
	outageAfter = 10 * time.Second
)

// heard is a report and the time of its arrival.
type heard struct {
	report
	at time.Time
}

// candidates is the leader's view of the members from which it chooses.
type candidates struct {
	self    uint64
	voters  []uint64
	reports map[uint64]heard
	// current is the present appointee, 0 for none.
	current uint64
	// failed is the time at which each member had failed as appointee for rotateAfter.
	failed map[uint64]time.Time
	// archived is the archived index, if known.
	archived uint64
	known    bool
}

// allFail reports whether the present appointee has failed for outageAfter and all others before
// it. Then the bucket itself is away, not just some members' connection to it.
func (c *candidates) allFail(now time.Time) bool {
	for _, id := range c.voters {
		r, ok := c.reports[id]
		switch {
		case id == c.current && (!ok || r.failing < outageAfter):
			return false
		case id != c.current && ok && now.Sub(c.failed[id]) >= avoidFor:
			return false
		}
	}
	return c.current != 0
}

// choose returns the member to appoint, 0 for none. The present appointee stays while it works.
// Otherwise choose prefers a member whose raft log has the missing entries, and the leader itself
// only if there is no other.
func (c *candidates) choose(now time.Time) uint64 {
	var able []uint64
	for _, id := range c.voters {
		r, ok := c.reports[id]
		if ok && r.ready && now.Sub(r.at) <= heardWithin &&
			r.applied+maxApplyLag >= c.reports[c.self].applied {
			able = append(able, id)
		}
	}
	// A member with an empty bucket would begin a new archive. If others have reached the archive,
	// that member has a different bucket, for instance during a change of --archive.
	found := func(id uint64) bool { return !c.reports[id].vacant }
	if slices.ContainsFunc(able, found) {
		able = slices.DeleteFunc(able, func(id uint64) bool { return !found(id) })
	}
	if len(able) == 0 {
		return 0
	}
	need := c.archived + 1
	if !c.known {
		need = c.reports[able[0]].first
		for _, id := range able {
			need = min(need, c.reports[id].first)
		}
	}
	covers := func(id uint64) bool { return c.reports[id].first <= need }
	if slices.ContainsFunc(able, covers) {
		able = slices.DeleteFunc(able, func(id uint64) bool { return !covers(id) })
	}
	if c.current == 0 {
		// The previous leader may have appointed one of them.
		for _, id := range able {
			if c.reports[id].appointed {
				c.current = id
			}
		}
	}
	failed := func(id uint64) bool { return now.Sub(c.failed[id]) < avoidFor }
	others := slices.DeleteFunc(slices.Clone(able),
		func(id uint64) bool { return id == c.self || failed(id) })
	switch {
	case slices.Contains(others, c.current):
		return c.current
	case len(others) > 0:
		return slices.Min(others)
	case slices.Contains(able, c.self) && !failed(c.self):
		return c.self
	case slices.Contains(able, c.current) && c.reports[c.current].failing < rotateAfter:
		return c.current
	}
	// All have failed: in turn.
	return slices.MinFunc(able, func(a, b uint64) int { return c.failed[a].Compare(c.failed[b]) })
}
