// Package grpcconn is a gRPC client reduced to what a load generator needs: many calls on one
// connection at a cost of about a microsecond each, so that the server is measured and not the
// client.
//
// It speaks plain HTTP/2 over TCP with the HPACK of golang.org/x/net. It is cheap because receive
// windows are so large that window updates are rare, frames wait in one buffer until Flush writes
// them together, answers are passed as slices of the read buffer, and a connection has a
// single goroutine, its reader, on which every answer is handled.
//
// Invariants:
//  1. Every method of a Handler is called on the reader goroutine of its connection, in the order
//     the frames came in. It must not block: while it runs, the connection reads nothing.
//  2. A Handler's End is called exactly once, after its last Message, whatever happens: an
//     answer, a reset, a lost connection, Close. Nothing is called after it.
//  3. A message passed to Message is valid until that call returns.
//  4. Open, Send, CloseSend and Cancel only queue. What a handler queued is flushed by the reader
//     when it has handled the data of one read; callers outside of the reader call Flush.
//  5. The server's flow control windows are obeyed; data that does not fit waits on its stream, in
//     order, until a window update comes.
package grpcconn
