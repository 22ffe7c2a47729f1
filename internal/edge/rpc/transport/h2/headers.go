package h2

import (
	"bytes"
	"errors"
	"strconv"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// requestHead collects the header of a request while it is decompressed, and checks it. It is owned by the reader.
type requestHead struct {
	fields    []hpack.HeaderField
	left      int // bytes that it may still have
	regular   bool
	malformed bool
	large     bool   // fields are missing, because there were too many
	stop      func() // lets the decoder pass no more fields

	request Request // for Handler.Begin

	method, path, scheme string
	length               int64 // content-length, -1 without

	// block is the compressed header that the fields belong to, if the same bytes mean the same fields again; nblock is its length, 0
	// without one.
	block    [32]byte
	nblock   uint8
	repeated bool // the fields are those of the block before
	begun    bool // and a request had them
}

// keep notes that the fields are those of a block, if each of its bytes is a field of the decoder's table: such a block does not change
// the table, and clients whose requests have the same header send it with all requests after the first ones.
func (h *requestHead) keep(block []byte) {
	if len(block) > len(h.block) || h.large {
		return
	}
	for _, b := range block {
		if b <= indexed || b == indexed|longIndex {
			return
		}
	}
	h.nblock = uint8(copy(h.block[:], block))
}

// Bytes of compressed headers (RFC 7541, section 6.1): a field of the table, and an index that continues in the next byte.
const (
	indexed   = 0x80
	longIndex = 0x7f
)

// kept reports whether the fields are those of a block.
func (h *requestHead) kept(block []byte) bool {
	return h.nblock > 0 && string(block) == string(h.block[:h.nblock])
}

func (h *requestHead) reset(most uint32) {
	clear(h.fields)
	*h = requestHead{fields: h.fields[:0], left: int(most), length: -1, stop: h.stop}
}

// forget releases the fields, of which a connection without further requests has no need. Those of a block are in the table anyway.
func (h *requestHead) forget() {
	h.request = Request{}
	if h.nblock > 0 {
		return
	}
	if cap(h.fields) > 64 {
		h.fields = nil
	}
	clear(h.fields)
	h.fields = h.fields[:0]
	h.method, h.path, h.scheme = "", "", ""
}

// maxFields is how many fields a header may have. A byte may mean a field, which takes more memory than HTTP/2 counts for it.
const maxFields = 1000

// add takes the next field.
func (h *requestHead) add(f hpack.HeaderField) {
	if h.left -= int(f.Size()); (h.left < 0 || len(h.fields) == maxFields) && !h.large {
		h.large = true
		h.stop() // only the table is of interest from now on
	}
	if h.large || h.malformed {
		return
	}
	if !h.check(f) {
		h.malformed = true
		return
	}
	h.fields = append(h.fields, f)
}

// check checks a field (RFC 9113, section 8.2 and 8.3).
func (h *requestHead) check(f hpack.HeaderField) bool {
	if !httpguts.ValidHeaderFieldValue(f.Value) || f.Name == "" {
		return false
	}
	if f.Name[0] == ':' {
		return !h.regular && h.pseudo(f)
	}
	h.regular = true
	for i := range len(f.Name) {
		if c := f.Name[i]; c >= 'A' && c <= 'Z' || !httpguts.IsTokenRune(rune(c)) {
			return false
		}
	}
	switch f.Name {
	case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade":
		return false
	case "te":
		return f.Value == "trailers"
	case "content-length":
		n, err := strconv.ParseUint(f.Value, 10, 63)
		if err != nil || h.length >= 0 && h.length != int64(n) {
			return false
		}
		h.length = int64(n)
	}
	return true
}

// pseudo takes a field that replaces the request line of HTTP/1. None may occur twice.
func (h *requestHead) pseudo(f hpack.HeaderField) bool {
	var at *string
	switch f.Name {
	case ":method":
		at = &h.method
	case ":path":
		at = &h.path
	case ":scheme":
		at = &h.scheme
	case ":authority":
		for _, g := range h.fields {
			if g.Name == f.Name {
				return false
			}
		}
		return true
	default:
		return false
	}
	if *at != "" || f.Value == "" {
		return false
	}
	*at = f.Value
	return true
}

// readHeaders reads a HEADERS frame with the CONTINUATION frames after it. An error ends the connection.
func (c *Conn) readHeaders(fh http2.FrameHeader) error {
	frame, err := c.framer.ReadFrameForHeader(fh)
	if err != nil {
		var stream http2.StreamError
		if errors.As(err, &stream) { // its block is not decompressed, so the tables would differ
			return connError{stream.Code, "more padding than headers"}
		}
		return err
	}
	first := frame.(*http2.HeadersFrame)
	ended, self := first.StreamEnded(), first.HasPriority() && first.Priority.StreamDep == fh.StreamID
	block, done := first.HeaderBlockFragment(), first.HeadersEnded()
	if !done {
		if block, err = c.readContinuations(bytes.Clone(block)); err != nil {
			return err
		}
	}
	if len(block) > int(c.o.MaxHeaderBytes) {
		return errLargeHeaders
	}
	if c.head.repeated = c.head.kept(block); !c.head.repeated {
		if err := c.head.decompress(c.decoder, block, c.o.MaxHeaderBytes); err != nil {
			return err
		}
	}
	return c.onHeaders(fh.StreamID, ended, self)
}

// decompress takes the fields of a block from a decoder that passes them to add.
func (h *requestHead) decompress(d *hpack.Decoder, block []byte, most uint32) error {
	h.reset(most)
	d.SetEmitEnabled(true)
	if _, err := d.Write(block); err != nil {
		return connError{http2.ErrCodeCompression, "invalid headers"}
	}
	if err := d.Close(); err != nil {
		return connError{http2.ErrCodeCompression, "truncated headers"}
	}
	h.keep(block)
	return nil
}

// errLargeHeaders ends a connection whose client sends too large headers, compressed.
var errLargeHeaders = connError{http2.ErrCodeEnhanceYourCalm, "too large headers"}

// readContinuations returns a block with the CONTINUATION frames that follow it. The decoder gets it as a whole: it would look at a
// long text again for each of its parts.
func (c *Conn) readContinuations(block []byte) ([]byte, error) {
	for {
		if err := c.spend(1); err != nil {
			return nil, err
		}
		frame, err := c.framer.ReadFrame() // which allows only the continuation of this stream
		if err != nil {
			return nil, err
		}
		next, ok := frame.(*http2.ContinuationFrame)
		if !ok {
			return nil, connError{http2.ErrCodeProtocol, "headers are interrupted"}
		}
		block = append(block, next.HeaderBlockFragment()...)
		if len(block) > int(c.o.MaxHeaderBytes) {
			return nil, errLargeHeaders
		}
		if next.HeadersEnded() {
			return block, nil
		}
	}
}

// onHeaders handles complete headers: those of a request, or trailers. self says that the stream depends on itself.
func (c *Conn) onHeaders(id uint32, ended, self bool) error {
	h := &c.head
	if id%2 == 0 {
		return connError{http2.ErrCodeProtocol, "even stream number"}
	}
	defer h.forget()
	c.mu.Lock()
	for c.mu.abandoned >= maxAbandoned && !c.mu.lost {
		c.handOver()
		c.mu.changed.Wait()
	}
	s, late := c.mu.streams[id], id <= c.mu.lastID
	var err error
	begins := false
	switch {
	case s != nil && s.clientEnded: // it may be answered, and serve another request, as soon as c.mu is free
		err = http2.StreamError{StreamID: id, Code: http2.ErrCodeStreamClosed}
	case s != nil:
	case late:
		err = c.lateHeaders(id)
	default:
		c.mu.skipped.add(c.mu.lastID, id)
		c.mu.lastID = id
		if c.mu.draining == 2 {
			c.mu.recent.add(id, ended) // the client has been notified that it is ignored
			late = true
			break
		}
		c.mu.accepted = id
		err = c.judge(id, ended, self)
		begins = err == nil
		c.mu.beginning = begins // so that a connection that drains is not over
	}
	c.mu.Unlock()
	switch {
	case err != nil:
		return err
	case s != nil:
		return c.onTrailers(s, ended)
	case begins:
		c.begin(id, ended)
		return nil
	}
	return c.spend(1)
}

// lateHeaders returns the error of headers with the number of a stream that does not exist any more. c.mu is held.
func (c *Conn) lateHeaders(id uint32) error {
	byClient, recent := c.mu.recent.find(id)
	switch {
	case recent && byClient:
		return connError{http2.ErrCodeStreamClosed, "headers on a closed stream"}
	case !recent && c.mu.skipped.has(id):
		return connError{http2.ErrCodeProtocol, "stream number is not higher than the one before"}
	}
	return nil // the client did not know yet that the stream was closed
}

// judge returns the error of a request that is not served. c.mu is held.
func (c *Conn) judge(id uint32, ended, self bool) error {
	h := &c.head
	code := http2.ErrCodeProtocol
	switch {
	case h.malformed || self, !h.large && (h.method == "" || h.path == "" || h.scheme == ""):
	case h.large:
		code = http2.ErrCodeFrameSize
	case len(c.mu.streams) >= int(c.o.MaxConcurrentStreams), c.unread.Load() >= c.o.MaxUnreadBytes:
		code = http2.ErrCodeRefusedStream
	case ended && h.length > 0:
	default:
		return nil
	}
	return http2.StreamError{StreamID: id, Code: code}
}

// onTrailers handles headers on a stream whose body has not ended: they must end it.
func (c *Conn) onTrailers(s *Stream, ended bool) error {
	if !ended || c.head.malformed || c.head.method+c.head.path+c.head.scheme != "" {
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeProtocol}
	}
	return c.endBody(s)
}

// begin begins a request.
func (c *Conn) begin(id uint32, ended bool) {
	h := &c.head
	h.request = Request{Method: h.method, Path: h.path, Fields: h.fields, Ended: ended, Repeated: h.repeated && h.begun}
	h.begun = true
	x := c.handler.Begin(&h.request)
	s := x.Base()
	s.c, s.id, s.x, s.due, s.clientEnded = c, id, x, h.length, ended
	s.recv.Store(streamWindow)
	c.mu.Lock()
	c.mu.beginning = false
	if c.mu.lost {
		c.mu.Unlock()
		return
	}
	s.out.window = c.mu.initial
	s.headCost = streamCost + int32(int64(c.o.MaxHeaderBytes)-int64(h.left))
	s.charge(int64(s.headCost))
	c.mu.streams[id] = s
	c.mu.crowd = max(c.mu.crowd, len(c.mu.streams))
	c.mu.Unlock()
	x.Start()
	if ended {
		x.EndReceive()
	}
}
