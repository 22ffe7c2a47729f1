package grpcconn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// windowGrain is how much is received before a window update gives it back.
const windowGrain = 1 << 29

// reader is the receiving half of a connection.
type reader struct {
	c        *Conn
	dec      *hpack.Decoder
	consumed int // received on the connection since the last window update

	block    []byte // header block that continues in the next frame
	blockID  uint32 // its stream, 0 if none
	blockEnd bool   // its HEADERS frame had END_STREAM

	// From the header block that is being decoded.
	status  Status
	hasGRPC bool
	http    string
}

func (r *reader) init(c *Conn) {
	r.c = c
	r.dec = hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		switch f.Name {
		case ":status":
			r.http = f.Value
		case "grpc-status":
			r.hasGRPC = true
			r.status.Code = parseCode(f.Value)
		case "grpc-message":
			r.status.Message = decodeMessage(f.Value)
		}
	})
}

// readFrames reads until the connection fails, then ends every stream.
func (r *reader) readFrames() {
	c := r.c
	defer close(c.done)
	buf := make([]byte, c.opts.ReadBuffer)
	var from, to int // the unread bytes of buf
	for {
		c.gate.pass()
		n, err := c.nc.Read(buf[to:])
		now := time.Now()
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) && n == 0 {
				// Cancel has woken the reader. The deadline goes first: a later Cancel sets it
				// again.
				err = c.nc.SetReadDeadline(time.Time{})
				r.endCanceledStreams(now)
			}
			if err != nil {
				c.fail(fmt.Errorf("read: %w", err))
				r.endAllStreams(now)
				return
			}
		}
		to += n
		for to-from >= frameHeader {
			b := buf[from:to]
			size := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
			if size > maxFrame {
				c.fail(fmt.Errorf("frame of %d bytes, the limit is %d", size, maxFrame))
				break
			}
			if len(b) < frameHeader+size {
				break
			}
			id := binary.BigEndian.Uint32(b[5:]) &^ (1 << 31)
			if err := r.handleFrame(now, http2.FrameType(b[3]), http2.Flags(b[4]), id,
				b[frameHeader:frameHeader+size]); err != nil {
				c.fail(err)
				break
			}
			from += frameHeader + size
		}
		if from == to {
			from, to = 0, 0
		} else if len(buf)-to < frameHeader+maxFrame {
			to = copy(buf, buf[from:to])
			from = 0
		}
		// A failed flush fails the connection, which the next read reports.
		_ = c.Flush()
	}
}

// handleFrame handles one frame.
func (r *reader) handleFrame(at time.Time, t http2.FrameType, flags http2.Flags, id uint32,
	p []byte) error {
	if r.blockID != 0 && (t != http2.FrameContinuation || id != r.blockID) {
		return fmt.Errorf("%v frame inside a header block", t)
	}
	switch t {
	case http2.FrameData:
		return r.handleData(at, flags, id, p)
	case http2.FrameHeaders:
		p, err := unpad(flags.Has(http2.FlagHeadersPadded), p)
		if err != nil {
			return err
		}
		if flags.Has(http2.FlagHeadersPriority) {
			if len(p) < 5 {
				return errors.New("HEADERS frame too short for its priority")
			}
			p = p[5:]
		}
		end := flags.Has(http2.FlagHeadersEndStream)
		if flags.Has(http2.FlagHeadersEndHeaders) {
			return r.handleHeaders(at, id, p, end)
		}
		r.block, r.blockID, r.blockEnd = append(r.block[:0], p...), id, end
	case http2.FrameContinuation:
		if r.blockID == 0 {
			return errors.New("CONTINUATION frame without a header block")
		}
		r.block = append(r.block, p...)
		if flags.Has(http2.FlagContinuationEndHeaders) {
			r.blockID = 0
			return r.handleHeaders(at, id, r.block, r.blockEnd)
		}
	case http2.FrameRSTStream:
		if len(p) != 4 {
			return errors.New("RST_STREAM frame of a wrong size")
		}
		code := http2.ErrCode(binary.BigEndian.Uint32(p))
		r.endStream(at, id, Status{Code: codeOf(code), Message: "stream reset by the server: " +
			code.String()}, false)
	case http2.FrameSettings:
		if !flags.Has(http2.FlagSettingsAck) {
			return r.handleSettings(p)
		}
	case http2.FramePing:
		if !flags.Has(http2.FlagPingAck) && len(p) == 8 {
			c := r.c
			c.mu.Lock()
			c.mu.out = appendFrameHeader(c.mu.out, 8, http2.FramePing, http2.FlagPingAck, 0)
			c.mu.out = append(c.mu.out, p...)
			c.mu.Unlock()
		}
	case http2.FrameGoAway:
		if len(p) < 8 {
			return errors.New("GOAWAY frame too short")
		}
		return fmt.Errorf("server sent GOAWAY: %v %q",
			http2.ErrCode(binary.BigEndian.Uint32(p[4:])), p[8:])
	case http2.FrameWindowUpdate:
		if len(p) != 4 {
			return errors.New("WINDOW_UPDATE frame of a wrong size")
		}
		n := int64(binary.BigEndian.Uint32(p) &^ (1 << 31))
		c := r.c
		c.mu.Lock()
		if id == 0 {
			c.mu.window += n
		} else if s := c.mu.streams[id]; s != nil {
			s.window += n
		}
		if len(c.mu.blocked) > 0 {
			c.sendWaiting()
		}
		c.mu.Unlock()
	}
	return nil
}

func (r *reader) handleData(at time.Time, flags http2.Flags, id uint32, p []byte) error {
	c := r.c
	size := len(p)
	p, err := unpad(flags.Has(http2.FlagDataPadded), p)
	if err != nil {
		return err
	}
	end := flags.Has(http2.FlagDataEndStream)
	r.consumed += size
	c.mu.Lock()
	s := c.mu.streams[id]
	if r.consumed >= windowGrain {
		c.mu.out = appendWindowUpdate(c.mu.out, 0, uint32(r.consumed))
		r.consumed = 0
	}
	if s != nil {
		s.consumed += size
		// A grain of the whole window is too late for a small one; half of it serves both.
		if s.consumed >= min(windowGrain, c.opts.StreamWindow/2) && !end &&
			!c.opts.HoldStreamWindow {
			c.mu.out = appendWindowUpdate(c.mu.out, id, uint32(s.consumed))
			s.consumed = 0
		}
	}
	c.mu.Unlock()
	if s == nil {
		return nil
	}
	if err := s.addData(at, p); err != nil {
		return err
	}
	if end {
		r.endStream(at, id, Status{Code: Internal, Message: "the stream ended without trailers"},
			true)
	}
	return nil
}

// handleHeaders handles a whole header block: the first of a stream, or its trailers.
func (r *reader) handleHeaders(at time.Time, id uint32, block []byte, end bool) error {
	r.status, r.hasGRPC, r.http = Status{}, false, ""
	if _, err := r.dec.Write(block); err != nil {
		return fmt.Errorf("header block: %w", err)
	}
	if err := r.dec.Close(); err != nil {
		return fmt.Errorf("header block: %w", err)
	}
	if !end {
		return nil
	}
	s := r.status
	if !r.hasGRPC {
		s = Status{Code: Unknown,
			Message: "no grpc-status in the trailers (http status " + r.http + ")"}
	}
	r.endStream(at, id, s, true)
	return nil
}

func (r *reader) handleSettings(p []byte) error {
	if len(p)%6 != 0 {
		return errors.New("SETTINGS frame of a wrong size")
	}
	c := r.c
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &c.mu
	for ; len(p) > 0; p = p[6:] {
		v := binary.BigEndian.Uint32(p[2:])
		switch http2.SettingID(binary.BigEndian.Uint16(p)) {
		case http2.SettingInitialWindowSize:
			if v > maxWindow {
				return fmt.Errorf("initial window of %d bytes", v)
			}
			d := int64(v) - m.initial
			m.initial = int64(v)
			for _, s := range m.streams {
				s.window += d
			}
			c.sendWaiting()
		case http2.SettingHeaderTableSize:
			m.headers.setTableSize(v)
		}
	}
	m.out = appendFrameHeader(m.out, 0, http2.FrameSettings, http2.FlagSettingsAck, 0)
	return nil
}

// endStream ends one stream, if it is still there.
func (r *reader) endStream(at time.Time, id uint32, st Status, mayReset bool) {
	c := r.c
	c.mu.Lock()
	s := c.mu.streams[id]
	reset := mayReset && s != nil && !s.sentEnd
	c.mu.Unlock()
	if c.removeStream(id, reset) == nil {
		return
	}
	h := s.handler
	c.releaseStream(s)
	h.End(at, st)
}

func (r *reader) endCanceledStreams(at time.Time) {
	c := r.c
	c.mu.Lock()
	gone := c.mu.canceled
	c.mu.canceled = nil
	c.mu.Unlock()
	for _, s := range gone {
		s.handler.End(at, Status{Code: Canceled, Message: "canceled by the client"})
	}
}

// endAllStreams notifies every handler of the end of the connection. No stream can be opened at the
// same time, since the connection has its error.
func (r *reader) endAllStreams(at time.Time) {
	r.endCanceledStreams(at)
	c := r.c
	c.mu.Lock()
	streams, err := c.mu.streams, c.mu.err
	c.mu.streams = map[uint32]*stream{}
	c.mu.blocked = nil
	c.mu.Unlock()
	for _, s := range streams {
		s.handler.End(at, Status{Code: Unavailable, Message: err.Error()})
	}
}

func unpad(padded bool, p []byte) ([]byte, error) {
	if !padded {
		return p, nil
	}
	if len(p) == 0 || int(p[0]) >= len(p) {
		return nil, errors.New("padding longer than its frame")
	}
	return p[1 : len(p)-int(p[0])], nil
}
