package h2

import (
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// connWindow is how many bytes a client may send on all streams before the server reads them.
	connWindow = 16 << 20
	// lingerBytes is how many bytes are read after the last output.
	lingerBytes = 256 << 10
)

// reader reads the frames of a connection. Only one goroutine uses it.
type reader struct {
	l       *link
	handler Handler
	in      input
	framer  *http2.Framer
	decoder *hpack.Decoder
	head    requestHead
	guard   guard
	recv    int64 // how many bytes the client may send on all streams
	pings   pingPolicy
}

func (r *reader) init(l *link) {
	r.l, r.in.l, r.recv = l, l, connWindow
	r.framer = http2.NewFramer(nil, &r.in)
	r.framer.SetMaxReadFrameSize(maxFrame)
	r.framer.SetReuseFrames()
	r.decoder = hpack.NewDecoder(4096, r.head.addField)
	r.decoder.SetMaxStringLength(int(l.o.MaxHeaderBytes))
	r.head.stop = func() { r.decoder.SetEmitEnabled(false) }
	r.guard = newGuard(framesAtOnce)
}

// connError ends a connection with an error code.
type connError struct {
	code http2.ErrCode
	text string
}

func (e connError) Error() string { return e.code.String() + ": " + e.text }

// errTooManyFrames ends a connection whose client sends too many frames without effect.
var errTooManyFrames = connError{http2.ErrCodeEnhanceYourCalm, "too_many_frames"}

// readAll reads the connection until it ends.
func (r *reader) readAll() error {
	err := r.readHandshake()
	for {
		if err == nil {
			err = r.readFrame()
			continue
		}
		var stream http2.StreamError // declared here because errors.As makes it escape to the heap
		switch {
		case errors.As(err, &stream):
			err = r.resetForMistake(stream.StreamID, stream.Code)
			continue
		case err == io.EOF:
			return nil
		}
		if failed, ok := r.clientMistake(err); ok {
			err = r.l.failConn(failed.code, failed.text)
			r.discardRest()
		}
		return err
	}
}

// clientMistake returns the code and text for the client. ok is false if err is not a mistake of
// the client.
func (r *reader) clientMistake(err error) (failed connError, ok bool) {
	var connection http2.ConnectionError
	switch {
	case errors.As(err, &failed):
		return failed, true
	case errors.As(err, &connection):
		text := "invalid frame"
		if detail := r.framer.ErrorDetail(); detail != nil {
			text = detail.Error()
		}
		return connError{http2.ErrCode(connection), text}, true
	case errors.Is(err, http2.ErrFrameTooLarge):
		return connError{http2.ErrCodeFrameSize, "too large frame"}, true
	}
	return connError{}, false
}

// discardRest drops what the client sends for a moment, and waits until the output is written, so
// that the client learns why the connection ends.
func (r *reader) discardRest() {
	now, nc := time.Now(), r.l.socket.nc
	_ = nc.SetReadDeadline(now.Add(lingerTime)) // fails after a close only
	_ = nc.SetWriteDeadline(now.Add(reasonTime))
	_, _ = io.CopyN(io.Discard, nc, lingerBytes)
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	r.l.waitForOutput()
}

// readHandshake reads the preface and the client's first settings.
func (r *reader) readHandshake() error {
	nc := r.l.socket.nc
	if err := nc.SetReadDeadline(time.Now().Add(r.l.o.HandshakeTimeout)); err != nil {
		return err
	}
	var preface [len(http2.ClientPreface)]byte
	if _, err := io.ReadFull(&r.in, preface[:]); err != nil {
		if err == io.EOF {
			return err
		}
		return fmt.Errorf("reading the preface: %w", err)
	}
	if string(preface[:]) != http2.ClientPreface {
		return fmt.Errorf("the connection begins with %q", preface)
	}
	fh, err := r.framer.ReadFrameHeader()
	if err != nil {
		return fmt.Errorf("reading the first settings: %w", err)
	}
	if fh.Type != http2.FrameSettings || fh.Flags.Has(http2.FlagSettingsAck) {
		return connError{http2.ErrCodeProtocol, "no settings after the preface"}
	}
	if err := r.readControl(fh); err != nil {
		return err
	}
	// The deadline is removed first: once the handshake is complete, endOutput may set another.
	if err := nc.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	r.l.mu.state.move(connGreet)
	r.l.startKeepAlive()
	return nil
}

// spendFrames counts n frames without effect.
func (r *reader) spendFrames(n int) error {
	ok := r.guard.spendFrames(n, func() int {
		r.l.mu.Lock()
		defer r.l.mu.Unlock()
		return r.l.mu.out.takeEarned()
	})
	if !ok {
		return errTooManyFrames
	}
	return nil
}

// readFrame reads a frame.
func (r *reader) readFrame() error {
	fh, err := r.framer.ReadFrameHeader()
	if err != nil {
		return err
	}
	switch fh.Type {
	case http2.FrameData:
		return r.readData(fh)
	case http2.FrameHeaders:
		return r.readHeaders(fh)
	}
	return r.readControl(fh)
}

// readControl reads a frame that is neither DATA nor HEADERS.
func (r *reader) readControl(fh http2.FrameHeader) error {
	frame, err := r.framer.ReadFrameForHeader(fh)
	if err != nil {
		return err
	}
	if err := r.spendFrames(1); err != nil {
		return err
	}
	switch f := frame.(type) {
	case *http2.WindowUpdateFrame:
		return r.onWindowUpdate(f.StreamID, int64(f.Increment))
	case *http2.PingFrame:
		return r.onPing(f)
	case *http2.SettingsFrame:
		return r.onSettings(f)
	case *http2.RSTStreamFrame:
		return r.onReset(f.StreamID)
	case *http2.PriorityFrame:
		if f.StreamDep == f.StreamID {
			return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeProtocol}
		}
	case *http2.PushPromiseFrame:
		return connError{http2.ErrCodeProtocol, "a client must not push"}
	case *http2.ContinuationFrame:
		return connError{http2.ErrCodeProtocol, "a continuation of nothing"}
	}
	return nil // unknown frames, and GOAWAY, which does not concern running requests
}

// readData reads a DATA frame and passes its content to the exchange.
func (r *reader) readData(fh http2.FrameHeader) error {
	size := int(fh.Length)
	if fh.StreamID == 0 {
		return connError{http2.ErrCodeProtocol, "data on stream 0"}
	}
	if r.recv -= int64(size); r.recv < 0 {
		return connError{http2.ErrCodeFlowControl, "more data than the window of the connection"}
	}
	l := r.l
	l.mu.Lock()
	s, byClient := l.mu.table.streams[fh.StreamID], false
	idle := l.mu.table.isIdle(fh.StreamID)
	switch {
	case s == nil:
		byClient, _ = l.mu.table.recent.find(fh.StreamID)
	case s.state.bodyEnded():
		// it may be answered and reused for another request as soon as mu is free
		s, byClient = nil, true
	default:
		s.chargeUnread(int64(size))
	}
	if r.recv < connWindow/2 {
		l.mu.out.control = appendWindowUpdate(l.mu.out.control, 0, uint32(connWindow-r.recv))
		r.recv = connWindow
		l.waitForWriter()
	}
	l.mu.Unlock()
	ended := fh.Flags.Has(http2.FlagDataEndStream)
	if size == 0 && !ended || s == nil {
		if err := r.spendFrames(1); err != nil {
			return err
		}
	}
	if err := r.readBody(s, fh, idle, byClient); err != nil {
		return err
	}
	if s != nil && ended {
		return r.endBody(s)
	}
	return nil
}

// readBody reads the content of a DATA frame to its end, unless the connection fails. s is nil if
// the stream takes no data; then idle says that no request has used its number, and byClient that
// the client has ended the stream.
func (r *reader) readBody(s *Stream, fh http2.FrameHeader, idle, byClient bool) error {
	size, padding := int(fh.Length), 0
	if fh.Flags.Has(http2.FlagDataPadded) {
		n, err := r.readPadding(size)
		if err != nil {
			return err
		}
		size, padding = n, size-1-n
		if size == 0 {
			if err := r.spendFrames(1); err != nil {
				return err
			}
		}
	}
	reject := func(err error) error {
		if e := discard(&r.in, size+padding); e != nil {
			return e
		}
		return err
	}
	switch {
	case s == nil && idle:
		return connError{http2.ErrCodeProtocol, "data on an idle stream"}
	case s == nil && !byClient:
		return reject(nil) // the client did not know yet that the stream is closed
	case s == nil:
		return reject(http2.StreamError{StreamID: fh.StreamID, Code: http2.ErrCodeStreamClosed})
	case s.headCost > 0 && r.l.unread.Load() > r.l.o.MaxUnreadBytes: // no handler has it yet
		return reject(http2.StreamError{StreamID: fh.StreamID, Code: http2.ErrCodeRefusedStream})
	}
	if s.recv.Add(-int64(fh.Length)) < 0 {
		return reject(http2.StreamError{StreamID: s.id, Code: http2.ErrCodeFlowControl})
	}
	s.returnPadding(int64(int(fh.Length)-size), fh.Flags.Has(http2.FlagDataEndStream))
	if s.due >= 0 {
		if s.due < int64(size) {
			return reject(http2.StreamError{StreamID: s.id, Code: http2.ErrCodeProtocol})
		}
		s.due -= int64(size)
	}
	if err := s.x.Receive(&r.in, size); err != nil {
		return err
	}
	return discard(&r.in, padding)
}

// readPadding reads the padding length of a DATA frame and returns how many bytes of content
// follow.
func (r *reader) readPadding(size int) (int, error) {
	var b [1]byte
	if size == 0 {
		return 0, connError{http2.ErrCodeFrameSize, "no length of padding"}
	}
	if _, err := io.ReadFull(&r.in, b[:]); err != nil {
		return 0, err
	}
	if int(b[0]) >= size {
		return 0, connError{http2.ErrCodeProtocol, "more padding than data"}
	}
	return size - 1 - int(b[0]), nil
}

// endBody notes the end of a request's body.
func (r *reader) endBody(s *Stream) error {
	if s.due > 0 {
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeProtocol}
	}
	r.l.mu.Lock()
	before := s.state.move(streamBodyEnds)
	r.l.mu.Unlock()
	if !before.gone() {
		s.x.EndReceive()
	}
	return nil
}

// resetForMistake resets a stream because of a mistake of the client.
func (r *reader) resetForMistake(id uint32, code http2.ErrCode) error {
	l := r.l
	l.mu.Lock()
	s := l.mu.table.streams[id]
	switch {
	case s != nil:
		l.resetStream(s, code, code == http2.ErrCodeStreamClosed)
		s.endContext(byCancel) // before waitForWriter
	case l.mu.table.isIdle(id):
		l.mu.Unlock()
		// an idle stream must not be reset
		return connError{code, "an invalid frame of an idle stream"}
	default:
		l.mu.table.recent.addReset(id)
		l.mu.out.control = appendReset(l.mu.out.control, id, code)
	}
	l.waitForWriter()
	l.mu.Unlock()
	return r.spendFrames(1)
}

func (r *reader) onReset(id uint32) error {
	l := r.l
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.mu.table.streams[id]
	switch {
	case s != nil:
		l.removeStream(s, true)
		s.endContext(byCancel)
	case l.mu.table.isIdle(id):
		return connError{http2.ErrCodeProtocol, "reset of an idle stream"}
	default:
		l.mu.table.recent.noteEnd(id)
	}
	return nil
}

func (r *reader) onPing(f *http2.PingFrame) error {
	if f.IsAck() {
		if f.Data == drainPing {
			r.l.cutOffRequests()
		}
		return nil
	}
	l := r.l
	l.mu.Lock()
	out := &l.mu.out
	out.control = appendPing(out.control, true, f.Data)
	answered, busy := out.answered, len(l.mu.table.streams) > 0
	out.answered = false
	l.waitForWriter()
	l.mu.Unlock()
	if r.pings.tooMany(time.Now(), answered, busy, l.o.PingMinTime) {
		return connError{http2.ErrCodeEnhanceYourCalm, "too_many_pings"}
	}
	return nil
}

func (r *reader) onSettings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	l := r.l
	l.mu.Lock()
	defer l.mu.Unlock()
	out := &l.mu.out
	window := out.initial
	err := f.ForeachSetting(func(s http2.Setting) error {
		var failed http2.ConnectionError
		if errors.As(s.Valid(), &failed) {
			return connError{http2.ErrCode(failed), "invalid setting " + s.String()}
		}
		switch s.ID {
		case http2.SettingHeaderTableSize:
			out.encoder.setTableSize(s.Val)
		case http2.SettingInitialWindowSize:
			window = int64(s.Val)
		case http2.SettingMaxHeaderListSize:
			out.mostHead = int64(s.Val)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if more := window - out.initial; more != 0 { // once for all settings of the frame
		out.initial = window
		for _, s := range l.mu.table.streams {
			if !out.openStreamWindow(s, more) {
				return errLargeWindow
			}
		}
		r.guard.left -= len(l.mu.table.streams) / 16 // changing many windows costs time
	}
	out.addSettingsAck()
	l.waitForWriter()
	return nil
}

// errLargeWindow ends a connection whose client opens a window beyond 2³¹-1 bytes.
var errLargeWindow = connError{http2.ErrCodeFlowControl, "too large window"}

func (r *reader) onWindowUpdate(id uint32, n int64) error {
	l := r.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if id == 0 {
		if !l.mu.out.openWindow(n) {
			return errLargeWindow
		}
		return nil
	}
	s := l.mu.table.streams[id]
	switch {
	case s == nil && l.mu.table.isIdle(id):
		return connError{http2.ErrCodeProtocol, "window of an idle stream"}
	case s != nil && !l.mu.out.openStreamWindow(s, n):
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeFlowControl}
	}
	return nil
}
