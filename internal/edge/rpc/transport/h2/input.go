package h2

import (
	"io"
	"sync"
	"syscall"
	"time"
)

// Sizes of the read buffer in bytes. A connection has one only while it has something to read, and the large one while its client
// sends much.
const (
	smallInput = 4 << 10
	largeInput = 32 << 10
)

var (
	smallInputs = sync.Pool{New: func() any { return new([smallInput]byte) }}
	largeInputs = sync.Pool{New: func() any { return new([largeInput]byte) }}
)

// input buffers what is read from a connection. It is owned by the reader.
type input struct {
	l     *link
	small *[smallInput]byte // at most one of the two is not nil
	large *[largeInput]byte
	much  bool // the last read has filled the buffer: the next one gets the large one
	r, w  int  // what is buffered

	// raw reads from the socket without the wrappers of a connection that pass all on. It is nil if there are others.
	raw  syscall.RawConn
	try  func(fd uintptr) bool // tryRead
	into []byte                // for tryRead; nil lets it take a buffer
	n    int                   // result of tryRead
	err  error

	// one is for waiting without a buffer where raw is not possible: the first byte that arrives. awake says that it was read, and
	// others follow most probably.
	one   [1]byte
	awake bool
}

// takeBuffer returns a buffer, which the connection keeps until release.
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

// releaseBuffer gives the buffer back, which must be empty.
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

// readMore reads from the connection into p, or if that is nil, into a buffer, after everything that the frames before required was
// handed to a writer. While there is nothing to read, the connection has no buffer.
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

// beforeRead writes what the frames before require to be written: the reader may wait for a long time now. If that is much,
// whatever it is, the reader waits for the client to read it.
func (in *input) beforeRead() {
	in.l.mu.Lock()
	in.l.waitForWriter()
	in.l.writeNow(turnsOfOwner)
}

// discard reads n bytes and drops them.
func discard(r io.Reader, n int) error {
	if n == 0 {
		return nil
	}
	_, err := io.CopyN(io.Discard, r, int64(n))
	return err
}
