package keytree

import (
	"strings"
	"unsafe"
)

const (
	// boundsSize is the size of the pieces of memory that hold copies of bounds. A piece stays in
	// memory as long as one of its bounds, so it must not be large.
	boundsSize = 512
	// longBound is the length from which a bound gets a separate piece of memory.
	longBound = 128
)

// bounds makes the bounds of children. It puts many bounds into one piece of memory, so that the
// garbage collector does not see an object for each leaf.
type bounds struct{ buf []byte }

// between returns the shortest string that is above left and at most right. It aliases neither.
func (b *bounds) between(left, right string) string {
	sep := right[:commonPrefix(left, right)+1]
	if len(sep) >= longBound {
		return strings.Clone(sep)
	}
	if len(sep) > cap(b.buf)-len(b.buf) {
		b.buf = make([]byte, 0, boundsSize)
	}
	start := len(b.buf)
	b.buf = append(b.buf, sep...)
	return unsafe.String(&b.buf[start], len(sep))
}
