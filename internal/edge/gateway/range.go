package gateway

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

const (
	rangePath = "/v3/kv/range"
	// streamFrom is the size in bytes of an encoded answer from which it is translated key by key.
	streamFrom = 64 << 10
)

// serveRange is like the generated handlers of other methods, but it leaves a large answer in its
// lent memory, and returns that memory as it sends the answer.
func (g *Gateway) serveRange(w http.ResponseWriter, r *http.Request, _ map[string]string) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	inbound, outbound := runtime.MarshalerForRequest(g.mux, r)
	call, err := runtime.AnnotateContext(ctx, g.mux, r, etcdserverpb.KV_Range_FullMethodName,
		runtime.WithHTTPPathPattern(rangePath))
	if err != nil {
		runtime.HTTPError(ctx, g.mux, outbound, w, r, err)
		return
	}
	var md runtime.ServerMetadata
	var parts mem.BufferSlice
	in := &etcdserverpb.RangeRequest{}
	if err = decode(inbound, r.Body, in); err == nil {
		err = g.Conn.Invoke(call, etcdserverpb.KV_Range_FullMethodName, in, &parts,
			grpc.Header(&md.HeaderMD), grpc.Trailer(&md.TrailerMD))
	}
	call = runtime.NewServerMetadataContext(call, md)
	if err != nil {
		runtime.HTTPError(call, g.mux, outbound, w, r, err)
		return
	}
	out := &etcdserverpb.RangeResponse{}
	if parts.Len() < streamFrom {
		err := proto.Unmarshal(parts.Materialize(), out)
		parts.Free()
		if err != nil {
			runtime.HTTPError(call, g.mux, outbound, w, r, err)
			return
		}
		runtime.ForwardResponseMessage(call, g.mux, outbound, w, r, out,
			g.mux.GetForwardResponseOptions()...)
		return
	}
	src := parts.Reader() // owns the buffers now, and frees each after reading it
	parts.Free()
	defer src.Close()
	runtime.ForwardResponseMessage(call, g.mux, headOnly{outbound}, w, r, out,
		g.mux.GetForwardResponseOptions()...)
	buf := bufio.NewWriterSize(w, writeSize)
	if err := translateRange(ctx, buf, src, outbound); err == nil {
		_ = buf.Flush() // if it fails the client is gone
	}
}

// headOnly encodes a message as nothing, so that only the header is written.
type headOnly struct{ runtime.Marshaler }

// Marshal implements runtime.Marshaler.
func (headOnly) Marshal(any) ([]byte, error) { return nil, nil }

// The fields of a RangeResponse.
const (
	fieldHeader = 1
	fieldKVs    = 2
	fieldMore   = 3
	fieldCount  = 4
)

// translateRange writes an encoded RangeResponse as JSON, with the same bytes as for the whole
// message.
func translateRange(ctx context.Context, w *bufio.Writer, src *mem.Reader,
	m runtime.Marshaler) error {
	var scratch []byte
	message := func(into proto.Message) error {
		n, err := binary.ReadUvarint(src)
		if err != nil {
			return err
		}
		if n > math.MaxInt32 || int(n) > src.Remaining() {
			return io.ErrUnexpectedEOF
		}
		if uint64(cap(scratch)) < n {
			scratch = make([]byte, n)
		}
		if _, err := io.ReadFull(src, scratch[:n]); err != nil {
			return err
		}
		if err := proto.Unmarshal(scratch[:n], into); err != nil {
			return err
		}
		b, err := m.Marshal(into)
		if err != nil {
			return err
		}
		if cap(scratch) > writeSize {
			scratch = nil // the client may read slowly, and must not hold the record twice
		}
		_, err = w.Write(b)
		return err
	}
	last, sep := protowire.Number(0), "{"
	for src.Remaining() > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		tag, err := binary.ReadUvarint(src)
		if err != nil {
			return err
		}
		field, _ := protowire.DecodeTag(tag)
		if last == fieldKVs && field != fieldKVs {
			_ = w.WriteByte(']') // a bufio.Writer keeps its error
		}
		switch field {
		case fieldHeader:
			_, _ = w.WriteString(sep + `"header":`)
			err = message(&etcdserverpb.ResponseHeader{})
		case fieldKVs:
			if last != fieldKVs {
				_, _ = w.WriteString(sep + `"kvs":[`)
			} else {
				_ = w.WriteByte(',')
			}
			err = message(&mvccpb.KeyValue{})
		case fieldMore, fieldCount:
			var v uint64
			if v, err = binary.ReadUvarint(src); field == fieldMore {
				_, _ = w.WriteString(sep + `"more":` + strconv.FormatBool(v != 0))
			} else {
				_, _ = w.WriteString(sep + `"count":"` + strconv.FormatInt(int64(v), 10) + `"`)
			}
		default:
			err = fmt.Errorf("field %d of a range's answer", field)
		}
		if err != nil {
			return err
		}
		last, sep = field, ","
	}
	if last == fieldKVs {
		_ = w.WriteByte(']')
	}
	if last == 0 {
		_ = w.WriteByte('{')
	}
	return w.WriteByte('}')
}

// decode reads a message, which is empty without a body, and discards the rest of the body.
func decode(inbound runtime.Marshaler, b io.Reader, in proto.Message) error {
	if err := inbound.NewDecoder(b).Decode(in); err != nil && !errors.Is(err, io.EOF) {
		return malformed(err)
	}
	_, _ = io.Copy(io.Discard, b)
	return nil
}
