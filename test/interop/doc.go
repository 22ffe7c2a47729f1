// Package interop runs gRPC's interoperability cases against the server of package transport, with
// grpc-go's client for them and with the client of Node.
package interop
