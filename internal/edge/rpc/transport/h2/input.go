package h2

import (
	"io"
	"sync"
	"syscall"
	"time"
)

// Sizes of the read buffer in bytes. A connection has a buffer only while there is something to
// read, and the large one while its client sends much.
const (
	smallInput = 4 << 10
	largeInput = 32 << 10
)

var (
	smallInputs = sync.Pool{New: func() any { return new([smallInput]byte) }}
	largeInputs = sync.Pool{New: func() any { return new([largeInput]byte) }}
)

// input buffers the bytes that are read from a connection. The reader owns it.
type input struct {
	l     *link
	small *[smallInput]byte // at most one of the two is set
	large *[largeInput]byte
	much  bool // the last read filled the buffer: the next one gets the large one
	r, w  int  // the buffered bytes are those from r to w

	// raw reads from the socket, past wrappers that pass everything on. It is nil if a wrapper does
	// not.
	raw  syscall.RawConn
	try  func(fd uintptr) bool // tryRead
	into []byte                // where tryRead puts bytes; nil for a buffer of its own
	n    int                   // the result of tryRead
	err  error

	// one is for waiting without a buffer where raw is nil: it gets the first byte that arrives.
	// awake says that it has one, and more bytes probably follow.
	one   [1]byte
	awake bool
}

// takeBuffer returns the buffer of the connection, which keeps it until releaseBuffer.
func (in *input) takeBuffer() []byte {
	switch {
	case in.large != nil:
		return in.large[:]
	case in.small != nil:
		return in.small[:]
	case in.much:
		in.large = largeInputs.Get().(*[largeInput]byte)
		return in.large[:]
	}
	in.small = smallInputs.Get().(*[smallInput]byte)
	return in.small[:]
}

// releaseBuffer returns the buffer, which must be empty, to its pool.
func (in *input) releaseBuffer() {
	if in.large != nil {
		largeInputs.Put(in.large)
		in.large = nil
	}
	if in.small != nil {
		smallInputs.Put(in.small)
		in.small = nil
	}
}

// Read implements io.Reader.
func (in *input) Read(p []byte) (int, error) {
	if in.r < in.w {
		n := copy(p, in.takeBuffer()[in.r:in.w])
		in.r += n
		return n, nil
	}
	if len(p) == 0 {
		return 0, nil
	}
	if len(p) >= largeInput {
		return in.readMore(p)
	}
	n, err := in.readMore(nil)
	if n == 0 {
		return 0, err
	}
	if in.awake {
		p[0] = in.one[0]
		return 1, nil
	}
	b := in.takeBuffer()
	in.much = n == len(b) || in.large != nil && n >= smallInput
	in.w = n
	in.r = copy(p, b[:n])
	return in.r, nil
}

// readMore reads from the connection into p, or into a buffer if p is nil. Before, it hands
// everything that earlier frames require to a writer. While there is nothing to read, the
// connection has no buffer.
func (in *input) readMore(p []byte) (n int, err error) {
	k := &in.l.socket
	in.beforeRead()
	if in.raw == nil && k.plain != nil && k.passesOn() {
		in.raw = rawOf(k.plain)
		in.try = in.tryRead
	}
	switch {
	case in.raw != nil:
		in.into, in.n, in.err = p, 0, nil
		if err = in.raw.Read(in.try); err == nil {
			n, err = in.n, in.err
		}
		in.into = nil
	case p != nil:
		n, err = k.nc.Read(p)
		in.awake = false
	case in.awake:
		n, err = k.nc.Read(in.takeBuffer())
		in.awake = false
	default:
		in.releaseBuffer()
		n, err = k.nc.Read(in.one[:])
		in.awake = n > 0
	}
	in.l.lastRead.Store(int64(time.Since(epoch)))
	return n, err
}

// beforeRead writes the output that earlier frames require, because the reader may now wait for a
// long time. If there is much output, the reader waits until the client reads it.
func (in *input) beforeRead() {
	in.l.mu.Lock()
	in.l.waitForWriter()
	in.l.writeNow(turnsOfOwner)
}

// discard reads and drops n bytes.
func discard(r io.Reader, n int) error {
	if n == 0 {
		return nil
	}
	_, err := io.CopyN(io.Discard, r, int64(n))
	return err
}
