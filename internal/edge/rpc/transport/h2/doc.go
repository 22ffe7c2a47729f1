// Package h2 serves connections of HTTP/2 that carry many small requests and many long streams. Frames are parsed by
// golang.org/x/net/http2 and headers by its hpack; this package schedules: who reads, who writes, and in which order. It
// knows nothing of gRPC, whose messages its user finds in the bodies of requests.
//
// A user implements Handler and Exchange, and embeds a Stream in the latter. A Stream is the context of its request.
//
//  1. One goroutine reads a connection. It calls the methods of Handler and Exchange, which must not block, and it never
//     waits for the client to read: neither do AnswerLater, FinishLater and Flush.
//
//  2. At most one goroutine writes: the one that made the first output ready, which also writes what others make ready
//     meanwhile, all of it in one vectored write. A connection without output has no goroutine for it.
//
//  3. A stream whose client does not read blocks no other stream. Streams with data take turns of one frame, and frames
//     without data are written first.
//
//  4. A buffer that was given to a Stream is freed exactly once: after it was written, or when it is dropped.
//
//  5. The context of a request ends when its stream ends, is reset by either side, or its deadline or the connection is over.
//
//  6. The memory that a client can occupy without a handler's consent is bounded for each connection and stream, and so is
//     the number of frames without effect. Requests beyond MaxUnreadBytes are refused with REFUSED_STREAM; a client that
//     exceeds another bound loses its connection with ENHANCE_YOUR_CALM.
//
//  7. Close may be called at any time, by any goroutine. After Serve has returned, every context of the connection has ended.
//
//  8. Fill of a Filler is called after each Wake, when the client lets something pass, unless the stream ends before, and never twice
//     at the same time. Ended is called once.
//
// DESIGN.md has the reasons.
package h2
