package h2

import (
	"net"
	"sync"

	"google.golang.org/grpc/mem"
)

// batch has the content of one write: own bytes with buffers between them.
type batch struct {
	inPlace bool // write buffers of more than copyMost bytes from their place
	own     []byte
	parts   []part
	refs    int // bytes of buffers
	vec     net.Buffers
	free    []mem.Buffer // after the write
}

// part is a buffer that is written after batch.own[:at].
type part struct {
	at   int
	data []byte
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// maxPooledBatch is the largest capacity of batch.own, in bytes, that is kept for later batches.
const maxPooledBatch = 128 << 10

// copyMost is the largest buffer, in bytes, that is copied. Larger ones are written from their
// place.
const copyMost = 2 << 10

func (b *batch) len() int { return len(b.own) + b.refs }

// addBuffer adds data of a buffer that stays valid until the write is over.
func (b *batch) addBuffer(data []byte) {
	if len(data) <= copyMost || !b.inPlace {
		b.own = append(b.own, data...)
		return
	}
	b.parts = append(b.parts, part{len(b.own), data})
	b.refs += len(data)
}

// vector returns the bytes of the batch in order.
func (b *batch) vector() net.Buffers {
	vec, at := b.vec[:0], 0
	for _, p := range b.parts {
		if p.at > at {
			vec = append(vec, b.own[at:p.at])
		}
		vec, at = append(vec, p.data), p.at
	}
	if at < len(b.own) {
		vec = append(vec, b.own[at:])
	}
	b.vec = vec
	return vec
}

// clear empties the batch after its write and frees its buffers.
func (b *batch) clear() {
	for _, buf := range b.free {
		buf.Free()
	}
	clear(b.free)
	clear(b.parts)
	clear(b.vec)
	b.own, b.parts, b.free, b.refs = b.own[:0], b.parts[:0], b.free[:0], 0
}

// release returns an empty batch to the pool.
func (b *batch) release() {
	if cap(b.own) <= maxPooledBatch {
		batches.Put(b)
	}
}
