package transport

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/protobuf/reflect/protodesc"
)

// Reflection returns the reflection services, in both versions of the protocol, for the given
// services and themselves.
func Reflection(services []Service, descriptors protodesc.Resolver) []Service {
	const method = "ServerReflectionInfo"
	names := serviceNames{grpc_reflection_v1.ServerReflection_ServiceDesc.ServiceName: {},
		grpc_reflection_v1alpha.ServerReflection_ServiceDesc.ServiceName: {}}
	for _, s := range services {
		names[s.Name] = grpc.ServiceInfo{}
	}
	o := reflection.ServerOptions{Services: names, DescriptorResolver: descriptors}
	v1, v1alpha := reflection.NewServerV1(o), reflection.NewServer(o)
	service := func(name string, serve func(Stream) error) Service {
		return Service{name,
			[]Method{{Name: method, ClientStreams: true, ServerStreams: true, Stream: serve}}}
	}
	return []Service{
		service(grpc_reflection_v1.ServerReflection_ServiceDesc.ServiceName,
			bidirectional(v1.ServerReflectionInfo)),
		service(grpc_reflection_v1alpha.ServerReflection_ServiceDesc.ServiceName,
			bidirectional(v1alpha.ServerReflectionInfo)),
	}
}

// bidirectional turns a handler for generated code into one for a Method.
func bidirectional[Request,
	Response any](serve func(grpc.BidiStreamingServer[Request,
	Response]) error) func(Stream) error {
	return func(s Stream) error { return serve(AsGenerated[Request, Response](s)) }
}

// AsGenerated returns a stream in the form that generated code needs. A header is sent with the
// first message.
func AsGenerated[Request, Response any](s Stream) *grpc.GenericServerStream[Request, Response] {
	return &grpc.GenericServerStream[Request, Response]{ServerStream: generatedStream{s}}
}

// generatedStream makes a Stream a grpc.ServerStream.
type generatedStream struct{ Stream }

func (s generatedStream) SetHeader(md metadata.MD) error  { return SetHeader(s.Context(), md) }
func (s generatedStream) SendHeader(md metadata.MD) error { return SetHeader(s.Context(), md) }
func (s generatedStream) SetTrailer(md metadata.MD)       { _ = SetTrailer(s.Context(), md) }

// serviceNames lists services for package reflection, without methods, which that package does not
// use.
type serviceNames map[string]grpc.ServiceInfo

// GetServiceInfo implements reflection.ServiceInfoProvider.
func (n serviceNames) GetServiceInfo() map[string]grpc.ServiceInfo { return n }
