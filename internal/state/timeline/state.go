package timeline

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"

	"vigil/internal/kv"
)

const (
	// BlockMarks is the limit for marks in a block.
	BlockMarks = 64
	// MaxBlocks is the limit for blocks. Thinned as in thin.go, the marks of ten years are about 500 blocks.
	MaxBlocks = 1 << 10
)

// State is the list of marks at one position of the log. It is immutable. The zero value has no marks.
type State struct {
	blocks []*block
}

// block is a run of marks. It is immutable and not empty.
type block struct {
	marks []kv.TimeMark
}

func (b *block) first() kv.TimeMark { return b.marks[0] }
func (b *block) last() kv.TimeMark  { return b.marks[len(b.marks)-1] }

// First returns the oldest mark.
func (s *State) First() (_ kv.TimeMark, ok bool) {
	if len(s.blocks) == 0 {
		return kv.TimeMark{}, false
	}
	return s.blocks[0].first(), true
}

// Last returns the newest mark.
func (s *State) Last() (_ kv.TimeMark, ok bool) {
	if len(s.blocks) == 0 {
		return kv.TimeMark{}, false
	}
	return s.blocks[len(s.blocks)-1].last(), true
}

// Len returns the number of marks.
func (s *State) Len() (n int) {
	for _, b := range s.blocks {
		n += len(b.marks)
	}
	return n
}

// At returns the newest mark at or before a time.
func (s *State) At(ms int64) (_ kv.TimeMark, ok bool) {
	return s.before(func(m kv.TimeMark) bool { return m.Time > ms })
}

// AtOrAfter returns the oldest mark with a revision of at least rev.
func (s *State) AtOrAfter(rev int64) (_ kv.TimeMark, ok bool) {
	return s.from(func(m kv.TimeMark) bool { return m.Revision >= rev })
}

// Span returns when a revision was made.
func (s *State) Span(rev int64) (span kv.TimeSpan) {
	newer := func(m kv.TimeMark) bool { return m.Revision >= rev }
	if m, ok := s.before(newer); ok {
		span.After = m.Time
	}
	if m, ok := s.from(newer); ok {
		span.At = m.Time
	}
	return span
}

// from returns the first mark for which is holds; is holds for all later ones too.
func (s *State) from(is func(kv.TimeMark) bool) (_ kv.TimeMark, ok bool) {
	i := sort.Search(len(s.blocks), func(i int) bool { return is(s.blocks[i].last()) })
	if i == len(s.blocks) {
		return kv.TimeMark{}, false
	}
	marks := s.blocks[i].marks
	return marks[sort.Search(len(marks), func(i int) bool { return is(marks[i]) })], true
}

// before returns the last mark for which is does not hold; is holds for all later ones.
func (s *State) before(is func(kv.TimeMark) bool) (_ kv.TimeMark, ok bool) {
	i := sort.Search(len(s.blocks), func(i int) bool { return is(s.blocks[i].first()) })
	if i == 0 {
		return kv.TimeMark{}, false
	}
	marks := s.blocks[i-1].marks
	return marks[sort.Search(len(marks), func(i int) bool { return is(marks[i]) })-1], true
}

// Add returns the state with more marks, and the records that differ. newest is the newest revision of the store and
// compact its compact revision.
//
// Errors: kv.ErrTimeOrder, see kv.TimeRequest.
func (s *State) Add(r *kv.TimeRequest, newest, compact int64) (*State, []Record, error) {
	if err := s.check(r, newest); err != nil {
		return nil, nil, err
	}
	blocks := slices.Clone(s.blocks)
	if r.Back {
		blocks = cut(blocks, r.Marks[0].Time)
	}
	sealed := false
	for _, m := range r.Marks {
		var full bool
		blocks, full = add(blocks, m)
		sealed = sealed || full
	}
	if sealed {
		blocks = thin(blocks)
	}
	blocks = trim(blocks, compact)
	next := &State{blocks: blocks}
	return next, s.diff(next), nil
}

func (s *State) check(r *kv.TimeRequest, newest int64) error {
	if len(r.Marks) == 0 || len(r.Marks) > kv.MaxTimeMarks {
		return fmt.Errorf("%w: %d marks, the limit is %d", kv.ErrTimeOrder, len(r.Marks), kv.MaxTimeMarks)
	}
	last, _ := s.Last()
	if r.Back {
		last.Time = 0
	}
	for _, m := range r.Marks {
		switch {
		case m.Time <= last.Time || m.Time > kv.MaxTime:
			return fmt.Errorf("%w: time %d after %d, the limit is %d", kv.ErrTimeOrder, m.Time, last.Time, int64(kv.MaxTime))
		case m.Revision < max(last.Revision, 1) || m.Revision > newest:
			return fmt.Errorf("%w: revision %d after %d, the newest is %d", kv.ErrTimeOrder, m.Revision, last.Revision, newest)
		}
		last = m
	}
	return nil
}

// cut drops the marks at or after a time. It changes blocks.
func cut(blocks []*block, ms int64) []*block {
	n := sort.Search(len(blocks), func(i int) bool { return blocks[i].last().Time >= ms })
	if n == len(blocks) {
		return blocks
	}
	marks := blocks[n].marks
	keep := sort.Search(len(marks), func(i int) bool { return marks[i].Time >= ms })
	if keep > 0 {
		blocks[n] = &block{slices.Clip(slices.Clone(marks[:keep]))}
		n++
	}
	return blocks[:n]
}

// add adds a mark. It changes blocks and reports whether the last block was full. Of the marks of a block with
// one revision the first and the last are kept.
func add(blocks []*block, m kv.TimeMark) (_ []*block, full bool) {
	if len(blocks) == 0 {
		return append(blocks, &block{[]kv.TimeMark{m}}), false
	}
	end := blocks[len(blocks)-1]
	marks := end.marks
	if n := len(marks); n > 1 && marks[n-1].Revision == m.Revision && marks[n-2].Revision == m.Revision {
		marks = marks[:n-1]
	}
	if len(marks) == BlockMarks {
		return append(blocks, &block{[]kv.TimeMark{m}}), true
	}
	next := make([]kv.TimeMark, len(marks), len(marks)+1)
	copy(next, marks)
	blocks[len(blocks)-1] = &block{append(next, m)}
	return blocks, false
}

// trim drops blocks of compacted revisions, and the oldest ones above the limit. The newest mark below the compact revision
// stays: it distinguishes a compacted time from one before the first mark.
func trim(blocks []*block, compact int64) []*block {
	n := max(0, len(blocks)-MaxBlocks)
	for n+1 < len(blocks) && blocks[n+1].first().Revision < compact {
		n++
	}
	return blocks[n:]
}

// diff returns the records of next that differ from those of s.
func (s *State) diff(next *State) (out []Record) {
	old, blocks := s.blocks, next.blocks
	for len(old) > 0 || len(blocks) > 0 {
		order := 0
		switch {
		case len(old) == 0:
			order = 1
		case len(blocks) == 0:
			order = -1
		default:
			order = cmp.Compare(old[0].first().Time, blocks[0].first().Time)
		}
		switch {
		case order < 0:
			out = append(out, Record{Key: old[0].key(), Deleted: true})
			old = old[1:]
		case order > 0:
			out = append(out, blocks[0].record())
			blocks = blocks[1:]
		default:
			if old[0] != blocks[0] {
				out = append(out, blocks[0].record())
			}
			old, blocks = old[1:], blocks[1:]
		}
	}
	return out
}

// valid returns an error if an invariant does not hold.
func (s *State) valid() error {
	if len(s.blocks) > MaxBlocks {
		return fmt.Errorf("invariant 3: %d blocks", len(s.blocks))
	}
	var last kv.TimeMark
	for _, b := range s.blocks {
		if len(b.marks) == 0 || len(b.marks) > BlockMarks {
			return fmt.Errorf("invariant 3: a block of %d marks", len(b.marks))
		}
		for _, m := range b.marks {
			if m.Time <= last.Time || m.Revision < max(last.Revision, 1) || m.Time > kv.MaxTime {
				return fmt.Errorf("invariant 1: %v after %v", m, last)
			}
			last = m
		}
	}
	return nil
}

// Load returns the state of records, in any order. Deleted records must not be among them.
func Load(records []Record) (*State, error) {
	s := &State{}
	for _, r := range records {
		b, err := parse(r)
		if err != nil {
			return nil, fmt.Errorf("timeline: %w: %w", kv.ErrCorrupt, err)
		}
		s.blocks = append(s.blocks, b)
	}
	slices.SortFunc(s.blocks, func(a, b *block) int { return cmp.Compare(a.first().Time, b.first().Time) })
	if err := s.valid(); err != nil {
		return nil, fmt.Errorf("timeline: %w: %w", kv.ErrCorrupt, err)
	}
	return s, nil
}

// Records returns the records of the state.
func (s *State) Records() []Record { return (&State{}).diff(s) }

// Until returns the state without marks of revisions above rev, for a store that is built up to that revision.
func (s *State) Until(rev int64) *State {
	m, ok := s.AtOrAfter(rev + 1)
	if !ok {
		return s
	}
	return &State{blocks: cut(slices.Clone(s.blocks), m.Time)}
}

var errMalformed = errors.New("malformed record")
