package auth

import (
	"bytes"
	"cmp"
	"slices"
)

// span holds the keys of [from, to); a nil to is unbounded.
type span struct{ from, to []byte }

// spanOf returns the range [key, end) of a request or a permission.
func spanOf(key, end []byte) span {
	switch {
	case len(end) == 0:
		return span{key, append(bytes.Clone(key), 0)}
	case openEnded(end):
		return span{key, nil}
	}
	return span{key, end}
}

// openEnded reports whether a range with this end has no upper bound.
func openEnded(end []byte) bool { return len(end) == 1 && end[0] == 0 }

// compareEnds orders ends; nil is the last.
func compareEnds(a, b []byte) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return bytes.Compare(a, b)
}

// ranges is a set of keys: sorted spans that neither overlap nor touch.
type ranges []span

// merge returns the set of spans in any order. It keeps the slice.
func merge(list []span) ranges {
	list = slices.DeleteFunc(list,
		func(s span) bool { return s.to != nil && bytes.Compare(s.from, s.to) >= 0 })
	slices.SortFunc(list, func(a, b span) int {
		return cmp.Or(bytes.Compare(a.from, b.from), compareEnds(a.to, b.to))
	})
	n := 0
	for _, s := range list {
		if n > 0 && compareEnds(list[n-1].to, s.from) >= 0 {
			if compareEnds(s.to, list[n-1].to) > 0 {
				list[n-1].to = s.to
			}
			continue
		}
		list[n] = s
		n++
	}
	return list[:n]
}

// covers reports whether the set contains all keys of [key, end). An empty range, whose end is not
// after its beginning, is covered if its beginning is.
func (r ranges) covers(key, end []byte) bool {
	// The last span that begins at or before the key.
	i, found := slices.BinarySearchFunc(r, key,
		func(s span, key []byte) int { return bytes.Compare(s.from, key) })
	if !found {
		i--
	}
	if i < 0 {
		return false
	}
	s := r[i]
	switch {
	case s.to != nil && bytes.Compare(key, s.to) >= 0:
		return false
	case len(end) == 0:
		return true
	case openEnded(end):
		return s.to == nil
	}
	return compareEnds(end, s.to) <= 0
}
