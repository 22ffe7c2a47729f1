package segfile

import "vigil/internal/kv"

// AheadRecords is the most records that can be added to an Ahead.
const AheadRecords = 32

const (
	// aheadSize is how many bytes of a record are touched at most: the processor fetches the rest
	// by itself.
	aheadSize = 512
	cacheLine = 64
	// aheadFiles is how many files an Ahead holds.
	aheadFiles = 8
)

// Ahead finds and touches records that are about to be read. They are seldom in the processor's
// caches, and to read one after the other would wait for the memory once for each. It is used
// within an Access, and holds files until Release.
type Ahead struct {
	list  [AheadRecords][]byte
	n     int
	seen  byte
	files [aheadFiles]*File
	held  int
}

// Add adds a record of memory, of which b is at least the beginning.
func (h *Ahead) Add(b []byte) {
	h.list[h.n] = b[:min(len(b), aheadSize)]
	h.n++
}

// AddFromFile adds the record of a file at rev, and returns its number, -1 if it is not found.
func (h *Ahead) AddFromFile(s *File, rev kv.Rev) (i int) {
	if s.data == nil || !h.hold(s) {
		return -1
	}
	if i = s.table.Find(rev); i >= 0 {
		if off := s.table.Offset(i); off < s.foot.BodyEnd {
			h.Add(s.data[off:s.foot.BodyEnd])
		}
	}
	return i
}

// hold takes a reference to a file. It returns false if the file is closed, or if too many files
// are held.
func (h *Ahead) hold(s *File) bool {
	for _, f := range h.files[:h.held] {
		if f == s {
			return true
		}
	}
	if h.held == len(h.files) || !s.Acquire() {
		return false
	}
	h.files[h.held] = s
	h.held++
	return true
}

// Touch reads a byte of each cache line of the records that were added.
func (h *Ahead) Touch() {
	for at := 0; at < aheadSize; at += cacheLine {
		for _, b := range h.list[:h.n] {
			if at < len(b) {
				h.seen ^= b[at]
			}
		}
	}
}

// Forget removes the records that were added. p is the result of recover: a fault of the files does
// not matter, since reading causes it again. It continues any other panic.
func (h *Ahead) Forget(p any) {
	h.n = 0
	if p == nil {
		return
	}
	for _, s := range h.files[:h.held] {
		if _, ok := faultOffset(p, s); ok {
			return
		}
	}
	panic(p)
}

// Release releases the files.
func (h *Ahead) Release() {
	for _, s := range h.files[:h.held] {
		s.Release()
	}
	h.held = 0
}
