package gateway

import "net/http"

// buffered is the number of bytes that the server buffers until the handler returns.
const buffered = 4 << 10

// answer writes an answer piece by piece, or message by message, each with a deadline. It ends with
// the request's context.
type answer struct {
	http.ResponseWriter
	pace
	control *http.ResponseController
	sent    int // owned by the goroutine that writes
}

func newAnswer(w http.ResponseWriter, r *http.Request) *answer {
	a := &answer{ResponseWriter: w, control: http.NewResponseController(w)}
	a.startPacing(r.Context(), a.control.SetWriteDeadline)
	return a
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Write implements http.ResponseWriter. The library writes each message of a stream in one call,
// and the server sends that as one chunk, as etcd does: some clients take a chunk for a message.
// Other answers are written in pieces.
func (a *answer) Write(b []byte) (n int, err error) {
	size := writeSize
	if a.Header().Get("Transfer-Encoding") != "" { // by the library, of the answers of streams
		size = max(size, len(b))
	}
	n, err = a.writePieces(b, size, a.ResponseWriter.Write)
	a.sent += n
	return n, err
}

// Flush implements http.Flusher.
func (a *answer) Flush() {
	defer a.clearDeadline()
	if a.setDeadlineFor(0) {
		_ = a.control.Flush()
	}
}

// finish flushes a long answer while there is a deadline, and releases the connection.
func (a *answer) finish() {
	if a.sent > buffered {
		a.Flush()
	}
	a.pace.release()
}
