package h2

import (
	"io"
	"sync"
	"time"
)

// Sizes of the read buffer in bytes. A connection has the large one only while its client sends much.
const (
	smallInput = 4 << 10
	largeInput = 32 << 10
)

var largeInputs = sync.Pool{New: func() any { return new([largeInput]byte) }}

// input buffers what is read from a connection. It is owned by the reader.
type input struct {
	c     *Conn
	small [smallInput]byte
	large *[largeInput]byte // nil if small is used
	r, w  int               // what is buffered
}

func (in *input) buffer() []byte {
	if in.large != nil {
		return in.large[:]
	}
	return in.small[:]
}

// Read implements io.Reader.
func (in *input) Read(p []byte) (int, error) {
	if in.r < in.w {
		n := copy(p, in.buffer()[in.r:in.w])
		in.r += n
		return n, nil
	}
	if len(p) >= largeInput {
		return in.fill(p)
	}
	n, err := in.fill(in.buffer())
	in.r, in.w = 0, n
	if n == 0 {
		return 0, err
	}
	n = copy(p, in.buffer()[:n])
	in.r = n
	in.resize()
	return n, nil
}

// fill reads from the connection, after everything that the frames before required was handed to a writer.
func (in *input) fill(p []byte) (int, error) {
	in.c.beforeRead()
	n, err := in.c.nc.Read(p)
	in.c.lastRead.Store(int64(time.Since(epoch)))
	return n, err
}

// resize chooses the buffer by how much the last read has returned. It keeps what is buffered.
func (in *input) resize() {
	switch {
	case in.large == nil && in.w == smallInput:
		in.large = largeInputs.Get().(*[largeInput]byte)
		in.w = copy(in.large[:], in.small[in.r:in.w])
		in.r = 0
	case in.large != nil && in.w < smallInput:
		in.w = copy(in.small[:], in.large[in.r:in.w])
		in.r = 0
		in.release()
	}
}

func (in *input) release() {
	if in.large != nil {
		largeInputs.Put(in.large)
		in.large = nil
	}
}

// discard reads n bytes and drops them.
func discard(r io.Reader, n int) error {
	if n == 0 {
		return nil
	}
	_, err := io.CopyN(io.Discard, r, int64(n))
	return err
}
