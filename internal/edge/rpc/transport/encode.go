package transport

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"vigil/internal/edge/rpc/wire"
	"vigil/internal/kv"
	"vigil/internal/store/ration"
)

// Buffers is an encoded message. Each buffer must be freed.
type Buffers = mem.BufferSlice

// OneBuffer returns a message of bytes that are not reused.
func OneBuffer(b []byte) Buffers { return Buffers{mem.SliceBuffer(b)} }

// LentMessage is a message whose encoded buffer is returned to a lender after it was sent.
type LentMessage struct {
	wire.Encoder
	Lender kv.Lender
}

// maxPooled is the size in bytes up to which encoded answers are in pooled memory. Larger ones are counted.
const maxPooled = ration.FreeSize

// pool is the pool of encoded answers. Its buffers are at most twice as large as their content; those of grpc-go's own
// pool are not: it has no size between 32 KiB and 1 MiB.
var pool = newPool()

func newPool() mem.BufferPool {
	p, err := mem.NewBinaryTieredBufferPool(11, 12, 13, 14, 15, 16)
	if err != nil {
		panic(err)
	}
	return p
}

// encodeWhole encodes m into one buffer. A pooled one is returned after it was sent; others are left to the garbage
// collector.
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

// lendPieces wraps an encoding with lent pieces, which return to their lenders one by one as they are sent.
func lendPieces(list []wire.Piece) Buffers {
	out := make(Buffers, len(list))
	var pool *lenderPool // mostly all pieces have the same lender
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

// lenderPool is a lender as the pool of its pieces.
type lenderPool struct{ kv.Lender }

// Get implements mem.BufferPool. It is not called.
func (p *lenderPool) Get(n int) *[]byte { return mem.DefaultBufferPool().Get(n) }

// Put implements mem.BufferPool.
func (p *lenderPool) Put(b *[]byte) { p.Return(b) }

// Generated is a generated message as wire.Encoder.
type Generated struct{ proto.Message }

// Size implements wire.Encoder.
func (g Generated) Size() int { return proto.Size(g.Message) }

// AppendTo implements wire.Encoder. It panics if a text is not UTF-8; the codec recovers and returns an error.
func (g Generated) AppendTo(b []byte) []byte {
	out, err := proto.MarshalOptions{}.MarshalAppend(b, g.Message)
	if err != nil {
		panic(err)
	}
	return out
}
