// Package h2 serves connections of HTTP/2 that carry many small requests and many long streams.
// golang.org/x/net/http2 parses frames, and its hpack parses headers. This package schedules: who
// reads, who writes, and in which order. It knows nothing of gRPC, whose messages its user finds in
// the bodies of requests.
//
// A user implements Handler and Exchange. An Exchange has a Stream, which is the context of its
// request.
//
//  1. One goroutine reads a connection. It calls the methods of Handler and Exchange, which must
//     not block. Like AnswerLater, FinishLater and Flush it never waits for the client to read.
//
//  2. At most one goroutine writes: the one that made the first output ready. It also writes what
//     others make ready until then, all in one vectored write. A connection without output needs no
//     goroutine for writing.
//
//  3. A stream whose client does not read blocks no other stream. Streams with data take turns of
//     one frame. Frames without data are written first.
//
//  4. A buffer that was given to a Stream is freed exactly once: after it was written or when it is
//     dropped.
//
//  5. The context of a request ends when its stream ends, when either side resets the stream, at
//     its deadline, and when the connection ends.
//
//  6. The memory that a client can occupy without a handler's consent is bounded for each
//     connection and stream, and so is the number of frames without effect. Requests beyond
//     MaxUnreadBytes are refused with REFUSED_STREAM. A client that exceeds another bound loses its
//     connection with ENHANCE_YOUR_CALM.
//
//  7. Any goroutine may call Close at any time. After Serve has returned, every context of the
//     connection has ended.
//
//  8. Each Wake is followed by a call of Filler.Fill as soon as the client lets something pass,
//     unless the stream ends before. Calls of Fill never overlap. Ended is called once.
//
// DESIGN.md has the reasons.
package h2
