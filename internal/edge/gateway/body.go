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

// bodyTimeout is how long receiving the next bytes of a body may take.
const bodyTimeout = time.Minute

// body is the body of a request, with limits for time and size. A reader may continue after the end
// of the request, and then reads the end of the body.
type body struct {
	io.ReadCloser
	control *http.ResponseController
	limit   int64
	left    int64 // bytes until the message is too large
	endless bool
	single  bool // ends after a message although the client's side stays open
	decoded bool // a message
	// unread, if set, is called when no one reads the body any more: after the message if single is
	// set, and after an error.
	unread func()

	mu struct {
		sync.Mutex
		over bool // the request has ended, so the connection must not be used
	}
}

func newBody(w http.ResponseWriter, r *http.Request, limit int64) *body {
	b := &body{ReadCloser: r.Body, control: http.NewResponseController(w),
		limit: limit, left: limit}
	if r.Body != http.NoBody {
		// Needed if no one reads the body: then the server reads it after the handler.
		b.extendDeadline()
	}
	return b
}

// extendDeadline gives the client more time. A writer without deadlines has no connection to wait
// for.
func (b *body) extendDeadline() { b.setDeadline(time.Now().Add(bodyTimeout)) }

// setDeadline limits the time to read from the connection. It has no effect after the request has
// ended.
func (b *body) setDeadline(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.mu.over {
		_ = b.control.SetReadDeadline(t)
	}
}

// detach is called when the handler returns: the server panics if its connection is used after
// that.
func (b *body) detach() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.over = true
}

// allowStream allows any time between messages, and answers between them, on connections that
// support it. On other connections it has no effect.
func (b *body) allowStream() {
	b.endless = true
	b.setDeadline(time.Time{})
	_ = b.control.EnableFullDuplex()
}

// Read implements io.Reader. Bytes that a decoder reads ahead count too: it fails only if it needs
// more of the same message.
func (b *body) Read(p []byte) (int, error) {
	if b.single && b.decoded {
		return 0, io.EOF
	}
	full := b.left == 0
	if full {
		p = make([]byte, 1) // to detect the end of the body
	} else if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	if !b.endless {
		b.extendDeadline()
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		// net/http reads on to detect that the client disconnects.
		b.setDeadline(time.Time{})
	}
	if full && n > 0 {
		return 0, fmt.Errorf("the request has a message of more than %d bytes", b.limit)
	}
	b.left -= int64(n)
	return n, err
}

// bounded limits the size of each message that it decodes. It encodes without blanks, because
// protojson adds blanks that differ between builds.
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
		// Messages of streams are decoded on a goroutine without another recover.
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic in the decoder: %v", p)
			}
		}()
		b.left = b.limit
		err = dec.Decode(v)
		b.decoded = true
		if b.unread != nil && (b.single || err != nil) {
			b.unread()
		}
		return err
	})
}
