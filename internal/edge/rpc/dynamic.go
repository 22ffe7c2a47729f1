package rpc

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// dynamicCalls implements the methods of a service that has only descriptors, by name.
type dynamicCalls struct {
	unary  map[protoreflect.Name]func(ctx context.Context, in, out *dynamicpb.Message) error
	stream map[protoreflect.Name]func(ctx context.Context, in *dynamicpb.Message, send func(any) error) error
}

// describe makes of them what the transport wants. It panics if a method is missing.
func (c dynamicCalls) describe(sd protoreflect.ServiceDescriptor) *grpc.ServiceDesc {
	desc := &grpc.ServiceDesc{ServiceName: string(sd.FullName()), Metadata: sd.ParentFile().Path(), HandlerType: (*any)(nil)}
	for i := range sd.Methods().Len() {
		m := sd.Methods().Get(i)
		if m.IsStreamingServer() {
			desc.Streams = append(desc.Streams, c.streamDesc(m))
		} else {
			desc.Methods = append(desc.Methods, c.methodDesc(sd, m))
		}
	}
	return desc
}

func (c dynamicCalls) methodDesc(sd protoreflect.ServiceDescriptor, m protoreflect.MethodDescriptor) grpc.MethodDesc {
	call := c.unary[m.Name()]
	if call == nil {
		panic("rpc: no implementation of " + string(m.FullName()))
	}
	info := &grpc.UnaryServerInfo{FullMethod: "/" + string(sd.FullName()) + "/" + string(m.Name())}
	return grpc.MethodDesc{MethodName: string(m.Name()), Handler: func(_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		in := dynamicpb.NewMessage(m.Input())
		if err := decode(in); err != nil {
			return nil, err
		}
		return intercept(ctx, in, info, func(ctx context.Context, _ any) (any, error) {
			out := dynamicpb.NewMessage(m.Output())
			if err := call(ctx, in, out); err != nil {
				return nil, err
			}
			return out, nil
		})
	}}
}

func (c dynamicCalls) streamDesc(m protoreflect.MethodDescriptor) grpc.StreamDesc {
	call := c.stream[m.Name()]
	if call == nil {
		panic("rpc: no implementation of " + string(m.FullName()))
	}
	return grpc.StreamDesc{StreamName: string(m.Name()), ServerStreams: true, Handler: func(_ any, ss grpc.ServerStream) error {
		in := dynamicpb.NewMessage(m.Input())
		if err := ss.RecvMsg(in); err != nil {
			return err
		}
		return call(ss.Context(), in, ss.SendMsg)
	}}
}

// uncoded returns err as the services of locks and elections answer with it. Those of etcd are clients of
// their own member, and an error of the API arrives there as a text without its code.
func uncoded(err error) error {
	if e := (rpctypes.EtcdError{}); errors.As(rpctypes.Error(err), &e) {
		return status.Error(codes.Unknown, e.Error())
	}
	return err
}
