package metas

import (
	"bytes"
	"iter"
	"slices"

	"vigil/internal/store/history/format"
)

// State holds the live value of each bucket and key, which is the value in the last record. One
// goroutine owns it.
type State struct {
	buckets map[byte]*bucket
	// before holds what the records since the last Commit have replaced, in their order, and pieces
	// the bytes of it.
	before []format.Meta
	pieces pieces
}

// bucket holds the records of a bucket: in small if the key and the value are short enough,
// otherwise in large.
type bucket struct {
	small map[shortText]shortValue
	large map[string][]byte
}

// NewState returns a State without records.
func NewState() *State { return &State{buckets: map[byte]*bucket{}} }

// Apply adds a record, which it copies.
func (s *State) Apply(m format.Meta) {
	b := s.buckets[m.Bucket]
	if b == nil {
		b = &bucket{small: map[shortText]shortValue{}, large: map[string][]byte{}}
		s.buckets[m.Bucket] = b
	}
	name, short := shortKey(m.Key)
	old := format.Meta{Bucket: m.Bucket, Key: s.pieces.copy(m.Key)}
	inSmall, inLarge := false, false
	if short {
		var v shortValue
		if v, inSmall = b.small[name]; inSmall {
			old.Value = s.pieces.copy(v.bytes())
		}
	}
	if !inSmall {
		old.Value, inLarge = b.large[string(m.Key)]
	}
	old.Deleted = !inSmall && !inLarge
	s.before = append(s.before, old)

	value, fits := makeValue(m.Value)
	fits = fits && short
	if inSmall && (m.Deleted || !fits) {
		delete(b.small, name)
	}
	if inLarge && (m.Deleted || fits) {
		delete(b.large, string(m.Key))
	}
	switch {
	case m.Deleted:
	case fits:
		b.small[name] = value
	default:
		b.large[string(m.Key)] = slices.Clone(m.Value)
	}
}

// Commit makes the changes of all records final: Committed includes them.
func (s *State) Commit() {
	clear(s.before)
	if s.before = s.before[:0]; cap(s.before) > keepChanges {
		s.before = nil
	}
	s.pieces.reset()
}

// keepChanges is for how many changes a State keeps memory.
const keepChanges = 1 << 14

// appendAll returns the records of a bucket, in no order.
func (s *State) appendAll(out []format.Meta, id byte) []format.Meta {
	b := s.buckets[id]
	if b == nil {
		return out
	}
	out = slices.Grow(out, len(b.small)+len(b.large))
	var p pieces
	for k, v := range b.small {
		out = append(out, format.Meta{Bucket: id, Key: p.copy(k.bytes()), Value: p.copy(v.bytes())})
	}
	for k, v := range b.large {
		out = append(out, format.Meta{Bucket: id, Key: []byte(k), Value: v})
	}
	return out
}

// Bucket yields the keys and values of a bucket, sorted by key.
func (s *State) Bucket(id byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		b := s.buckets[id]
		if b == nil {
			return
		}
		var p pieces
		keys := make([][]byte, 0, len(b.small)+len(b.large))
		for k := range b.small {
			keys = append(keys, p.copy(k.bytes()))
		}
		for k := range b.large {
			keys = append(keys, []byte(k))
		}
		slices.SortFunc(keys, bytes.Compare)
		for _, k := range keys {
			value := b.large[string(k)]
			if name, ok := shortKey(k); ok {
				if v, ok := b.small[name]; ok {
					value = p.copy(v.bytes())
				}
			}
			if !yield(k, value) {
				return
			}
		}
	}
}

// All returns the records of all buckets, in no order.
func (s *State) All() []format.Meta {
	var out []format.Meta
	for id := range s.buckets {
		out = s.appendAll(out, id)
	}
	return out
}

// Committed returns the records of all buckets without the changes since the last Commit, in no
// order.
func (s *State) Committed() []format.Meta {
	before := map[string]*format.Meta{}
	for i := range s.before {
		m := &s.before[i]
		if name := m.Name(); before[name] == nil {
			before[name] = m
		}
	}
	out := slices.DeleteFunc(s.All(), func(m format.Meta) bool { return before[m.Name()] != nil })
	for _, m := range before {
		if !m.Deleted {
			m := format.Meta{Bucket: m.Bucket, Key: slices.Clone(m.Key),
				Value: slices.Clone(m.Value)}
			out = append(out, m)
		}
	}
	return out
}

// pieces makes copies of short texts that share memory.
type pieces struct{ buf []byte }

// pieceBytes is the size of the memory that copies share.
const pieceBytes = 16 << 10

func (p *pieces) copy(b []byte) []byte {
	if cap(p.buf)-len(p.buf) < len(b) {
		// Copies that were returned before keep the old memory.
		p.buf = make([]byte, 0, max(pieceBytes, len(b)))
	}
	from := len(p.buf)
	p.buf = append(p.buf, b...)
	return p.buf[from:len(p.buf):len(p.buf)]
}

// reset frees all copies.
func (p *pieces) reset() {
	if p.buf = p.buf[:0]; cap(p.buf) > pieceBytes {
		p.buf = nil
	}
}
