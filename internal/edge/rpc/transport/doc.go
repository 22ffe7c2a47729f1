// Package transport is the server of gRPC: it carries the calls of clients to the services of the
// API. Services see methods, streams, clients and messages as this package declares them. grpc-go's
// server is the judge of frames and answers in tests.
//
//  1. A request of package wire may alias the received bytes, which are never reused.
//  2. A response or message belongs to the transport once it is sent. Memory that a kv.Lender has
//     lent goes back piece by piece, each after it was sent or dropped.
//  3. Receiving on a Stream waits until the stream ends. Sending waits while the client does not
//     read. A Session does not wait: it is notified, and WatchEncoder.Queue reports whether there
//     is room.
//  4. A panic during encoding or decoding fails that call only.
//  5. After Stop has returned, no handler runs.
//
// The context of a call has the client's address and TLS state (Remote, TLS), the connection
// (ClientOf), and the client's metadata for package google.golang.org/grpc/metadata. Errors come
// from package google.golang.org/grpc/status.
package transport
