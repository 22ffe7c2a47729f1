package format

import (
	"errors"
	"fmt"

	"vigil/internal/kv"
)

// Chain is the end of the segments that were read so far: what the next segment must continue.
type Chain struct {
	NextID   uint64 // of the segment that must follow
	Sum      uint32 // of the last batch
	Revision int64  // the newest main revision; the last record may have a lower one
	Last     kv.Rev // the newest revision; its sub revision is 0 if the record itself was reclaimed
	Applied  Applied
}

// Advance records the end of a segment, or of a batch of it.
func (c *Chain) Advance(nextID uint64, last kv.Rev, revision int64, a Applied, sum uint32) {
	if revision > last.Main {
		last = kv.Rev{Main: revision}
	}
	c.Last, c.Applied = last, a
	c.NextID, c.Sum, c.Revision = nextID, sum, revision
}

// AdvanceSealed records the end of a sealed segment.
func (c *Chain) AdvanceSealed(f *Footer) {
	last := c.Last
	if f.Records > 0 {
		last = f.Last
	}
	c.Advance(f.LastID+1, last, f.Revision, f.Applied, f.After)
}

// CheckSealed compares the beginning of a sealed segment with the end of the segments before it.
func (c *Chain) CheckSealed(f *Footer, path string) error {
	switch {
	case f.Before != c.Sum:
		return Corrupt(path, 0, "the segment does not continue the one before it")
	case f.Records > 0 && !c.Last.Less(f.First):
		return Corrupt(path, 0,
			"the segment begins at revision %d/%d, which is not above revision %d/%d, the end of the segment before it",
			f.First.Main, f.First.Sub, c.Last.Main, c.Last.Sub)
	}
	return nil
}

// ErrIdentity means that a file belongs to another cluster or member.
var ErrIdentity = errors.New("history: the data belongs to another member")

// Identity is the cluster and the member of a log. If both are 0, the first header decides.
type Identity struct {
	ClusterID, MemberID uint64
	known               bool
}

// Check compares the identity with the ids in a header. An unknown identity takes the ids of the
// header.
func (i *Identity) Check(h *Header, path string) error {
	if !i.known && i.ClusterID == 0 && i.MemberID == 0 {
		i.ClusterID, i.MemberID = h.ClusterID, h.MemberID
	}
	i.known = true
	if h.ClusterID != i.ClusterID || h.MemberID != i.MemberID {
		return fmt.Errorf("%w: %s is of cluster %x and member %x, not of cluster %x and member %x",
			ErrIdentity, path, h.ClusterID, h.MemberID, i.ClusterID, i.MemberID)
	}
	return nil
}
