package rpc

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"vigil/internal/edge/rpc/wire"
	"vigil/internal/store/ration"
)

// maxPooled is the size up to which encoded answers are in pooled memory. It is that up to which they are not
// counted, so a buffer must not be much larger than what is in it: the transport's own pool has nothing between
// 32 KiB and 1 MiB, and what is larger than that gets a buffer of any size.
const maxPooled = ration.FreeSize

// buffers is the pool of encoded answers.
var buffers = newBuffers()

func newBuffers() mem.BufferPool {
	p, err := mem.NewBinaryTieredBufferPool(11, 12, 13, 14, 15, 16)
	if err != nil {
		panic(err)
	}
	return p
}

// whole is the encoding of m in one buffer. One from the pool goes back after it is sent; others are left to the
// garbage collector.
func whole(m wire.Encoder) mem.BufferSlice {
	size := m.Size()
	switch {
	case size == 0:
		return nil
	case mem.IsBelowBufferPoolingThreshold(size), size > maxPooled:
		return mem.BufferSlice{mem.SliceBuffer(m.AppendTo(make([]byte, 0, size)))}
	}
	buf := buffers.Get(size)
	*buf = m.AppendTo((*buf)[:0])
	return mem.BufferSlice{mem.NewBuffer(buf, buffers)}
}

// message is whole for a message that is generated.
func message(m proto.Message) (mem.BufferSlice, error) {
	size := proto.Size(m)
	if mem.IsBelowBufferPoolingThreshold(size) || size > maxPooled {
		b, err := proto.Marshal(m)
		return mem.BufferSlice{mem.SliceBuffer(b)}, err
	}
	buf := buffers.Get(size)
	b, err := proto.MarshalOptions{}.MarshalAppend((*buf)[:0], m)
	if err != nil {
		buffers.Put(buf)
		return nil, err
	}
	*buf = b
	return mem.BufferSlice{mem.NewBuffer(buf, buffers)}, nil
}

// counted is the encoding of an answer that counts until it is sent.
func counted(m *heavy) mem.BufferSlice {
	buf := m.AppendTo(make([]byte, 0, m.Size()))
	return mem.BufferSlice{mem.NewBuffer(&buf, m.sending)}
}

// pieces is an encoding of which some parts are lent. They go back one by one as they are sent.
func pieces(list []wire.Piece) mem.BufferSlice {
	out := make(mem.BufferSlice, len(list))
	for i, p := range list {
		if pool, ok := p.Lender.(mem.BufferPool); ok {
			out[i] = mem.NewBuffer(p.Data, pool)
		} else {
			out[i] = mem.SliceBuffer(*p.Data)
		}
	}
	return out
}

// generated is a generated message as an Encoder of an answer that counts.
type generated struct{ proto.Message }

// Size implements wire.Encoder.
func (g generated) Size() int { return proto.Size(g.Message) }

// AppendTo implements wire.Encoder. It panics if a text is not UTF-8, which the codec makes an error.
func (g generated) AppendTo(b []byte) []byte {
	out, err := proto.MarshalOptions{}.MarshalAppend(b, g.Message)
	if err != nil {
		panic(err)
	}
	return out
}
