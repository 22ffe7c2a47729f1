package gateway

import (
	"context"
	"net/http"
	"sync"
	"time"
)

const (
	// writeTimeout is how long a client may take for writeSize bytes of an answer.
	writeTimeout = 30 * time.Second
	writeSize    = 64 << 10
	// buffered is what the server keeps of an answer until the handler is over.
	buffered = 4 << 10
)

// answer is what a client gets, piece by piece, each with a deadline. It ends when the request's context does.
type answer struct {
	http.ResponseWriter
	control *http.ResponseController
	stop    func() bool
	sent    int // owned by who writes

	mu struct {
		sync.Mutex
		over bool
	}
}

func newAnswer(w http.ResponseWriter, r *http.Request) *answer {
	a := &answer{ResponseWriter: w, control: http.NewResponseController(w)}
	a.stop = context.AfterFunc(r.Context(), a.cut)
	return a
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// cut ends a write that is under way.
func (a *answer) cut() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.mu.over {
		a.mu.over = true
		_ = a.control.SetWriteDeadline(time.Unix(1, 0))
	}
}

// limit sets the time for the next piece, and reports whether there is to be one. Where there is no deadline to
// set, there is no connection.
func (a *answer) limit() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.over {
		return false
	}
	_ = a.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	return true
}

// unlimit takes the deadline away: HTTP/2 ends a stream at one even when nothing is written.
func (a *answer) unlimit() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.mu.over {
		_ = a.control.SetWriteDeadline(time.Time{})
	}
}

// Write implements http.ResponseWriter. What is written when the request is over goes nowhere, which is no error
// that is worth a line in the log.
func (a *answer) Write(b []byte) (n int, err error) {
	defer a.unlimit()
	for {
		if !a.limit() {
			return n + len(b), nil
		}
		k, err := a.ResponseWriter.Write(b[:min(len(b), writeSize)])
		n += k
		a.sent += k
		if b = b[k:]; err != nil || len(b) == 0 {
			return n, err
		}
	}
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
	a.stop()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.over = true
}
