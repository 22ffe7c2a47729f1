package archiver

import "vigil/internal/store/archive"

// piece is a range of revisions of a new base: a reused part of the previous base, or new records.
type piece struct {
	// keep is the reused part, nil for new records.
	keep           *archive.Part
	after, through int64
}

// tally measures how much of a part of the previous base still counts.
type tally struct {
	items uint64
	bytes int64
	// again: the records must be written again, because the part's object is lost or old.
	again bool
}

// planRecords decides which parts of the previous base a new one reuses and which records it writes
// again. It writes the records after the parts, the records of parts that are lost, old, or less
// than half live, and the records of small parts next to them. So parts below full size grow
// geometrically, and the number of parts is logarithmic in the number of bases. counts has the
// tally of each part, and at its end of the records after the parts.
func planRecords(parts []archive.Part, counts []tally, revision, full int64) []piece {
	end := int64(0)
	pieces := make([]piece, len(parts))
	size := make([]int64, len(parts)) // of the records to write, or to keep
	for i := range parts {
		p := &parts[i]
		end = p.Through
		pieces[i] = piece{keep: p, after: p.After, through: p.Through}
		size[i] = p.Content
		if counts[i].again || 2*counts[i].items < p.Items {
			pieces[i].keep, size[i] = nil, counts[i].bytes
		}
	}
	if revision > end {
		pieces = append(pieces, piece{after: end, through: revision})
		size = append(size, counts[len(parts)].bytes)
	}
	// A part joins new records at its side if it is not much larger than they are, and the two are
	// not more than a part.
	joins := func(part, written int64) bool {
		return part <= 2*written+full/64 &&
			part+written <= full
	}
	for i := len(pieces) - 1; i > 0; i-- { // to the left
		if pieces[i].keep == nil && pieces[i-1].keep != nil && joins(size[i-1], size[i]) {
			pieces[i-1].keep = nil
			size[i-1] += size[i] // a part further left is compared with the sum
			size[i] = 0
		}
	}
	for i := 0; i+1 < len(pieces); i++ { // to the right
		if pieces[i].keep == nil && pieces[i+1].keep != nil && joins(size[i+1], size[i]) {
			pieces[i+1].keep = nil
			size[i+1] += size[i]
			size[i] = 0
		}
	}
	var out []piece
	for _, p := range pieces {
		if n := len(out); n > 0 && p.keep == nil && out[n-1].keep == nil {
			out[n-1].through = p.through
			continue
		}
		out = append(out, p)
	}
	return out
}
