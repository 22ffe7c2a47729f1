package transport

import (
	"context"
	"encoding/base64"
	"maps"
	"slices"
	"strings"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// outMetadata has the metadata that a handler sends. Owned by the goroutine that sends.
type outMetadata struct{ header, trailer []hpack.HeaderField }

// SetHeader adds metadata to the header of a call's answer. The goroutine that sends must call it
// before the first answer.
func SetHeader(ctx context.Context, md metadata.MD) error {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c.setHeader(md)
	}
	return errNoCall
}

// SetTrailer adds metadata to the trailer of a call's answer. The goroutine that sends must call
// it.
func SetTrailer(ctx context.Context, md metadata.MD) error {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		c.setTrailer(md)
		return nil
	}
	return errNoCall
}

// errNoCall is the error of SetHeader and SetTrailer for calls made in this process.
var errNoCall = status.Error(codes.Internal, "a call in this process has no metadata in its answer")

func (c *call) setHeader(md metadata.MD) error {
	if c.headerSent {
		return status.Error(codes.Internal, "the header was sent already")
	}
	out := c.outMetadata()
	out.header = appendMetadata(out.header, md)
	return nil
}

func (c *call) setTrailer(md metadata.MD) {
	out := c.outMetadata()
	out.trailer = appendMetadata(out.trailer, md)
}

func (c *call) outMetadata() *outMetadata {
	if c.out == nil {
		c.out = &outMetadata{}
	}
	return c.out
}

// appendMetadata appends metadata as fields. It leaves out names that belong to the protocol.
func appendMetadata(fields []hpack.HeaderField, md metadata.MD) []hpack.HeaderField {
	for _, name := range slices.Sorted(maps.Keys(md)) {
		switch name {
		case "", "content-type", "user-agent", "te":
			continue
		}
		if name[0] == ':' || strings.HasPrefix(name, "grpc-") {
			continue
		}
		for _, v := range md[name] {
			if strings.HasSuffix(name, "-bin") {
				v = base64.RawStdEncoding.EncodeToString([]byte(v))
			}
			fields = append(fields, hpack.HeaderField{Name: name, Value: v})
		}
	}
	return fields
}

// sendHandlerHeader sends the header of an answer that has no message yet, if the handler has set
// metadata in it.
func (c *call) sendHandlerHeader() {
	if c.out != nil && len(c.out.header) > 0 && !c.headerSent {
		c.stream.SendHeader(c.header.answerHeader(c.out))
		c.headerSent = true
	}
}
