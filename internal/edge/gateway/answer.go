package gateway

import "net/http"

// buffered is how many bytes of an answer the server buffers until the handler returns.
const buffered = 4 << 10

// answer writes an answer piece by piece, each with a deadline. It ends with the request's context.
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

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (n int, err error) {
	n, err = a.write(b, a.ResponseWriter.Write)
	a.sent += n
	return n, err
}

// Flush implements http.Flusher.
func (a *answer) Flush() {
	defer a.unlimit()
	if a.limit() {
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
