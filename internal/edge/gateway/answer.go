package gateway

import "net/http"

// buffered is the size in bytes of what the server keeps of an answer until the handler is over.
const buffered = 4 << 10

// answer is what a client gets, piece by piece, each with a deadline. It ends when the request's context does.
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

// end writes what the server has kept of a long answer, while there is a deadline. The connection is not the
// answer's from then on.
func (a *answer) end() {
	if a.sent > buffered {
		a.Flush()
	}
	a.pace.end()
}
