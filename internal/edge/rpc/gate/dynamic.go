package gate

import (
	"context"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"vigil/internal/edge/rpc/delivery"
	"vigil/internal/edge/rpc/transport"
)

// DynamicUnary returns a unary method of a service that has a descriptor and no generated code.
func DynamicUnary(s protoreflect.ServiceDescriptor, name protoreflect.Name,
	call func(ctx context.Context, in, out *dynamicpb.Message) error) Endpoint {
	m := s.Methods().ByName(name)
	return Endpoint{
		Name:       string(name),
		NewRequest: func() any { return dynamicpb.NewMessage(m.Input()) },
		Unary: func(ctx context.Context, request any) (any, error) {
			out := dynamicpb.NewMessage(m.Output())
			if err := call(ctx, request.(*dynamicpb.Message), out); err != nil {
				return nil, err
			}
			return out, nil
		},
	}
}

// DynamicStream is DynamicUnary for a method that answers one request with many messages, which are
// counted.
func DynamicStream(s protoreflect.ServiceDescriptor, name protoreflect.Name,
	deliveries *delivery.Deliveries,
	serve func(ctx context.Context, in *dynamicpb.Message,
		send func(*dynamicpb.Message) error) error) Endpoint {
	m := s.Methods().ByName(name)
	return Endpoint{Name: string(name), ServerStreams: true,
		Stream: func(s transport.Stream) error {
			in := dynamicpb.NewMessage(m.Input())
			if err := s.RecvMsg(in); err != nil {
				return err
			}
			ctx := s.Context()
			transport.SendUncompressed(ctx)
			return serve(ctx, in, func(out *dynamicpb.Message) error {
				answer, err := deliveries.CountMessage(ctx, out)
				if err != nil {
					return err
				}
				return s.SendMsg(answer)
			})
		}}
}
