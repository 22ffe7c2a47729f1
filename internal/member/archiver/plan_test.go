package archiver

import (
	"testing"

	"vigil/internal/store/archive"
)

// partOf is a part of the model of TestPlanKeepsFewParts: all of its records count.
type partOf struct {
	after, through int64
	items          uint64
	bytes          int64
}

func archiveParts(parts []partOf) []archive.Part {
	var out []archive.Part
	for _, p := range parts {
		out = append(out, archive.Part{Kind: archive.RecordsPart, After: p.after,
			Through: p.through, Items: p.items, Content: p.bytes})
	}
	return out
}

func tallies(parts []partOf, items uint64, bytes int64) []tally {
	var out []tally
	for _, p := range parts {
		out = append(out, tally{items: p.items, bytes: p.bytes})
	}
	return append(out, tally{items: items, bytes: bytes})
}

// apply returns the parts of a base that has the pieces, and how many bytes were written.
func apply(t *testing.T, pieces []piece, parts []partOf, revision int64, items uint64, bytes,
	written int64) ([]partOf, int64) {
	t.Helper()
	all := append(parts[:len(parts):len(parts)],
		partOf{revision - int64(items), revision, items, bytes})
	var out []partOf
	end := int64(0)
	for _, p := range pieces {
		if p.after != end {
			t.Fatalf("pieces %+v", pieces)
		}
		end = p.through
		made := partOf{after: p.after, through: p.through}
		for _, x := range all {
			if x.after >= p.after && x.through <= p.through {
				made.items += x.items
				made.bytes += x.bytes
			}
		}
		if p.keep == nil {
			written += made.bytes
		}
		out = append(out, made)
	}
	if end != revision {
		t.Fatalf("pieces end at %d, not at %d", end, revision)
	}
	return out, written
}
