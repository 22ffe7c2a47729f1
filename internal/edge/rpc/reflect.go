package rpc

import (
	"google.golang.org/grpc/reflection"
	v1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	v1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	"vigil/internal/edge/rpc/lockpb"
)

// registerReflection lets clients ask for the services and their descriptors, in both versions of the
// protocol that are in use.
func (s *Server) registerReflection() {
	o := reflection.ServerOptions{Services: s.grpc, DescriptorResolver: lockpb.Files}
	v1.RegisterServerReflectionServer(s.grpc, reflection.NewServerV1(o))
	v1alpha.RegisterServerReflectionServer(s.grpc, reflection.NewServer(o))
}
