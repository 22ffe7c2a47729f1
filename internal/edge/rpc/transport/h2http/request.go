package h2http

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/net/http2"

	"vigil/internal/edge/rpc/transport/h2"
)

const (
	// requestCost is about how many bytes a request occupies: the goroutine of its handler, the
	// queued part of its answer, and its writer.
	requestCost = 64 << 10
	// bodyAhead is how many bytes of a body with a content-length a client may send before the
	// handler reads them.
	bodyAhead = 1 << 20
)

// Conn has what the requests of a connection share.
type Conn struct {
	Handler http.Handler
	Logger  *slog.Logger
	Remote  string // the address of the client
	Local   net.Addr
	TLS     *tls.ConnectionState // nil without TLS
	// Run runs the handler of a request on a goroutine.
	Run func(func())
}

// Begin returns the exchange for a request. r is valid only during the call.
func (c *Conn) Begin(r *h2.Request) h2.Exchange {
	x := &exchange{conn: c}
	x.body.stream = &x.stream
	x.request, x.invalid = c.makeRequest(r)
	if r.Ended {
		x.request.Body = http.NoBody
	} else {
		x.request.Body = &x.body
	}
	return x
}

// makeRequest returns the request without its body. The request is usable even if there is an
// error, which is a mistake of the client.
func (c *Conn) makeRequest(r *h2.Request) (*http.Request, error) {
	out := &http.Request{Method: r.Method, RequestURI: r.Path, Proto: "HTTP/2.0", ProtoMajor: 2,
		Header:        make(http.Header, len(r.Fields)),
		ContentLength: -1, RemoteAddr: c.Remote, TLS: c.TLS}
	if r.Ended {
		out.ContentLength = 0
	}
	var cookies []string
	for i := range r.Fields {
		switch f := &r.Fields[i]; {
		case f.Name == ":authority":
			out.Host = f.Value
		case f.Name[0] == ':':
		case f.Name == "host":
			if out.Host == "" {
				out.Host = f.Value
			}
		case f.Name == "cookie":
			cookies = append(cookies, f.Value)
		case f.Name == "content-length":
			// package h2 has checked it
			if n, err := strconv.ParseInt(f.Value, 10, 64); err == nil {
				out.ContentLength = n
			}
			out.Header.Set("Content-Length", f.Value)
		default:
			out.Header.Add(f.Name, f.Value)
		}
	}
	if len(cookies) > 0 {
		out.Header.Set("Cookie", strings.Join(cookies, "; "))
	}
	u, err := url.ParseRequestURI(r.Path)
	switch {
	case r.Method == http.MethodConnect:
		err = errors.New("CONNECT is not supported")
	case r.Path == "*" && r.Method == http.MethodOptions:
		u, err = &url.URL{Path: "*"}, nil
	}
	if err != nil {
		u = &url.URL{}
	}
	out.URL = u
	return out, err
}

// exchange is a request and its answer.
type exchange struct {
	stream  h2.Stream
	conn    *Conn
	request *http.Request
	invalid error // why the request is not valid
	body    body
}

// Base implements h2.Exchange.
func (x *exchange) Base() *h2.Stream { return &x.stream }

// Start implements h2.Exchange.
func (x *exchange) Start() {
	if !x.stream.Hold() {
		return
	}
	x.stream.Occupy(requestCost)
	if n := x.request.ContentLength; n > 0 && x.invalid == nil {
		x.stream.Expect(int(min(n, bodyAhead)))
	}
	if strings.EqualFold(x.request.Header.Get("Expect"), "100-continue") {
		x.stream.SendHeader(continueHeader)
	}
	x.conn.Run(x.runHandler)
}

// runHandler runs the handler and ends the answer.
func (x *exchange) runHandler() {
	w := newWriter(x)
	ok := false
	defer func() {
		if ok {
			w.finishAnswer()
		} else {
			w.abortAnswer(recover())
		}
	}()
	if x.invalid != nil {
		http.Error(w, x.invalid.Error(), http.StatusBadRequest)
	} else {
		x.conn.Handler.ServeHTTP(w,
			x.request.WithContext(context.WithValue(&x.stream, http.LocalAddrContextKey,
				x.conn.Local)))
	}
	ok = true
}

// abortAnswer resets the stream of a handler that has panicked with p.
func (w *writer) abortAnswer(p any) {
	w.noteReturn()
	x := w.x
	x.stream.Reset(http2.ErrCodeInternal)
	x.stream.Finish(nil, nil) // the handler does not hold the stream any more
	if p != nil && p != http.ErrAbortHandler {
		x.conn.Logger.Error("panic while serving an HTTP request", "remote-addr", x.conn.Remote,
			"method", x.request.Method, "path", x.request.URL.Path,
			"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	}
}

// Receive implements h2.Exchange.
func (x *exchange) Receive(r io.Reader, n int) error { return x.body.addPart(r, n) }

// EndReceive implements h2.Exchange.
func (x *exchange) EndReceive() { x.body.endWith(io.EOF) }

// body is the body of a request. The reader of the connection fills it, and the handler empties it.
type body struct {
	stream *h2.Stream

	mu struct {
		sync.Mutex
		buf    []byte // the bytes from off on are not read yet
		off    int
		err    error         // follows the bytes; nil before the end
		wake   chan struct{} // receives after a change; nil if nobody waits
		closed bool          // nobody reads any more
	}
}

// errClosed is the error of reading after Close.
var errClosed = errors.New("http: read on a closed body")

// addPart reads n bytes from r. The window of the stream bounds them, and they count until
// Stream.Taken.
func (b *body) addPart(r io.Reader, n int) error {
	part := make([]byte, n) // at most a frame
	if _, err := io.ReadFull(r, part); err != nil {
		return err
	}
	b.mu.Lock()
	if b.mu.closed {
		b.mu.Unlock()
		b.stream.Taken(n)
		return nil
	}
	defer b.mu.Unlock()
	if b.mu.off > 0 && len(b.mu.buf)+n > cap(b.mu.buf) {
		b.mu.buf = b.mu.buf[:copy(b.mu.buf, b.mu.buf[b.mu.off:])]
		b.mu.off = 0
	}
	b.mu.buf = append(b.mu.buf, part...)
	b.wakeReader()
	return nil
}

// endWith notes the end of the body, unless it has ended already.
func (b *body) endWith(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.err == nil {
		b.mu.err = err
		b.wakeReader()
	}
}

// wakeReader wakes Read. mu must be held.
func (b *body) wakeReader() {
	if b.mu.wake != nil {
		select {
		case b.mu.wake <- struct{}{}:
		default:
		}
	}
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	b.mu.Lock()
	for {
		if b.mu.closed {
			b.mu.Unlock()
			return 0, errClosed
		}
		if n := copy(p, b.mu.buf[b.mu.off:]); n > 0 {
			if b.mu.off += n; b.mu.off == len(b.mu.buf) {
				b.mu.buf, b.mu.off = nil, 0
			}
			b.mu.Unlock()
			b.stream.Taken(n)
			return n, nil
		}
		if err := b.mu.err; err != nil {
			b.mu.Unlock()
			return 0, err
		}
		if b.mu.wake == nil {
			b.mu.wake = make(chan struct{}, 1)
		}
		wake := b.mu.wake
		b.mu.Unlock()
		select {
		case <-wake:
		case <-b.stream.Done():
			b.endWith(b.stream.Err())
		}
		b.mu.Lock()
	}
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.mu.Lock()
	n := len(b.mu.buf) - b.mu.off
	b.mu.closed, b.mu.buf, b.mu.off = true, nil, 0
	b.wakeReader()
	b.mu.Unlock()
	b.stream.Taken(n)
	return nil
}
