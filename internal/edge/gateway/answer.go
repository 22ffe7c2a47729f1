package gateway

import "net/http"

// buffered is how many bytes of an answer the server buffers until the handler returns.
const buffered = 4 << 10

// answer writes an answer piece by piece, or message by message, each with a deadline. It ends with the request's context.
type answer struct {
	http.ResponseWriter
	pace
	control *http.ResponseController
	sent    int // owned by the goroutine that writes
}

func newAnswer(w http.ResponseWriter, r *http.Request) *answer {
	a := &answer{ResponseWriter: w, control: http.NewResponseController(w)}
	a.begin(r.Context(), a.control.SetWriteDeadline)
	return a
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Write implements http.ResponseWriter. The library writes each message of a stream at once, and the server sends what is written at once as one
// chunk, as etcd does: there are clients that take a chunk for a message. Other answers are written in pieces.
func (a *answer) Write(b []byte) (n int, err error) {
	size := writeSize
	if a.Header().Get("Transfer-Encoding") != "" { // by the library, of the answers of streams
		size = max(size, len(b))
	}
	n, err = a.write(b, size, a.ResponseWriter.Write)
	a.sent += n
	return n, err
}

// Flush implements http.Flusher.
func (a *answer) Flush() {
	defer a.unlimit()
	if a.limit(0) {
		_ = a.control.Flush()
	}
}

// end flushes a long answer while there is a deadline, and releases the connection.
func (a *answer) end() {
	if a.sent > buffered {
		a.Flush()
	}
	a.pace.end()
}
