package keytree

import (
	"strings"
	"unsafe"
)

const (
	// boundsSize is the size of the pieces of memory that bounds are copied into. A piece stays as long as one of its bounds,
	// so that it must not be large.
	boundsSize = 512
	// longBound is the length from which a bound has memory of its own.
	longBound = 128
)

// bounds makes the bounds of children. Few pieces of memory hold many of them, so that they are not as many objects for the garbage
// collector as there are leaves.
type bounds struct{ buf []byte }

// between returns the shortest string that is above left and at most right. It has memory of its own.
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
