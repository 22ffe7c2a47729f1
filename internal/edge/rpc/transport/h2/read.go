package h2

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"golang.org/x/net/http2"
)

// connError ends a connection with a code.
type connError struct {
	code http2.ErrCode
	text string
}

func (e connError) Error() string { return e.code.String() + ": " + e.text }

// errTooManyFrames ends a connection whose client sends frames that have no effect.
var errTooManyFrames = connError{http2.ErrCodeEnhanceYourCalm, "too_many_frames"}

// read reads the connection to its end.
func (c *Conn) read() error {
	err := c.shake()
	for {
		if err == nil {
			err = c.readFrame()
			continue
		}
		var stream http2.StreamError // here, because it is allocated
		switch {
		case errors.As(err, &stream):
			err = c.resetID(stream.StreamID, stream.Code)
			continue
		case err == io.EOF:
			return nil
		}
		if failed, ok := c.fault(err); ok {
			err = c.fail(failed.code, failed.text)
			c.linger()
		}
		return err
	}
}

// fault returns the code and text for the client if an error of reading is its fault.
func (c *Conn) fault(err error) (failed connError, ok bool) {
	var connection http2.ConnectionError
	switch {
	case errors.As(err, &failed):
		return failed, true
	case errors.As(err, &connection):
		text := "invalid frame"
		if detail := c.framer.ErrorDetail(); detail != nil {
			text = detail.Error()
		}
		return connError{http2.ErrCode(connection), text}, true
	case errors.Is(err, http2.ErrFrameTooLarge):
		return connError{http2.ErrCodeFrameSize, "too large frame"}, true
	}
	return connError{}, false
}

// linger reads for a moment, and until the output is written, so that the client can receive why the connection has ended.
func (c *Conn) linger() {
	now := time.Now()
	_ = c.nc.SetReadDeadline(now.Add(lingerTime)) // fails after a close only
	_ = c.nc.SetWriteDeadline(now.Add(reasonTime))
	_, _ = io.CopyN(io.Discard, c.nc, lingerBytes)
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.mu.lost && (c.mu.writing || c.hasOutput()) {
		c.mu.changed.Wait()
	}
}

// shake reads the beginning: the preface of the protocol, and the client's settings.
func (c *Conn) shake() error {
	if err := c.nc.SetReadDeadline(time.Now().Add(c.o.HandshakeTimeout)); err != nil {
		return err
	}
	var preface [len(http2.ClientPreface)]byte
	if _, err := io.ReadFull(&c.in, preface[:]); err != nil {
		if err == io.EOF {
			return err
		}
		return fmt.Errorf("reading the preface: %w", err)
	}
	if string(preface[:]) != http2.ClientPreface {
		return fmt.Errorf("the connection begins with %q", preface)
	}
	fh, err := c.framer.ReadFrameHeader()
	if err != nil {
		return fmt.Errorf("reading the first settings: %w", err)
	}
	if fh.Type != http2.FrameSettings || fh.Flags.Has(http2.FlagSettingsAck) {
		return connError{http2.ErrCodeProtocol, "no settings after the preface"}
	}
	if err := c.readOther(fh); err != nil {
		return err
	}
	// The deadline is removed first: once the handshake is complete, the end of a connection that drains may set another.
	if err := c.nc.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.greeted = true
	c.startKeepAlive()
	return nil
}

// beforeRead writes what the frames before require to be written: the reader may wait for a long time now. If that is much,
// whatever it is, the reader waits for the client to read it.
func (c *Conn) beforeRead() {
	c.mu.Lock()
	c.pushBack()
	c.writeReady(turnsOfOwner)
}

// spend counts frames without effect.
func (c *Conn) spend(n int) error {
	ok := c.guard.spend(n, func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		n := c.mu.earned
		c.mu.earned = 0
		return max(n, 0)
	})
	if !ok {
		return errTooManyFrames
	}
	return nil
}

// pushBack waits while the client does not read what its frames have caused. c.mu is held.
func (c *Conn) pushBack() {
	for len(c.mu.control) > maxControl && !c.mu.lost && !c.mu.shut {
		c.handOver()
		c.mu.changed.Wait()
	}
}

func (c *Conn) readFrame() error {
	fh, err := c.framer.ReadFrameHeader()
	if err != nil {
		return err
	}
	switch fh.Type {
	case http2.FrameData:
		return c.readData(fh)
	case http2.FrameHeaders:
		return c.readHeaders(fh)
	}
	return c.readOther(fh)
}

// readOther reads a frame without content.
func (c *Conn) readOther(fh http2.FrameHeader) error {
	frame, err := c.framer.ReadFrameForHeader(fh)
	if err != nil {
		return err
	}
	if err := c.spend(1); err != nil {
		return err
	}
	switch f := frame.(type) {
	case *http2.WindowUpdateFrame:
		return c.onWindowUpdate(f.StreamID, int64(f.Increment))
	case *http2.PingFrame:
		return c.onPing(f)
	case *http2.SettingsFrame:
		return c.onSettings(f)
	case *http2.RSTStreamFrame:
		return c.onReset(f.StreamID)
	case *http2.PriorityFrame:
		if f.StreamDep == f.StreamID {
			return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeProtocol}
		}
	case *http2.PushPromiseFrame:
		return connError{http2.ErrCodeProtocol, "a client must not push"}
	case *http2.ContinuationFrame:
		return connError{http2.ErrCodeProtocol, "a continuation of nothing"}
	}
	return nil // unknown frames, and a GOAWAY, which does not concern the requests under way
}

// readData reads a DATA frame into its exchange.
func (c *Conn) readData(fh http2.FrameHeader) error {
	size := int(fh.Length)
	if fh.StreamID == 0 {
		return connError{http2.ErrCodeProtocol, "data on stream 0"}
	}
	if c.recv -= int64(size); c.recv < 0 {
		return connError{http2.ErrCodeFlowControl, "more data than the window of the connection"}
	}
	c.mu.Lock()
	s := c.mu.streams[fh.StreamID]
	last, byClient := c.mu.lastID, false
	switch {
	case s == nil:
		byClient, _ = c.mu.recent.find(fh.StreamID)
	case s.clientEnded:
		s, byClient = nil, true // it may be answered, and serve another request, as soon as c.mu is free
	default:
		s.charge(int64(size))
	}
	if c.recv < connWindow/2 {
		c.mu.control = appendWindowUpdate(c.mu.control, 0, uint32(connWindow-c.recv))
		c.recv = connWindow
		c.pushBack()
	}
	c.mu.Unlock()
	ended := fh.Flags.Has(http2.FlagDataEndStream)
	if size == 0 && !ended || s == nil {
		if err := c.spend(1); err != nil {
			return err
		}
	}
	if err := c.readBody(s, fh, last, byClient); err != nil {
		return err
	}
	if s != nil && ended {
		return c.endBody(s)
	}
	return nil
}

// readBody reads the content of a DATA frame, to its end unless the connection fails. s is nil if the stream takes none; byClient
// says that it is the client that has ended it.
func (c *Conn) readBody(s *Stream, fh http2.FrameHeader, last uint32, byClient bool) error {
	size, padding := int(fh.Length), 0
	if fh.Flags.Has(http2.FlagDataPadded) {
		n, err := c.readPadding(size)
		if err != nil {
			return err
		}
		size, padding = n, size-1-n
		if size == 0 {
			if err := c.spend(1); err != nil {
				return err
			}
		}
	}
	reject := func(err error) error {
		if e := discard(&c.in, size+padding); e != nil {
			return e
		}
		return err
	}
	switch {
	case s == nil && (fh.StreamID > last || fh.StreamID%2 == 0):
		return connError{http2.ErrCodeProtocol, "data on an idle stream"}
	case s == nil && !byClient:
		return reject(nil) // the client did not know yet that the stream was closed
	case s == nil:
		return reject(http2.StreamError{StreamID: fh.StreamID, Code: http2.ErrCodeStreamClosed})
	case s.headCost > 0 && c.unread.Load() > c.o.MaxUnreadBytes: // no handler has seen it
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
	if err := s.x.Receive(&c.in, size); err != nil {
		return err
	}
	return discard(&c.in, padding)
}

// readPadding reads the length of the padding of a DATA frame and returns how many bytes of content follow.
func (c *Conn) readPadding(size int) (int, error) {
	var b [1]byte
	if size == 0 {
		return 0, connError{http2.ErrCodeFrameSize, "no length of padding"}
	}
	if _, err := io.ReadFull(&c.in, b[:]); err != nil {
		return 0, err
	}
	if int(b[0]) >= size {
		return 0, connError{http2.ErrCodeProtocol, "more padding than data"}
	}
	return size - 1 - int(b[0]), nil
}

// endBody notes the end of the body of a request.
func (c *Conn) endBody(s *Stream) error {
	if s.due > 0 {
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeProtocol}
	}
	c.mu.Lock()
	s.clientEnded = true
	closed := s.closed
	c.mu.Unlock()
	if !closed {
		s.x.EndReceive()
	}
	return nil
}

// resetID resets a stream because of what the client has sent.
func (c *Conn) resetID(id uint32, code http2.ErrCode) error {
	c.mu.Lock()
	s := c.mu.streams[id]
	if s == nil && (id > c.mu.lastID || id%2 == 0) {
		c.mu.Unlock()
		return connError{code, "an invalid frame of an idle stream"} // which must not be reset
	}
	if s != nil {
		s.clientEnded = code == http2.ErrCodeStreamClosed
		c.resetLocked(s, code)
		s.endContext(byCancel) // before the reader may wait
	} else {
		c.mu.recent.addReset(id)
		c.mu.control = appendReset(c.mu.control, id, code)
	}
	c.pushBack()
	c.mu.Unlock()
	return c.spend(1)
}

func (c *Conn) onReset(id uint32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.mu.streams[id]
	if s == nil {
		if id > c.mu.lastID || id%2 == 0 {
			return connError{http2.ErrCodeProtocol, "reset of an idle stream"}
		}
		c.mu.recent.end(id)
		return nil
	}
	s.clientEnded = true
	c.remove(s)
	s.endContext(byCancel)
	return nil
}

func (c *Conn) onPing(f *http2.PingFrame) error {
	c.mu.Lock()
	if f.IsAck() {
		c.mu.Unlock()
		if f.Data == drainPing {
			c.drained()
		}
		return nil
	}
	c.mu.control = appendPing(c.mu.control, true, f.Data)
	answered, busy := c.mu.answered, len(c.mu.streams) > 0
	c.mu.answered = false
	c.pushBack()
	c.mu.Unlock()
	if c.pings.tooMany(time.Now(), answered, busy, c.o.PingMinTime) {
		return connError{http2.ErrCodeEnhanceYourCalm, "too_many_pings"}
	}
	return nil
}

func (c *Conn) onSettings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	window := c.mu.initial
	err := f.ForeachSetting(func(s http2.Setting) error {
		var failed http2.ConnectionError
		if errors.As(s.Valid(), &failed) {
			return connError{http2.ErrCode(failed), "invalid setting " + s.String()}
		}
		switch s.ID {
		case http2.SettingHeaderTableSize:
			c.mu.encoder.setTableSize(s.Val)
		case http2.SettingInitialWindowSize:
			window = int64(s.Val)
		case http2.SettingMaxHeaderListSize:
			c.mu.mostHead = int64(s.Val)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := c.setInitialWindow(window); err != nil { // once, whatever the number of settings
		return err
	}
	// Answers that are frames already keep to the settings before: they precede the acknowledgement.
	c.mu.control = takePrompt(c, c.mu.control)
	c.mu.control = appendFrame(c.mu.control, 0, http2.FrameSettings, http2.FlagSettingsAck, 0)
	c.pushBack()
	return nil
}

// setInitialWindow changes the windows of all streams. c.mu is held.
func (c *Conn) setInitialWindow(n int64) error {
	more := n - c.mu.initial
	c.mu.initial = n
	if more == 0 {
		return nil
	}
	for _, s := range c.mu.streams {
		if s.out.window += more; s.out.window > math.MaxInt32 {
			return connError{http2.ErrCodeFlowControl, "too large window"}
		}
		s.windowOpened()
	}
	c.guard.left -= len(c.mu.streams) / 16 // the next frame is checked
	return nil
}

func (c *Conn) onWindowUpdate(id uint32, n int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id == 0 {
		if c.mu.window += n; c.mu.window > math.MaxInt32 {
			return connError{http2.ErrCodeFlowControl, "too large window"}
		}
		return nil // the writer takes stalled streams as far as the window suffices
	}
	s := c.mu.streams[id]
	if s == nil {
		if id > c.mu.lastID || id%2 == 0 {
			return connError{http2.ErrCodeProtocol, "window of an idle stream"}
		}
		return nil
	}
	if s.out.window += n; s.out.window > math.MaxInt32 {
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeFlowControl}
	}
	s.windowOpened()
	return nil
}

// windowOpened lists a stream that may have waited for its window. c.mu is held.
func (s *Stream) windowOpened() {
	if s.out.bytes > 0 {
		s.c.ready(s)
	} else if s.out.full {
		s.refill()
	}
}
