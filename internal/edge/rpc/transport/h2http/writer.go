package h2http

import (
	"bytes"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/mem"

	"vigil/internal/edge/rpc/transport/h2"
)

const (
	// buffered is how many bytes of an answer are collected before they are sent.
	buffered = 4 << 10
	// piece is how many bytes are queued at once. Thousands of answers may wait for one client.
	piece = 4 << 10
)

var continueHeader = &h2.Header{Fields: []hpack.HeaderField{{Name: ":status", Value: "100"}}}

// writer is the http.ResponseWriter of a request. Any goroutine may set its deadlines; only the
// handler's goroutine may use the rest.
type writer struct {
	x      *exchange
	header http.Header
	code   int        // 0 before WriteHeader
	fields *h2.Header // the header from WriteHeader that is not sent yet; nil without one
	length int64      // content-length from the handler, -1 without
	wrote  int64
	buf    []byte

	mu struct {
		sync.Mutex
		over        bool // the handler has returned
		read, write *time.Timer
	}
}

func newWriter(x *exchange) *writer { return &writer{x: x, header: http.Header{}, length: -1} }

// Header implements http.ResponseWriter.
func (w *writer) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter. It ignores informational statuses.
func (w *writer) WriteHeader(code int) {
	if w.code != 0 || code < 200 {
		return
	}
	w.code = code
	w.fields = &h2.Header{Fields: []hpack.HeaderField{{Name: ":status", Value: strconv.Itoa(code)}}}
	for name, values := range w.header {
		name = strings.ToLower(name)
		switch name {
		case "connection", "keep-alive", "proxy-connection", "transfer-encoding",
			"upgrade", "trailer":
			continue // HTTP/2 forbids these fields
		case "content-length":
			n, err := strconv.ParseInt(w.header.Get(name), 10, 64)
			if err != nil || n < 0 {
				continue
			}
			w.length = n
		}
		if !httpguts.ValidHeaderFieldName(name) {
			continue
		}
		for _, v := range values {
			if httpguts.ValidHeaderFieldValue(v) {
				w.addField(name, v)
			}
		}
	}
	if w.header.Get("Date") == "" {
		w.addField("date", time.Now().UTC().Format(http.TimeFormat))
	}
}

func (w *writer) addField(name, value string) {
	w.fields.Fields = append(w.fields.Fields, hpack.HeaderField{Name: name, Value: value})
}

// hasBody reports whether the answer may have a body.
func (w *writer) hasBody() bool {
	return w.code != http.StatusNoContent && w.code != http.StatusNotModified
}

// Write implements http.ResponseWriter.
func (w *writer) Write(b []byte) (int, error) {
	if w.code == 0 {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case !w.hasBody():
		return 0, http.ErrBodyNotAllowed
	case w.length >= 0 && w.wrote+int64(len(b)) > w.length:
		return 0, http.ErrContentLength
	}
	if w.wrote == 0 && len(b) > 0 {
		w.setTypeOf(b)
	}
	w.wrote += int64(len(b))
	if w.x.request.Method == http.MethodHead {
		return len(b), nil
	}
	all := len(b)
	if len(w.buf)+len(b) <= buffered {
		w.buf = append(w.buf, b...)
		return all, nil
	}
	for len(b) > 0 {
		n := min(len(b), piece-len(w.buf))
		w.buf = append(w.buf, b[:n]...)
		b = b[n:]
		if len(w.buf) == piece || len(b) == 0 {
			if err := w.sendBuffered(len(b) > 0); err != nil {
				return all - len(b) - n, err
			}
		}
	}
	return all, nil
}

// setTypeOf sets the content type from the first bytes, as net/http does.
func (w *writer) setTypeOf(b []byte) {
	if w.fields == nil || w.header.Get("Content-Encoding") != "" {
		return
	}
	if _, ok := w.header["Content-Type"]; !ok {
		w.addField("content-type", http.DetectContentType(b))
	}
}

// sendBuffered sends the header, unless it is sent, and the collected bytes.
func (w *writer) sendBuffered(more bool) error {
	header := w.fields
	w.fields = nil
	data := mem.BufferSlice{mem.SliceBuffer(bytes.Clone(w.buf))}
	w.buf = w.buf[:0]
	if err := w.x.stream.SendBody(header, data, more); err != nil {
		if e := w.x.stream.Err(); e != nil {
			return e
		}
		return err
	}
	return nil
}

// FlushError sends everything that was written. http.ResponseController calls it.
func (w *writer) FlushError() error {
	if w.code == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.fields == nil && len(w.buf) == 0 {
		return w.x.stream.Err()
	}
	return w.sendBuffered(false)
}

// Flush implements http.Flusher.
func (w *writer) Flush() { _ = w.FlushError() } // a later write returns the error

// finishAnswer sends the rest of the answer.
func (w *writer) finishAnswer() {
	if w.code == 0 {
		w.WriteHeader(http.StatusOK)
	}
	x := w.x
	if w.fields != nil {
		if w.length < 0 && w.hasBody() && (w.x.request.Method != http.MethodHead || w.wrote > 0) {
			w.addField("content-length", strconv.FormatInt(w.wrote, 10))
		}
		if len(w.buf) == 0 {
			w.noteReturn()
			x.stream.Finish(w.fields, w.fields)
			return
		}
	}
	timed := w.hasWriteDeadline()
	if len(w.buf) > 0 {
		_ = w.sendBuffered(!timed) // it fails only if the stream has ended
	}
	if timed {
		_ = x.stream.SendBody(nil, nil, true) // waits until the client has taken the part before
	}
	w.noteReturn()
	x.stream.Finish(nil, nil)
}

// hasWriteDeadline reports whether there is a write deadline.
func (w *writer) hasWriteDeadline() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.write != nil
}

// noteReturn notes that the handler has returned.
func (w *writer) noteReturn() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.over = true
	for _, t := range []*time.Timer{w.mu.read, w.mu.write} {
		if t != nil {
			t.Stop()
		}
	}
	_ = w.x.body.Close()
}

// SetReadDeadline lets reads of the body fail from a time on. http.ResponseController calls it.
func (w *writer) SetReadDeadline(t time.Time) error {
	w.setDeadline(&w.mu.read, t, func() { w.x.body.endWith(os.ErrDeadlineExceeded) })
	return nil
}

// SetWriteDeadline resets the stream at a time, unless the answer is sent by then.
// http.ResponseController calls it.
func (w *writer) SetWriteDeadline(t time.Time) error {
	w.setDeadline(&w.mu.write, t, func() { w.x.stream.Reset(http2.ErrCodeInternal) })
	return nil
}

// setDeadline makes timer run f at time t, or never if t is zero. It replaces what timer was to run
// before.
func (w *writer) setDeadline(timer **time.Timer, t time.Time, f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if *timer != nil {
		(*timer).Stop()
		*timer = nil
	}
	switch d := time.Until(t); {
	case w.mu.over || t.IsZero():
	case d <= 0:
		f()
	default:
		*timer = time.AfterFunc(d, f)
	}
}

// EnableFullDuplex does nothing: HTTP/2 is always full duplex. http.ResponseController calls it.
func (w *writer) EnableFullDuplex() error { return nil }
