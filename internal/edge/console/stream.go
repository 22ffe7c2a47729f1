package console

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"vigil/internal/kv"
)

// writeTimeout limits the time to send a line to a reader.
const writeTimeout = 30 * time.Second

// lines writes a stream of JSON lines. Only one goroutine may write.
type lines struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// send writes a line.
func (l *lines) send(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	// not every writer has a connection
	_ = l.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err = l.w.Write(append(b, '\n')); err == nil {
		err = l.control.Flush()
	}
	_ = l.control.SetWriteDeadline(time.Time{})
	return err
}

// beatInterval is the longest time between two lines of a stream. A reader that waits longer knows
// that the member or the network has failed.
const beatInterval = 2 * time.Second

// beat is the line that a stream sends when it has nothing else to send.
type beat struct {
	Beat bool `json:"beat"`
	// Local is the reason why nothing can happen now: there is no leader.
	Local string `json:"local,omitempty"`
}

// beat returns the line to send when there is nothing else.
func (c *Console) beat() beat {
	b := beat{Beat: true}
	if !c.Leader().Known {
		b.Local = c.conn.sinceText()
	}
	return b
}

// end is the last line of a stream that ends with an error.
type end struct {
	End *failure `json:"end"`
}

// stream serves a path of the API with a stream: the handler sends lines until the reader leaves.
// An error before the first line becomes the response, a later one the last line.
func (c *Console) stream(path string, serve func(*request, *lines) error) {
	c.api.HandleFunc("GET "+apiPrefix+path, func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		q := c.request(ctx, cancel, r)
		leave, ok := c.streams.openStream(c.streamsOf(q))
		if !ok {
			writeError(w, &failure{Status: http.StatusServiceUnavailable, Code: "unavailable",
				Text: "too many live views of this member are open",
				Next: "close some, or open the console of another member"})
			return
		}
		defer leave()
		s := &started{ResponseWriter: w}
		out := &lines{s, http.NewResponseController(w)}
		_ = out.control.SetReadDeadline(time.Time{})
		// The server sends the end of the response after the handler has returned.
		defer func() { _ = out.control.SetWriteDeadline(time.Now().Add(writeTimeout)) }()
		w.Header().Set("Content-Type", "application/x-ndjson")
		w.Header().Set("X-Accel-Buffering", "no")
		err := serve(q, out)
		if ctx.Err() != nil && err != nil {
			err = &failure{Status: http.StatusServiceUnavailable, Code: "unavailable",
				Text: "the member has ended this view: its browser was too slow while others waited",
				Next: "try again in a moment"}
		}
		switch {
		case err == nil || r.Context().Err() != nil:
		case s.sent:
			_ = out.send(end{describe(err)}) // otherwise the sent lines would look complete
		default:
			writeError(w, err)
		}
	})
}

// Limits of open streams (tails, live numbers and exports): of all readers together, and of each
// user while there are users, so that one user cannot block the others.
const (
	maxStreams     = 100
	maxUserStreams = 30
)

// streams counts the open streams.
type streams struct {
	sync.Mutex
	all int
	of  map[string]int // by user
}

// streamsOf returns the user of a request, and how many streams that user may have open.
func (c *Console) streamsOf(r *request) (user string, most int) {
	if !c.AuthEnabled() {
		return "", maxStreams
	}
	return c.User(kv.WithCredentials(r.ctx, r.who.identity())), maxUserStreams
}

// openStream counts a stream of a user until end is called. ok is false if there are too many.
func (s *streams) openStream(user string, most int) (end func(), ok bool) {
	s.Lock()
	defer s.Unlock()
	if s.all >= maxStreams || s.of[user] >= most {
		return nil, false
	}
	s.all++
	s.of[user]++
	return func() {
		s.Lock()
		defer s.Unlock()
		s.all--
		if s.of[user]--; s.of[user] == 0 {
			delete(s.of, user)
		}
	}, true
}

// count returns the number of open streams, at least 1.
func (s *streams) count() int {
	s.Lock()
	defer s.Unlock()
	return max(1, s.all)
}

// started tells whether a part of the response was sent.
type started struct {
	http.ResponseWriter
	sent bool
}

// Write implements http.ResponseWriter.
func (s *started) Write(b []byte) (int, error) {
	s.sent = true
	return s.ResponseWriter.Write(b)
}
