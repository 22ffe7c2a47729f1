package client

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec for everything that is not hot
	"google.golang.org/grpc/mem"

	"vigil/client/internal/request"
)

// codec encodes the hot messages by hand and all others with the generated code.
type codec struct{ generated encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

// Name is empty, so calls have the plain content type of gRPC, which means protocol buffers. The
// codec is not registered under a name.
func (codec) Name() string { return "" }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	switch m := v.(type) {
	case *request.Generated:
		m.Encoded()
		return c.generated.Marshal(m.Message)
	case request.Encoder:
		return m.Marshal()
	}
	return c.generated.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(response); ok {
		return unmarshal(data, m)
	}
	return c.generated.Unmarshal(data, v)
}
