// Package h2http serves requests on connections of package h2 with an http.Handler, next to calls of gRPC on the same connection.
//
//  1. The handler runs on a goroutine of its own, from the header on. A body is buffered as far as the window of its stream
//     allows, and the client may send more when the handler has read that.
//  2. An answer is sent piece by piece. The handler waits in Write while the client does not take what was written: at most 8 KiB
//     are kept for it.
//  3. A request counts with requestCost among the memory of its connection that h2 bounds, so that a client which does not read
//     its answers has a bounded number of handlers (h2.Options.MaxUnreadBytes).
//  4. The context of a request ends with its stream. Writes fail from then on.
//  5. A handler that panics resets its stream.
//
// The writer has the methods that http.ResponseController uses for flushing and deadlines. A write deadline that has passed resets the
// stream, as in net/http, also after the handler has returned: with a deadline, its goroutine waits until all is sent. Trailers, pushes and hijacking are not supported.
package h2http
