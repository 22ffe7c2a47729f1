package h2

import (
	"bytes"
	"errors"

	"golang.org/x/net/http2"
)

// errLargeHeaders ends a connection whose client sends a header that is too large, compressed.
var errLargeHeaders = connError{http2.ErrCodeEnhanceYourCalm, "too large headers"}

// readHeaders reads a HEADERS frame with the CONTINUATION frames after it. An error ends the
// connection.
func (r *reader) readHeaders(fh http2.FrameHeader) error {
	frame, err := r.framer.ReadFrameForHeader(fh)
	if err != nil {
		var stream http2.StreamError
		if errors.As(err, &stream) { // nobody decompresses its block, so the tables would differ
			return connError{stream.Code, "more padding than headers"}
		}
		return err
	}
	first := frame.(*http2.HeadersFrame)
	ended, self := first.StreamEnded(), first.HasPriority() &&
		first.Priority.StreamDep == fh.StreamID
	block, done := first.HeaderBlockFragment(), first.HeadersEnded()
	if !done {
		if block, err = r.readContinuations(bytes.Clone(block)); err != nil {
			return err
		}
	}
	if len(block) > int(r.l.o.MaxHeaderBytes) {
		return errLargeHeaders
	}
	if r.head.repeated = r.head.hasKept(block); !r.head.repeated {
		if err := r.head.decompress(r.decoder, block, r.l.o.MaxHeaderBytes); err != nil {
			return err
		}
	}
	return r.onHeaders(fh.StreamID, ended, self)
}

// readContinuations returns a header block together with the CONTINUATION frames that follow it.
// The decoder gets the block as a whole: given parts, it would look at a long text again for each
// of them.
func (r *reader) readContinuations(block []byte) ([]byte, error) {
	for {
		if err := r.spendFrames(1); err != nil {
			return nil, err
		}
		frame, err := r.framer.ReadFrame() // it allows only a continuation of this stream
		if err != nil {
			return nil, err
		}
		next, ok := frame.(*http2.ContinuationFrame)
		if !ok {
			return nil, connError{http2.ErrCodeProtocol, "headers are interrupted"}
		}
		block = append(block, next.HeaderBlockFragment()...)
		if len(block) > int(r.l.o.MaxHeaderBytes) {
			return nil, errLargeHeaders
		}
		if next.HeadersEnded() {
			return block, nil
		}
	}
}

// onHeaders handles a complete header block of a request, or of trailers. ended is its END_STREAM
// flag, self says that the stream depends on itself.
func (r *reader) onHeaders(id uint32, ended, self bool) error {
	if id%2 == 0 {
		return connError{http2.ErrCodeProtocol, "even stream number"}
	}
	defer r.head.releaseFields()
	l := r.l
	l.mu.Lock()
	l.waitForHandlers()
	t := &l.mu.table
	s := t.streams[id]
	var err error
	accepted := false
	switch {
	case s != nil && s.state.bodyEnded(): // it may be answered and reused once mu is free
		err = http2.StreamError{StreamID: id, Code: http2.ErrCodeStreamClosed}
	case s != nil:
	case !t.isIdle(id):
		err = lateHeaders(t, id)
	case l.mu.state.ignoresRequests():
		t.ignoreNumber(id, ended)
	default:
		t.acceptNumber(id)
		if err = r.judgeRequest(id, ended, self); err != nil {
			t.entered = id
		}
		accepted = err == nil
	}
	l.mu.Unlock()
	switch {
	case err != nil:
		return err
	case s != nil:
		return r.onTrailers(s, ended)
	case accepted:
		r.beginRequest(id, ended)
		return nil
	}
	return r.spendFrames(1)
}

// lateHeaders returns the error for headers on a stream that does not exist any more.
func lateHeaders(t *table, id uint32) error {
	byClient, recent := t.recent.find(id)
	switch {
	case recent && byClient:
		return connError{http2.ErrCodeStreamClosed, "headers on a closed stream"}
	case !recent && t.skipped.has(id):
		return connError{http2.ErrCodeProtocol, "stream number is not higher than the one before"}
	}
	return nil // the client did not know yet that the stream was closed
}

// judgeRequest returns an error if the request is not served. link.mu must be held.
func (r *reader) judgeRequest(id uint32, ended, self bool) error {
	h, l := &r.head, r.l
	code := http2.ErrCodeProtocol
	switch {
	case h.malformed || self, !h.large && (h.method == "" || h.path == "" || h.scheme == ""):
	case h.large:
		code = http2.ErrCodeFrameSize
	case len(l.mu.table.streams) >= int(l.o.MaxConcurrentStreams),
		l.unread.Load() >= l.o.MaxUnreadBytes:
		code = http2.ErrCodeRefusedStream
	case ended && h.length > 0:
	default:
		return nil
	}
	return http2.StreamError{StreamID: id, Code: code}
}

// onTrailers handles headers on a stream whose body has not ended. They must end it.
func (r *reader) onTrailers(s *Stream, ended bool) error {
	if !ended || r.head.malformed || r.head.method+r.head.path+r.head.scheme != "" {
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeProtocol}
	}
	return r.endBody(s)
}

// beginRequest begins an accepted request.
func (r *reader) beginRequest(id uint32, ended bool) {
	h, l := &r.head, r.l
	h.request = Request{Method: h.method, Path: h.path, Fields: h.fields, Ended: ended,
		Repeated: h.repeated && h.begun}
	h.begun = true
	x := r.handler.Begin(&h.request)
	s := x.Base()
	s.l, s.id, s.x, s.due = l, id, x, h.length
	s.recv.Store(streamWindow)
	if s.state = openIdle; ended {
		s.state = halfIdle
	}
	l.mu.Lock()
	if l.mu.state == connLost {
		l.mu.table.entered = id
		l.mu.Unlock()
		return
	}
	s.out.window = l.mu.out.initial
	s.headCost = streamCost + int32(int64(l.o.MaxHeaderBytes)-int64(h.left))
	s.chargeUnread(int64(s.headCost))
	l.mu.table.enterStream(s)
	l.mu.Unlock()
	x.Start()
	if ended {
		x.EndReceive()
	}
}
