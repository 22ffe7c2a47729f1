package transport

import (
	"math/bits"
	"sync"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"vigil/internal/edge/rpc/wire"
	"vigil/internal/kv"
	"vigil/internal/store/ration"
)

// Buffers is an encoded message. Each buffer must be freed.
type Buffers = mem.BufferSlice

// OneBuffer returns a message of bytes that are never reused.
func OneBuffer(b []byte) Buffers { return Buffers{mem.SliceBuffer(b)} }

// LentMessage is a message whose encoded buffer returns to a lender after it was sent.
type LentMessage struct {
	wire.Encoder
	Lender kv.Lender
}

// maxPooled is the largest answer, in bytes, that is encoded into pooled memory. Larger ones are
// counted.
const maxPooled = ration.FreeSize

// pool has the buffers of encoded answers. A buffer is at most twice as large as its content.
// Unlike grpc-go's pools it does not clear buffers: users append from the beginning.
var pool mem.BufferPool = &bufferPool{}

// A bufferPool has buffers of the powers of two from 2 KiB to 64 KiB.
const leastPooledBits, mostPooledBits = 11, 16

// bufferPool implements mem.BufferPool.
type bufferPool struct {
	sizes [mostPooledBits - leastPooledBits + 1]sync.Pool // of *[]byte
}

// Get implements mem.BufferPool. The buffer may hold anything.
func (p *bufferPool) Get(n int) *[]byte {
	i := max(bits.Len(uint(max(n, 1)-1)), leastPooledBits) - leastPooledBits
	if i >= len(p.sizes) {
		return new(make([]byte, n))
	}
	b, ok := p.sizes[i].Get().(*[]byte)
	if !ok {
		return new(make([]byte, n, 1<<(i+leastPooledBits)))
	}
	*b = (*b)[:n]
	return b
}

// Put implements mem.BufferPool. It leaves a buffer of another size, which has grown with its
// content, to the garbage collector.
func (p *bufferPool) Put(b *[]byte) {
	n := cap(*b)
	if i := bits.Len(uint(n)) - 1 - leastPooledBits; i >= 0 && i < len(p.sizes) &&
		n == 1<<(i+leastPooledBits) {
		p.sizes[i].Put(b)
	}
}

// encodeWhole encodes m into one buffer. A pooled buffer returns to the pool after it was sent;
// others are left to the garbage collector.
func encodeWhole(m wire.Encoder) Buffers {
	size := m.Size()
	switch {
	case size == 0:
		return nil
	case mem.IsBelowBufferPoolingThreshold(size), size > maxPooled:
		return Buffers{mem.SliceBuffer(m.AppendTo(make([]byte, 0, size)))}
	}
	buf := pool.Get(size)
	*buf = m.AppendTo((*buf)[:0])
	return Buffers{mem.NewBuffer(buf, pool)}
}

// encodeGenerated is encodeWhole for a generated message.
func encodeGenerated(m proto.Message) (Buffers, error) {
	size := proto.Size(m)
	if mem.IsBelowBufferPoolingThreshold(size) || size > maxPooled {
		b, err := proto.Marshal(m)
		return Buffers{mem.SliceBuffer(b)}, err
	}
	buf := pool.Get(size)
	b, err := proto.MarshalOptions{}.MarshalAppend((*buf)[:0], m)
	if err != nil {
		pool.Put(buf)
		return nil, err
	}
	*buf = b
	return Buffers{mem.NewBuffer(buf, pool)}, nil
}

// encodeLent encodes m into one buffer that returns to its lender.
func encodeLent(m *LentMessage) Buffers {
	buf := m.AppendTo(make([]byte, 0, m.Size()))
	return Buffers{mem.NewBuffer(&buf, &lenderPool{m.Lender})}
}

// lendPieces wraps an encoding whose pieces return to their lenders one by one after they were
// sent.
func lendPieces(list []wire.Piece) Buffers {
	out := make(Buffers, len(list))
	var pool *lenderPool // usually all pieces have the same lender
	for i, p := range list {
		switch {
		case p.Lender == nil:
			out[i] = mem.SliceBuffer(*p.Data)
			continue
		case pool == nil || pool.Lender != p.Lender:
			pool = &lenderPool{p.Lender}
		}
		out[i] = mem.NewBuffer(p.Data, pool)
	}
	return out
}

// lenderPool makes a lender the pool of its pieces.
type lenderPool struct{ kv.Lender }

// Get implements mem.BufferPool. Nobody calls it.
func (p *lenderPool) Get(n int) *[]byte { return mem.DefaultBufferPool().Get(n) }

// Put implements mem.BufferPool.
func (p *lenderPool) Put(b *[]byte) { p.Return(b) }

// Generated makes a generated message a wire.Encoder.
type Generated struct{ proto.Message }

// Size implements wire.Encoder.
func (g Generated) Size() int { return proto.Size(g.Message) }

// AppendTo implements wire.Encoder. It panics if a text is not UTF-8; the codec recovers and
// returns an error.
func (g Generated) AppendTo(b []byte) []byte {
	out, err := proto.MarshalOptions{}.MarshalAppend(b, g.Message)
	if err != nil {
		panic(err)
	}
	return out
}
