package archiver

import "slices"

// span is a range of indexes, both ends included.
type span struct{ first, last uint64 }

// coverage is a set of indexes: disjoint spans in ascending order with a hole between each two.
type coverage struct{ spans []span }

// maxSpans limits the spans. Each hole takes an outage longer than the raft log covers, so that
// holes are rare, and it stays until prune removes the objects around it. Beyond the limit the
// oldest spans are forgotten.
const maxSpans = 1024

// add adds the indexes from first to last.
func (c *coverage) add(first, last uint64) {
	if first == 0 || first > last {
		return
	}
	// The spans before i end more than one below first; those from j on begin more than one above
	// last.
	i, _ := slices.BinarySearchFunc(c.spans, first, func(s span, v uint64) int {
		if s.last < v-1 {
			return -1
		}
		return 1
	})
	j := i
	for j < len(c.spans) && c.spans[j].first <= last+1 {
		first, last = min(first, c.spans[j].first), max(last, c.spans[j].last)
		j++
	}
	c.spans = slices.Replace(c.spans, i, j, span{first, last})
	if n := len(c.spans) - maxSpans; n > 0 {
		c.spans = slices.Delete(c.spans, 0, n)
	}
}

// next returns the first index at or above from that is missing, and the last one before the next
// span; ^0 if there is no span above.
func (c *coverage) next(from uint64) (first, last uint64) {
	first, last = from, ^uint64(0)
	for _, s := range c.spans {
		switch {
		case s.last < first:
		case s.first <= first:
			first = s.last + 1
		default:
			return first, s.first - 1
		}
	}
	return first, last
}

// end returns the highest index, 0 for none.
func (c *coverage) end() uint64 {
	if len(c.spans) == 0 {
		return 0
	}
	return c.spans[len(c.spans)-1].last
}

// holes returns the missing indexes between from and to.
func (c *coverage) holes(from, to uint64) (out []span) {
	for from <= to {
		first, last := c.next(from)
		if first > to {
			break
		}
		out = append(out, span{first, min(last, to)})
		if last >= to {
			break
		}
		from = last + 1
	}
	return out
}
