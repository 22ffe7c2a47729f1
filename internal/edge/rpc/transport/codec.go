package transport

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"runtime/debug"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"vigil/internal/edge/rpc/wire"
)

// Counter counts bytes.
type Counter interface{ Add(float64) }

// Codec encodes messages of package wire, LentMessage and Encoded by their own methods, and all
// others as grpc-go does. It turns a panic into an error of the call, because messages are also
// encoded outside handlers.
type Codec struct {
	log            *slog.Logger
	received, sent Counter
	generated      encoding.CodecV2
}

// NewCodec makes a codec that counts the bytes of the messages that it decodes and encodes, except
// Encoded ones.
func NewCodec(log *slog.Logger, received, sent Counter) *Codec {
	return &Codec{log, received, sent, encoding.GetCodecV2(protocodec.Name)}
}

// Name implements encoding.CodecV2.
func (c *Codec) Name() string { return protocodec.Name }

// Marshal implements encoding.CodecV2.
func (c *Codec) Marshal(v any) (out Buffers, err error) {
	if m, ok := v.(*Encoded); ok {
		return m.buffers, nil // counted by the sender, once for many
	}
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, Recovered(c.log, fmt.Sprintf("encoding %T", v), p)
		}
		c.sent.Add(float64(out.Len()))
	}()
	switch v := v.(type) {
	case *LentMessage:
		return encodeLent(v), nil
	case wire.Long:
		if list := v.Pieces(nil); list != nil {
			return lendPieces(list), nil
		}
		return encodeWhole(v), nil
	case wire.Encoder:
		return encodeWhole(v), nil
	case proto.Message:
		return encodeGenerated(v)
	}
	return c.generated.Marshal(v)
}

// appendSmall appends a message with its head, uncompressed. It appends nothing and returns false
// if the encoding has more than most bytes, needs lent memory, or fails.
func (c *Codec) appendSmall(b []byte, v any, most int) (out []byte, ok bool) {
	at := len(b)
	defer func() {
		if recover() != nil { // Marshal will panic again, and reports it
			out, ok = b, false
		}
	}()
	switch m := v.(type) {
	case *Encoded, *LentMessage:
		return b, false
	case wire.Encoder:
		if long, ok := v.(wire.Long); ok && long.Pieces(nil) != nil || m.Size() > most {
			return b, false
		}
		out = m.AppendTo(appendMessageHead(b, 0))
	case proto.Message:
		if proto.Size(m) > most {
			return b, false
		}
		var err error
		if out, err = (proto.MarshalOptions{}).MarshalAppend(appendMessageHead(b, 0),
			m); err != nil {
			return b, false
		}
	default:
		return b, false
	}
	n := len(out) - at - messageHead
	binary.BigEndian.PutUint32(out[at+1:], uint32(n))
	c.sent.Add(float64(n))
	return out, true
}

// Unmarshal implements encoding.CodecV2. A decoded message may alias data that is never reused.
// Buffers of a pool are copied; all others are left to the garbage collector.
func (c *Codec) Unmarshal(data Buffers, v any) (err error) {
	defer c.recoverInto("decoding", v, &err)
	c.received.Add(float64(data.Len()))
	m, ok := v.(wire.Decoder)
	if !ok {
		return c.generated.Unmarshal(data, v)
	}
	if len(data) == 1 {
		if b, ok := data[0].(mem.SliceBuffer); ok {
			return m.Decode(b)
		}
	}
	return m.Decode(data.Materialize())
}

// decode is Unmarshal for bytes that are never reused. It does not count them: countReceived does
// once the message will not be decoded again.
func (c *Codec) decode(data []byte, v any) (err error) {
	defer c.recoverInto("decoding", v, &err)
	if m, ok := v.(wire.Decoder); ok {
		return m.Decode(data)
	}
	return c.generated.Unmarshal(OneBuffer(data), v)
}

// countReceived counts the bytes of a message from decode.
func (c *Codec) countReceived(data []byte) { c.received.Add(float64(len(data))) }

// countSent counts the bytes of a message that was encoded elsewhere.
func (c *Codec) countSent(n int) { c.sent.Add(float64(n)) }

// recoverInto, when deferred, turns a panic into an error.
func (c *Codec) recoverInto(what string, v any, err *error) {
	if p := recover(); p != nil {
		*err = Recovered(c.log, fmt.Sprintf("%s %T", what, v), p)
	}
}

// ErrPanic is the status of a call whose handler panicked.
var ErrPanic = status.Error(codes.Internal, "vigil: internal error, see the log of the member")

// Recovered logs a recovered panic and returns the status for the client.
func Recovered(log *slog.Logger, where string, p any) error {
	log.Error("panic in a request handler", "method", where, "panic", fmt.Sprint(p), "stack",
		string(debug.Stack()))
	return ErrPanic
}
