package portmux

import (
	"bytes"
	"container/list"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/net/http2/hpack"
)

// The part of HTTP/2 (RFC 9113) that is needed to find the first request.
const (
	frameHeader      = 9
	typeHeaders      = 0x1
	typeSettings     = 0x4
	flagAck          = 0x1
	flagPadded       = 0x8
	flagPriority     = 0x20
	maxFrame         = 16 << 10 // the largest frame before a larger size was allowed
	maxBeforeRequest = 64 << 10
)

// requestTimeout is how long an HTTP/2 connection may have no request before it is routed as gRPC.
const requestTimeout = time.Second

// serverPreface is an empty SETTINGS frame. gRPC clients wait for one before they send a request.
var serverPreface = []byte{0, 0, 0, typeSettings, 0, 0, 0, 0, 0}

// split reads from the preface of HTTP/2 to the first request and returns the listener for the connection. The server of
// the connection sends its own settings, as it may at any time. The client's acknowledgement of ours is hidden from
// HTTP servers, which count acknowledgements.
func (m *Mux) split(root net.Conn, e *list.Element, c *prefixed) (*Listener, error) {
	// It is not closed any more for the sake of newer connections.
	m.mu.Lock()
	m.mu.pending.Remove(e)
	m.mu.known[root] = struct{}{}
	closed := m.mu.closed
	m.mu.Unlock()
	if closed {
		return nil, net.ErrClosed
	}
	if err := m.limit(root, requestTimeout, drainTime); err != nil {
		return nil, err
	}
	if _, err := c.Conn.Write(serverPreface); err != nil {
		return nil, err
	}
	ackAt := -1
	for len(c.first) < maxBeforeRequest {
		at := len(c.first)
		h, err := c.take(frameHeader)
		if err == nil {
			length := int(h[0])<<16 | int(h[1])<<8 | int(h[2])
			if length > maxFrame {
				return m.http2, nil // gRPC's server answers with an error
			}
			kind, flags := h[3], h[4]
			var payload []byte
			payload, err = c.take(length)
			switch {
			case err != nil:
			case kind == typeSettings && flags&flagAck != 0 && length == 0:
				ackAt = at
			case kind == typeHeaders:
				if isGRPC(flags, payload) {
					return m.http2, nil
				}
				if ackAt >= 0 {
					c.first = append(c.first[:ackAt], c.first[ackAt+frameHeader:]...)
				} else {
					c.Conn = &unacknowledged{Conn: c.Conn}
				}
				return m.http1, nil
			}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return m.http2, nil
		}
		if err != nil {
			return nil, fmt.Errorf("before the first request: %w", err)
		}
	}
	return m.http2, nil
}

// take reads n more bytes and keeps them for the server of the connection.
func (c *prefixed) take(n int) ([]byte, error) {
	at := len(c.first)
	c.first = append(c.first, make([]byte, n)...)
	got, err := io.ReadFull(c.Conn, c.first[at:])
	c.first = c.first[:at+got]
	return c.first[at:], err
}

// isGRPC reports whether a HEADERS frame begins a gRPC call. A frame that cannot be decoded counts as one.
func isGRPC(flags byte, payload []byte) bool {
	if flags&flagPadded != 0 && len(payload) > 0 {
		pad := int(payload[0])
		payload = payload[1:]
		payload = payload[:max(len(payload)-pad, 0)]
	}
	if flags&flagPriority != 0 {
		payload = payload[min(5, len(payload)):]
	}
	grpc, other := false, false
	d := hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		switch {
		case f.Name == "content-type":
			grpc = strings.HasPrefix(f.Value, "application/grpc")
		case strings.HasPrefix(f.Name, ":"):
			other = true
		}
	})
	d.SetMaxStringLength(maxFrame)
	if _, err := d.Write(payload); err != nil {
		return true
	}
	return grpc || !other
}

// unacknowledged omits the first SETTINGS frame with an acknowledgement from the bytes that are read. It begins between
// two frames.
type unacknowledged struct {
	net.Conn
	header [frameHeader]byte
	have   int          // bytes of header that were read
	ready  bytes.Reader // the rest of a header that is passed on
	left   uint32       // bytes of its payload
	done   bool
}

// NetConn returns the connection below.
func (c *unacknowledged) NetConn() net.Conn { return c.Conn }

// PassesOn reports whether Read returns what that of the connection below returns, from now on. The reader may call it.
func (c *unacknowledged) PassesOn() bool { return c.done && c.ready.Len() == 0 && c.left == 0 }

func (c *unacknowledged) Read(b []byte) (int, error) {
	for {
		switch {
		case c.ready.Len() > 0:
			return c.ready.Read(b)
		case c.left > 0:
			n, err := c.Conn.Read(b[:min(uint64(len(b)), uint64(c.left))])
			c.left -= uint32(n)
			return n, err
		case c.done || len(b) == 0:
			return c.Conn.Read(b)
		}
		n, err := io.ReadFull(c.Conn, c.header[c.have:])
		c.have += n
		if c.have < frameHeader {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				err = io.EOF
			}
			return 0, err
		}
		c.have = 0
		if c.header[3] == typeSettings && c.header[4]&flagAck != 0 {
			c.done = true
			continue
		}
		c.left = binary.BigEndian.Uint32(c.header[:4]) >> 8
		c.ready.Reset(c.header[:])
	}
}
