// Package h2http serves HTTP requests on connections of package h2 with an http.Handler. The same
// connection may carry calls of gRPC. The handler of the connection should call h2.Conn.AllowPings.
//
//  1. The handler starts with the header, on its own goroutine. A body is buffered as far as the
//     window of its stream allows; the client may send more when the handler has read that.
//  2. An answer is sent in pieces. Write waits while the client does not take what was written: at
//     most 8 KiB are kept for the client.
//  3. A request counts with requestCost bytes against h2.Options.MaxUnreadBytes, which bounds the
//     number of handlers of a client that does not read its answers.
//  4. The context of a request ends with its stream. Later writes fail.
//  5. A panic of a handler resets its stream.
//
// The writer supports flushing and deadlines by http.ResponseController. After the write deadline
// the stream is reset, as in net/http, even if the handler has returned: with a deadline, its
// goroutine waits until everything is sent. Trailers, pushes and hijacking are not supported.
package h2http
