package gateway

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// paced records what is written at once, and how long that may take.
type paced struct {
	*httptest.ResponseRecorder
	sizes []int
	times []time.Duration
}

func (p *paced) SetWriteDeadline(t time.Time) error {
	if !t.IsZero() {
		p.times = append(p.times, time.Until(t))
	}
	return nil
}

func (p *paced) Write(b []byte) (int, error) {
	p.sizes = append(p.sizes, len(b))
	return len(b), nil
}

// TestDeadlinesGrow: a message of a stream is written at once, and has more time the larger it is.
// Other answers are written in pieces, so that a client that reads nothing is disconnected soon.
func TestDeadlinesGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, stream := range []bool{true, false} {
			p := &paced{ResponseRecorder: httptest.NewRecorder()}
			ctx, cancel := context.WithCancel(t.Context())
			a := newAnswer(p, httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil))
			if stream {
				a.Header().Set("Transfer-Encoding", "chunked")
			}
			const size = 16 * writeSize
			if n, err := a.Write(make([]byte, size)); n != size || err != nil {
				t.Fatal(n, err)
			}
			pieces, last := 16, writeTimeout+time.Second
			if stream {
				pieces, last = 1, writeTimeout+16*time.Second
			}
			if len(p.sizes) != pieces || len(p.times) != pieces || p.times[pieces-1] != last {
				t.Errorf("stream %v: pieces of %v within %v, want %d, the last within %v", stream,
					p.sizes, p.times, pieces, last)
			}
			a.finish()
			cancel()
		}
	})
}
