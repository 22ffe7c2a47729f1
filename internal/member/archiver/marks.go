package archiver

import (
	"slices"
	"time"
)

// mark is a moment: the entries up to index were applied at a time, with a revision.
type mark struct {
	index    uint64
	revision int64
	at       time.Time
}

// marks records moments, so that entries archived late get revisions and times too. Each member
// records its own from the start of its process. The zero value is empty.
type marks struct{ list []mark }

// maxMarks limits the moments. Beyond the limit, every second moment of the older half is dropped.
const maxMarks = 4096

// add adds a moment, if it is newer than the last one.
func (m *marks) add(x mark) {
	if n := len(m.list); n > 0 &&
		(x.index <= m.list[n-1].index || x.revision < m.list[n-1].revision) {
		return
	}
	m.list = append(m.list, x)
	if len(m.list) <= maxMarks {
		return
	}
	half := len(m.list) / 2
	kept := m.list[:0]
	for i, x := range m.list {
		if i >= half || i%2 == 0 {
			kept = append(kept, x)
		}
	}
	m.list = kept
}

// below returns the newest moment at or below an index.
func (m *marks) below(index uint64) (mark, bool) {
	i, ok := m.search(index)
	if !ok {
		i--
	}
	if i < 0 {
		return mark{}, false
	}
	return m.list[i], true
}

// above returns the oldest moment at or above an index.
func (m *marks) above(index uint64) (mark, bool) {
	i, _ := m.search(index)
	if i == len(m.list) {
		return mark{}, false
	}
	return m.list[i], true
}

func (m *marks) search(index uint64) (int, bool) {
	return slices.BinarySearchFunc(m.list, index, func(x mark, index uint64) int {
		switch {
		case x.index < index:
			return -1
		case x.index > index:
			return 1
		}
		return 0
	})
}
