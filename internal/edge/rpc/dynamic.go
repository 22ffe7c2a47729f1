package rpc

import (
	"context"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"vigil/internal/edge/rpc/locks"
	"vigil/internal/edge/rpc/transport"
)

// dynamicService returns a service of which only the descriptor is generated. It panics if one of its methods is missing.
func (s *service) dynamicService(sd protoreflect.ServiceDescriptor, c locks.Calls) serviceDef {
	d := serviceDef{name: string(sd.FullName())}
	for i := range sd.Methods().Len() {
		m := sd.Methods().Get(i)
		e := endpoint{name: string(m.Name()), serverStreams: m.IsStreamingServer()}
		call, stream := c.Unary[m.Name()], c.Stream[m.Name()]
		switch {
		case stream != nil && m.IsStreamingServer():
			e.stream = func(ss *serverStream) error {
				in := dynamicpb.NewMessage(m.Input())
				if err := ss.RecvMsg(in); err != nil {
					return err
				}
				transport.SendUncompressed(ss.Context())
				return stream(ss.Context(), in, func(out *dynamicpb.Message) error {
					answer, err := s.deliveries.CountMessage(ss.Context(), out)
					if err != nil {
						return err
					}
					return ss.SendMsg(answer)
				})
			}
		case call != nil && !m.IsStreamingServer():
			e.newRequest = func() any { return dynamicpb.NewMessage(m.Input()) }
			e.unary = func(ctx context.Context, request any) (any, error) {
				out := dynamicpb.NewMessage(m.Output())
				if err := call(ctx, request.(*dynamicpb.Message), out); err != nil {
					return nil, err
				}
				return out, nil
			}
		default:
			panic("rpc: no implementation of " + string(m.FullName()))
		}
		d.methods = append(d.methods, e)
	}
	return d
}
