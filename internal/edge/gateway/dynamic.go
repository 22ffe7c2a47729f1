package gateway

import (
	"context"
	"fmt"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// registerService serves the methods of a service without generated handlers, at the paths in their
// descriptors.
func (g *Gateway) registerService(sd protoreflect.ServiceDescriptor) error {
	for i := range sd.Methods().Len() {
		d := sd.Methods().Get(i)
		rule, _ := proto.GetExtension(d.Options(), annotations.E_Http).(*annotations.HttpRule)
		if rule.GetPost() == "" || rule.GetBody() != "*" || d.IsStreamingClient() {
			return fmt.Errorf("%s cannot be served: its path is %v", d.FullName(), rule)
		}
		m := &method{g: g, d: d, path: rule.GetPost(),
			full: fmt.Sprintf("/%s/%s", sd.FullName(), d.Name())}
		if err := g.mux.HandlePath(http.MethodPost, m.path, m.serve); err != nil {
			return err
		}
	}
	return nil
}

type method struct {
	g          *Gateway
	d          protoreflect.MethodDescriptor
	path, full string
}

// serve is like the generated handlers of the methods of etcdserverpb.
func (m *method) serve(w http.ResponseWriter, r *http.Request, _ map[string]string) {
	mux := m.g.mux
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	inbound, outbound := runtime.MarshalerForRequest(mux, r)
	call, err := runtime.AnnotateContext(ctx, mux, r, m.full, runtime.WithHTTPPathPattern(m.path))
	if err != nil {
		runtime.HTTPError(ctx, mux, outbound, w, r, err)
		return
	}
	var md runtime.ServerMetadata
	in := dynamicpb.NewMessage(m.d.Input())
	err = decode(inbound, r.Body, in)
	switch {
	case err != nil:
	case m.d.IsStreamingServer():
		var stream grpc.ClientStream
		if stream, err = m.openStream(call, in); err != nil {
			break
		}
		if md.HeaderMD, err = stream.Header(); err != nil {
			break
		}
		call = runtime.NewServerMetadataContext(call, md)
		runtime.ForwardResponseStream(call, mux, outbound, w, r, func() (proto.Message, error) {
			out := dynamicpb.NewMessage(m.d.Output())
			return out, stream.RecvMsg(out)
		}, mux.GetForwardResponseOptions()...)
		return
	default:
		out := dynamicpb.NewMessage(m.d.Output())
		err = m.g.Conn.Invoke(call, m.full, in, out, grpc.Header(&md.HeaderMD),
			grpc.Trailer(&md.TrailerMD))
		if err != nil {
			break
		}
		runtime.ForwardResponseMessage(runtime.NewServerMetadataContext(call, md), mux, outbound, w,
			r, out, mux.GetForwardResponseOptions()...)
		return
	}
	runtime.HTTPError(runtime.NewServerMetadataContext(call, md), mux, outbound, w, r, err)
}

func malformed(err error) error { return status.Errorf(codes.InvalidArgument, "%v", err) }

func (m *method) openStream(ctx context.Context, in proto.Message) (grpc.ClientStream, error) {
	stream, err := m.g.Conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, m.full)
	if err != nil {
		return nil, err
	}
	if err := stream.SendMsg(in); err != nil {
		return nil, err
	}
	return stream, stream.CloseSend()
}
