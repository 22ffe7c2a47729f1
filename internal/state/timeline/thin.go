package timeline

import (
	"time"

	"vigil/internal/kv"
)

// tiers says how far apart old marks are, by their age. The age is the difference to the newest mark.
var tiers = [...]struct{ age, spacing int64 }{
	{(365 * 24 * time.Hour).Milliseconds(), (24 * time.Hour).Milliseconds()},
	{(7 * 24 * time.Hour).Milliseconds(), time.Hour.Milliseconds()},
	{time.Hour.Milliseconds(), time.Minute.Milliseconds()},
}

// maxThinned limits how many blocks are replaced at a time: all of this is work of one request. Usually one is.
const maxThinned = 64

// spacing returns how far apart marks of an age are, 0 for all marks.
func spacing(age int64) int64 {
	for _, t := range tiers {
		if age > t.age {
			return t.spacing
		}
	}
	return 0
}

// thin drops marks of old blocks, and joins blocks that fit into one. The last two blocks are left alone, of which the last
// one is being filled.
func thin(blocks []*block) []*block {
	if len(blocks) < 3 {
		return blocks
	}
	newest := blocks[len(blocks)-1].last().Time
	sealed := len(blocks) - 2
	out := make([]*block, 0, len(blocks))
	replaced := 0
	before := int64(0) // the spacing of the last block in out
	for i, b := range blocks[:sealed] {
		if replaced >= maxThinned {
			return append(out, blocks[i:]...)
		}
		gap := spacing(newest - b.last().Time)
		if gap == 0 {
			return append(out, blocks[i:]...)
		}
		next := b
		if marks := thinMarks(b.marks, gap); len(marks) < len(b.marks) {
			next = &block{marks}
		}
		if n := len(out); n > 0 && before == gap && len(out[n-1].marks)+len(next.marks) <= BlockMarks {
			joined := append(out[n-1].marks[:len(out[n-1].marks):len(out[n-1].marks)], next.marks...)
			out[n-1] = &block{thinMarks(joined, gap)}
			replaced++
			continue
		}
		if next != b {
			replaced++
		}
		out, before = append(out, next), gap
	}
	return append(out, blocks[sealed:]...)
}

// thinMarks returns the last of the marks of each interval of gap milliseconds.
func thinMarks(marks []kv.TimeMark, gap int64) []kv.TimeMark {
	out := make([]kv.TimeMark, 0, len(marks))
	for i, m := range marks {
		if i == len(marks)-1 || m.Time/gap != marks[i+1].Time/gap {
			out = append(out, m)
		}
	}
	return out
}
