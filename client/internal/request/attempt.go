package request

import (
	"context"
	"errors"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// Attempt is a part of every request. It records whether gRPC has asked for the encoding since
// Begin. gRPC does so only when it has a stream to send the request on, so a request that was not
// encoded has not reached a server. It also holds what the first attempt needs, which saves
// allocations.
type Attempt struct {
	encoded bool
	ctx     Context
	data    sliceBuffer
	one     [1]mem.Buffer
}

// sliceBuffer is a mem.SliceBuffer in place.
type sliceBuffer struct{ mem.SliceBuffer }

// Begin starts another attempt.
func (a *Attempt) Begin() { a.encoded = false }

// Sent reports whether the request may have been sent since Begin.
func (a *Attempt) Sent() bool { return a.encoded }

// First returns the memory for the context of the first attempt.
func (a *Attempt) First() *Context { return &a.ctx }

// buffers passes an encoding to gRPC. It does not use gRPC's pools: they do not pool small buffers
// and round up large ones.
func (a *Attempt) buffers(b []byte) (mem.BufferSlice, error) {
	a.encoded = true
	if a.one[0] != nil {
		// an earlier attempt may still use the buffer
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	a.data.SliceBuffer = b
	a.one[0] = &a.data
	return a.one[:], nil
}

// Context is the context of the caller, with the outgoing metadata of another context.
type Context struct {
	context.Context
	Metadata context.Context
}

// Value implements context.Context.
func (c *Context) Value(key any) any {
	if v := c.Metadata.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key)
}

// Encoder is a request that encodes itself.
type Encoder interface {
	Marshal() (mem.BufferSlice, error)
}

// ErrMalformed means that the bytes of a server are not an encoding of the message.
var ErrMalformed = errors.New("malformed message from the server")

// Generated is a request that the generated code encodes.
type Generated struct {
	Attempt
	proto.Message
}

// Encoded records that gRPC has asked for the encoding.
func (g *Generated) Encoded() { g.encoded = true }
