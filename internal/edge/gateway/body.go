package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
)

// bodyTimeout is how long the next bytes of a body that must come may take.
const bodyTimeout = time.Minute

// body is what a client sends, within bounds. Who reads it may go on when the request is over, and meets its end.
type body struct {
	io.ReadCloser
	control *http.ResponseController
	limit   int64
	left    int64 // until the message is too large
	endless bool
	single  bool // ends after a message although the client's side stays open
	decoded bool // a message

	mu struct {
		sync.Mutex
		over bool // the connection is another request's, or nobody's
	}
}

func newBody(w http.ResponseWriter, r *http.Request, limit int64) *body {
	b := &body{ReadCloser: r.Body, control: http.NewResponseController(w), limit: limit, left: limit}
	if r.Body != http.NoBody {
		// For one that nobody reads, which the server does in the end.
		b.extend()
	}
	return b
}

// extend gives the client more time. Where there is no deadline to set, there is no connection to wait on.
func (b *body) extend() { b.setDeadline(time.Now().Add(bodyTimeout)) }

// setDeadline bounds reading from the connection; without effect once the request is over.
func (b *body) setDeadline(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.mu.over {
		_ = b.control.SetReadDeadline(t)
	}
}

// end is called when the handler returns: the server panics if its connection is used after that.
func (b *body) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.over = true
}

// open lets the client take its time between messages, and have answers in between. Not all kinds of
// connections can, and those that cannot behave as if it had not been called.
func (b *body) open() {
	b.endless = true
	b.setDeadline(time.Time{})
	_ = b.control.EnableFullDuplex()
}

// Read implements io.Reader. What a decoder reads ahead is within the limit too: only one that needs more
// of the same message is refused.
func (b *body) Read(p []byte) (int, error) {
	if b.single && b.decoded {
		return 0, io.EOF
	}
	full := b.left == 0
	if full {
		p = make([]byte, 1) // to tell a body that ends here from one that does not
	} else if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	if !b.endless {
		b.extend()
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		// The connection is read further to notice that the client goes away.
		b.setDeadline(time.Time{})
	}
	if full && n > 0 {
		return 0, fmt.Errorf("the request has a message of more than %d bytes", b.limit)
	}
	b.left -= int64(n)
	return n, err
}

// bounded gives each message that it decodes a limit of its own, and encodes without blanks, of which
// protojson has some in every other build.
type bounded struct{ runtime.Marshaler }

// Marshal implements runtime.Marshaler.
func (m *bounded) Marshal(v any) ([]byte, error) {
	b, err := m.Marshaler.Marshal(v)
	if err != nil {
		return nil, err
	}
	out := bytes.NewBuffer(make([]byte, 0, len(b)))
	if err := json.Compact(out, b); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// NewDecoder implements runtime.Marshaler.
func (m *bounded) NewDecoder(r io.Reader) runtime.Decoder {
	dec := m.Marshaler.NewDecoder(r)
	b, ok := r.(*body)
	if !ok {
		return dec
	}
	return runtime.DecoderFunc(func(v any) (err error) {
		// Of streams the messages are decoded on a goroutine that nobody else looks after.
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic in the decoder: %v", p)
			}
		}()
		b.left = b.limit
		err = dec.Decode(v)
		b.decoded = true
		return err
	})
}
