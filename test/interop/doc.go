// Package interop runs the interoperability cases of gRPC, with the client that grpc-go has for them and with that of Node, against the
// server of package transport. It is a module of its own, because that client needs modules of clouds and proxies.
package interop
