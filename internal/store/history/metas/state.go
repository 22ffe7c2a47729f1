package metas

import (
	"iter"
	"maps"
	"slices"

	"vigil/internal/store/history/format"
)

// State holds the live value of each bucket and key: that of the last record. It is owned by one goroutine.
type State map[byte]map[string][]byte

// Apply adds a record. It keeps m.Value.
func (s State) Apply(m format.Meta) {
	if m.Deleted {
		delete(s[m.Bucket], string(m.Key))
		return
	}
	b := s[m.Bucket]
	if b == nil {
		b = map[string][]byte{}
		s[m.Bucket] = b
	}
	b[string(m.Key)] = m.Value
}

// Current returns the record of a bucket and key, or its deletion.
func (s State) Current(bucket byte, key []byte) format.Meta {
	v, ok := s[bucket][string(key)]
	return format.Meta{Bucket: bucket, Key: slices.Clone(key), Value: v, Deleted: !ok}
}

// Bucket yields the keys and values of a bucket, sorted by key.
func (s State) Bucket(bucket byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		for _, k := range slices.Sorted(maps.Keys(s[bucket])) {
			if !yield([]byte(k), s[bucket][k]) {
				return
			}
		}
	}
}

// All returns the records of all buckets, in no order.
func (s State) All() []format.Meta {
	var out []format.Meta
	for bucket, records := range s {
		for k, v := range records {
			out = append(out, format.Meta{Bucket: bucket, Key: []byte(k), Value: v})
		}
	}
	return out
}

// Before returns the values, in no order, without the changes whose records of before are given, in the order of the changes.
func (s State) Before(changed []format.Meta) []format.Meta {
	before := map[string]*format.Meta{}
	for i := range changed {
		m := &changed[i]
		if name := m.Name(); before[name] == nil {
			before[name] = m
		}
	}
	out := slices.DeleteFunc(s.All(), func(m format.Meta) bool { return before[m.Name()] != nil })
	for _, m := range before {
		if !m.Deleted {
			out = append(out, *m)
		}
	}
	return out
}
