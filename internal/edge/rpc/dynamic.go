package rpc

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
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

// service returns the service with these methods. It panics if one of the descriptor's methods is missing.
func (c dynamicCalls) service(sd protoreflect.ServiceDescriptor) serviceDef {
	d := serviceDef{name: string(sd.FullName())}
	for i := range sd.Methods().Len() {
		m := sd.Methods().Get(i)
		e := endpoint{name: string(m.Name()), serverStreams: m.IsStreamingServer()}
		call, stream := c.unary[m.Name()], c.stream[m.Name()]
		switch {
		case stream != nil && m.IsStreamingServer():
			e.stream = func(ss *serverStream) error {
				in := dynamicpb.NewMessage(m.Input())
				if err := ss.RecvMsg(in); err != nil {
					return err
				}
				return stream(ss.Context(), in, ss.SendMsg)
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

// uncoded returns err as the services of locks and elections answer with it. Those of etcd are clients of
// their own member, and an error of the API arrives there as a text without its code.
func uncoded(err error) error {
	if e := (rpctypes.EtcdError{}); errors.As(rpctypes.Error(err), &e) {
		return status.Error(codes.Unknown, e.Error())
	}
	return err
}
