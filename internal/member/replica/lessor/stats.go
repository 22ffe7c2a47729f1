package lessor

import "sync/atomic"

// ttlBuckets is the number of buckets of the histogram of TTLs: up to 1 s, 2 s, 4 s and so on.
const ttlBuckets = 24

// ttlCounts counts the TTLs of granted leases.
type ttlCounts struct {
	buckets [ttlBuckets + 1]atomic.Uint64
	sum     atomic.Uint64
}

func (c *ttlCounts) add(ttl int64) {
	i := 0
	for bound := int64(1); i < ttlBuckets && ttl > bound; bound *= 2 {
		i++
	}
	c.buckets[i].Add(1)
	c.sum.Add(uint64(ttl))
}

// Stats counts events of leases since the start.
type Stats struct {
	// Granted and Revoked count leases in entries that this member has applied, Renewed and Expired
	// the leases that it renewed and revoked as the leader.
	Granted, Revoked, Renewed, Expired uint64
	// Leases is the number of leases.
	Leases int
	// TTLs counts granted leases by TTL: at most 1, 2, 4 and so on seconds, without the leases of
	// the bucket before; the last bucket has no bound. TTLSum is the sum.
	TTLs   [ttlBuckets + 1]uint64
	TTLSum uint64
}

// Stats returns the present figures.
func (l *Lessor) Stats() Stats {
	s := Stats{Granted: l.granted.Load(), Revoked: l.revoked.Load(), Renewed: l.renewed.Load(),
		Expired: l.expired.Load(),
		Leases:  l.o.Pipeline.LeaseState().Len(), TTLSum: l.ttls.sum.Load()}
	for i := range s.TTLs {
		s.TTLs[i] = l.ttls.buckets[i].Load()
	}
	return s
}
