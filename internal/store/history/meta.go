package history

import (
	"iter"
	"slices"
)

// Meta returns the live meta records of a bucket, those of the current batch included, sorted by
// key. The slices must not be modified and stay valid. Writer only; the log must not be written
// during the iteration.
func (l *Log) Meta(bucket byte) iter.Seq2[[]byte, []byte] { return l.w.metas.Bucket(bucket) }

// AllMeta returns the live meta records of all buckets, those of the current batch included, in no
// order. The values must not be modified and stay valid. Writer only.
func (l *Log) AllMeta() []Meta { return l.w.metas.All() }

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
