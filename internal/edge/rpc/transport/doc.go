// Package transport is the server of gRPC: it carries the calls of clients to the services of the API. Services see
// methods, streams, clients and messages as this package declares them. grpc-go's server is the judge of frames and
// answers in tests.
//
//  1. A request of package wire may alias the bytes that were received, which are never reused.
//  2. A response or message that is sent belongs to the transport from then on. Memory that a kv.Lender has lent goes
//     back to it piece by piece, each after it was sent or dropped; a piece that is dropped without notice is left to
//     the garbage collector together with the lender.
//  3. Receiving on a Stream is interrupted only by the end of the handler. Sending on it blocks while the client does not read.
//     A Session is notified instead, and WatchEncoder.Queue reports whether there is room.
//  4. A panic while a message is encoded or decoded fails that call only.
//  5. After Stop has returned no handler runs.
//
// What a call's context contains: the client's address and TLS state (Remote, TLS), the connection (ClientOf), and
// the metadata that the client has sent, as package google.golang.org/grpc/metadata reads it. Errors are those of
// package google.golang.org/grpc/status.
package transport
