package gateway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"net/http"
	"sync"
)

// frameSize is the size in bytes from which a message is sent in several frames. A message of one
// frame must be in memory as a whole.
const frameSize = 1 << 20

// The first byte of a frame of RFC 6455.
const (
	frameText  = 0x1 // of the first frame of a message, 0 of the others
	frameFinal = 0x80
)

// maxFrameHead is the most bytes before the payload of a frame of the server: two, and eight for
// the length.
const maxFrameHead = 10

// socket is the connection of a WebSocket, written piece by piece, each with a deadline. Each Write
// is a whole frame.
type socket struct {
	net.Conn
	pace
	writing sync.Mutex // so that frames are not mixed
}

// Write implements net.Conn.
func (s *socket) Write(b []byte) (int, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.writePieces(b, writeSize, s.Conn.Write)
}

// hijacking is a ResponseWriter whose connection is a socket once it is hijacked.
type hijacking struct {
	http.ResponseWriter
	ctx  context.Context // that ends the writes
	sock *socket         // nil before
	// When gateway ends, the connection is closed. That ends the reading of the client's messages,
	// and so the call. release prevents that.
	gateway context.Context
	release func() bool
}

// Hijack implements http.Hijacker.
func (h *hijacking) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	h.sock = &socket{Conn: c}
	h.sock.startPacing(h.ctx, c.SetWriteDeadline)
	h.release = context.AfterFunc(h.gateway, func() {
		h.sock.cutWrite() // no errors of writes, which would be logged
		closeSocket(c)
	})
	return h.sock, bufio.NewReadWriter(rw.Reader, bufio.NewWriter(h.sock)), nil
}

// closeSocket closes the socket of a connection. It does not end TLS first, because that would wait
// if the client does not read.
func closeSocket(c net.Conn) {
	for inner, ok := c.(interface{ NetConn() net.Conn }); ok; inner,
		ok = c.(interface{ NetConn() net.Conn }) {
		c = inner.NetConn()
	}
	c.Close()
}

// lines sends each line of an answer as a message, in frames of up to frameSize bytes.
type lines struct {
	sock   *socket
	header http.Header
	frame  []byte // room for the head of a frame, and the payload so far; nil if there is none
	begun  bool   // a message of which frames were sent
}

// Header implements http.ResponseWriter.
func (l *lines) Header() http.Header { return l.header }

// WriteHeader implements http.ResponseWriter.
func (l *lines) WriteHeader(int) {}

// Flush implements http.Flusher.
func (l *lines) Flush() {}

// Write implements http.ResponseWriter.
func (l *lines) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		part := b[:min(len(b), frameSize-l.payload())]
		i := bytes.IndexByte(part, '\n')
		if i >= 0 {
			part = part[:i]
		}
		l.appendPayload(part)
		b = b[len(part):]
		var err error
		switch {
		case i >= 0:
			b = b[1:]
			err = l.endMessage()
		case l.payload() == frameSize:
			err = l.sendFrame(0)
		}
		if err != nil {
			return n - len(b), err
		}
	}
	return n, nil
}

// payload returns the size in bytes of the payload so far.
func (l *lines) payload() int { return max(0, len(l.frame)-maxFrameHead) }

func (l *lines) appendPayload(b []byte) {
	if l.frame == nil {
		l.frame = make([]byte, maxFrameHead, maxFrameHead+len(b))
	}
	l.frame = append(l.frame, b...)
}

// endMessage sends the rest of a message. An empty line is not a message.
func (l *lines) endMessage() error {
	if l.payload() == 0 && !l.begun {
		return nil
	}
	return l.sendFrame(frameFinal)
}

// sendFrame sends a frame.
func (l *lines) sendFrame(final byte) error {
	l.appendPayload(nil)
	n := l.payload()
	head := make([]byte, 2, maxFrameHead)
	head[0] = final
	if !l.begun {
		head[0] |= frameText
	}
	switch {
	case n <= 125:
		head[1] = byte(n)
	case n <= 1<<16-1:
		head[1] = 126
		head = binary.BigEndian.AppendUint16(head, uint16(n))
	default:
		head[1] = 127
		head = binary.BigEndian.AppendUint64(head, uint64(n))
	}
	b := l.frame[maxFrameHead-len(head):]
	copy(b, head)
	_, err := l.sock.Write(b)
	l.begun = final == 0
	l.frame = l.frame[:maxFrameHead]
	if cap(l.frame) > writeSize && final != 0 {
		l.frame = nil // the next message may be much later
	}
	return err
}
