package portmux

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"
)

// preface is what an HTTP/2 client sends first.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// handshakeRecord is the first byte of a TLS connection. No request begins with it.
const handshakeRecord = 0x16

var (
	errPlain = errors.New("first record does not look like a TLS handshake: this address speaks TLS only")
	errTLS   = errors.New("a TLS handshake: this address speaks no TLS")
)

// route reads from a connection until its protocol is known. It returns the listener for it.
func (m *Mux) route(conn net.Conn) (*prefixed, *Listener, error) {
	if err := m.setRouteDeadline(conn); err != nil {
		return nil, nil, err
	}
	c := &prefixed{Conn: conn, first: make([]byte, 0, len(preface))}
	if err := c.sniffPreface(); err != nil {
		return c, nil, err
	}
	switch begins := c.first[0] == handshakeRecord; {
	case begins && m.o.TLS == nil:
		return c, nil, errTLS
	case !begins && m.o.RefusePlain:
		return c, nil, errPlain
	case begins:
		secure := tls.Server(c, m.tlsConfig())
		ctx, cancel := context.WithTimeout(context.Background(), m.o.Timeout)
		defer cancel()
		if err := secure.HandshakeContext(ctx); err != nil {
			return c, nil, &handshakeError{secure.ConnectionState(), err}
		}
		state := secure.ConnectionState()
		c = &prefixed{Conn: secure, state: &state, first: make([]byte, 0, len(preface))}
		if err := c.sniffPreface(); err != nil {
			return c, nil, err
		}
	}
	if string(c.first) == preface {
		return c, m.http2, nil
	}
	return c, m.http1, nil
}

// sniffPreface reads until the bytes are the preface of HTTP/2, or cannot become it.
func (c *prefixed) sniffPreface() error {
	for len(c.first) < len(preface) && string(c.first) == preface[:len(c.first)] {
		n, err := c.Conn.Read(c.first[len(c.first):len(preface)])
		if c.first = c.first[:len(c.first)+n]; n == 0 && err != nil {
			if len(c.first) == 0 {
				return errSilent{err}
			}
			return fmt.Errorf("after %d bytes: %w", len(c.first), err)
		}
	}
	return nil
}

// errSilent is the error of a connection that has sent nothing.
type errSilent struct{ error }

func (e errSilent) Unwrap() error { return e.error }

// handshakeError is a failed TLS handshake, with its state.
type handshakeError struct {
	state tls.ConnectionState
	err   error
}

func (e *handshakeError) Error() string { return e.err.Error() }
func (e *handshakeError) Unwrap() error { return e.err }

// prefixed is a connection whose first bytes are read already.
type prefixed struct {
	net.Conn
	first []byte               // owned by the reader
	state *tls.ConnectionState // nil without TLS
}

// NetConn returns the connection below.
func (c *prefixed) NetConn() net.Conn { return c.Conn }

// PassesOn reports whether Read now passes on the bytes of the connection below. Only the reader
// may call it.
func (c *prefixed) PassesOn() bool { return len(c.first) == 0 }

func (c *prefixed) Read(b []byte) (int, error) {
	if len(c.first) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.first)
	c.first = c.first[n:]
	return n, nil
}

// serverConn returns the connection in the form that its server gets.
func (c *prefixed) serverConn() net.Conn {
	if c.state == nil {
		return c
	}
	return &secured{c}
}

// secured is a prefixed connection with TLS.
type secured struct{ *prefixed }

// TLSState returns the state of the handshake. The method is not called ConnectionState, because
// net/http serves no HTTP/2 on a connection with that method unless it is a *tls.Conn.
func (c *secured) TLSState() *tls.ConnectionState { return c.state }

// logRejected logs why a connection was closed. A client that closes its connection or sends
// nothing gets no warning, because port checks do that.
func (m *Mux) logRejected(conn net.Conn, err error) {
	level := slog.LevelWarn
	silent := errSilent{}
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.As(err, &silent) {
		level = slog.LevelDebug
	}
	if !m.o.Logger.Enabled(context.Background(), level) {
		return
	}
	dropped, ok := m.lines.allowLine(time.Now())
	if !ok {
		return
	}
	attrs := []slog.Attr{slog.String("remote-addr", conn.RemoteAddr().String())}
	if h := (*handshakeError)(nil); errors.As(err, &h) {
		attrs = append(attrs, slog.String("server-name", h.state.ServerName))
		if len(h.state.PeerCertificates) > 0 {
			cert := h.state.PeerCertificates[0]
			attrs = append(attrs, slog.Any("ip-addresses", cert.IPAddresses),
				slog.Any("dns-names", cert.DNSNames))
		}
	}
	if dropped > 0 {
		attrs = append(attrs, slog.Int("lines-left-out", dropped))
	}
	m.o.Logger.LogAttrs(context.Background(), level, "rejected connection on client endpoint",
		append(attrs, slog.String("error", err.Error()))...)
}

// lines limits a log to maxLines lines a second.
type lines struct {
	mu      sync.Mutex
	second  time.Time
	written int
	dropped int
}

const maxLines = 10

// allowLine reports whether a line may be logged, and how many lines were dropped since the last
// one.
func (l *lines) allowLine(now time.Time) (dropped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.second) >= time.Second {
		l.second, l.written = now, 0
	}
	if l.written == maxLines {
		l.dropped++
		return 0, false
	}
	l.written++
	dropped, l.dropped = l.dropped, 0
	return dropped, true
}
