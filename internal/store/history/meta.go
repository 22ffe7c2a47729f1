package history

import (
	"iter"
	"maps"
	"slices"
)

// metaState is what the meta records amount to: the last one of a bucket and key wins.
type metaState map[byte]map[string][]byte

// apply notes a record. It keeps m.Value.
func (s metaState) apply(m Meta) {
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

// AllMeta returns the live meta records of all buckets, those of the current batch included, in no
// order. The values must not be modified and stay valid. Writer only.
func (l *Log) AllMeta() []Meta {
	var out []Meta
	for bucket, records := range l.w.metas {
		for k, v := range records {
			out = append(out, Meta{Bucket: bucket, Key: []byte(k), Value: v})
		}
	}
	return out
}

// CommittedMeta is AllMeta without what the current batch does.
func (l *Log) CommittedMeta() []Meta {
	before := map[string]*Meta{}
	for i := range l.w.before {
		m := &l.w.before[i]
		if name := m.Name(); before[name] == nil {
			before[name] = m
		}
	}
	out := slices.DeleteFunc(l.AllMeta(), func(m Meta) bool { return before[m.Name()] != nil })
	for _, m := range before {
		if !m.Deleted {
			out = append(out, *m)
		}
	}
	return out
}

// current returns the record of a bucket and key, or its deletion.
func (s metaState) current(bucket byte, key []byte) Meta {
	v, ok := s[bucket][string(key)]
	return Meta{Bucket: bucket, Key: slices.Clone(key), Value: v, Deleted: !ok}
}

func (s metaState) all(bucket byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		for _, k := range slices.Sorted(maps.Keys(s[bucket])) {
			if !yield([]byte(k), s[bucket][k]) {
				return
			}
		}
	}
}
