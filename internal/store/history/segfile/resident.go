package segfile

import (
	"sync/atomic"
	"time"

	"vigil/internal/kv"
	"vigil/internal/store/history/format"
)

// seen remembers which pages of the offset tables were in memory a moment ago, so that most lookups
// do not ask the operating system: a page that was just used is not evicted.
type seen struct {
	first int64           // the first page, of the file
	pages []atomic.Uint32 // the last second, since began, in which the page was in memory, plus 1
}

const (
	pageBits = 12
	// seenFor is how many seconds pass at most before the operating system is asked again.
	seenFor = 1
)

var began = time.Now()

func (p *seen) init(off, n int64) {
	p.first = off >> pageBits
	p.pages = make([]atomic.Uint32, (off+n-1)>>pageBits-p.first+1)
}

// tableResident reports whether n bytes of the tables at off are known to be in memory.
func (s *File) tableResident(off, n int) bool {
	from := int64(s.foot.BodyEnd) + int64(off)
	now := uint32(time.Since(began)/time.Second) + 1
	for p := from >> pageBits; p <= (from+int64(n)-1)>>pageBits; p++ {
		last := &s.seen.pages[p-s.seen.first]
		if was := last.Load(); was != 0 && now-was < seenFor {
			continue
		}
		at := max(p<<pageBits, int64(s.foot.BodyEnd))
		if !s.mapping.Resident(at, min((p+1)<<pageBits, from+int64(n))-at) {
			return false
		}
		last.Store(now)
	}
	return true
}

// Locate returns the number of the record at rev, if it is known to be in memory and to take at
// most about room bytes. It waits for no disk: the parts of the tables that it reads are known to
// be in memory, too.
func (s *File) Locate(rev kv.Rev, room int) (i int, ok bool) {
	if s.mapping == nil {
		return 0, false
	}
	if i, ok = s.table.Locate(rev, s.tableResident); !ok {
		return 0, false
	}
	span, err := s.Span(i)
	if err != nil || span-format.RecordHeaderSize > int64(room) {
		return 0, false
	}
	return i, s.mapping.Resident(int64(s.table.Offset(i)), span)
}
