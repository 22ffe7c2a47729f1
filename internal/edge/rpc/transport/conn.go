package transport

import (
	"context"
	"crypto/tls"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"vigil/internal/edge/rpc/transport/h2"
	"vigil/internal/edge/rpc/transport/h2http"
)

// clientConn is a connection and its client. It implements h2.Handler.
type clientConn struct {
	server *Server
	http2  *h2.Conn
	client Client
	peer   *peer.Peer
	values context.Context
	web    *h2http.Conn // serves requests that are not gRPC; nil to reject them
	// Owned by the reader.
	last lastMetadata
	// of the last request, if a repeated request needs only that and the same metadata
	again *Method
	brief [32]byte // memory for a message that is answered at once
	spare []byte   // memory for the next message of a call with one request; may be nil
}

// Values implements h2.Handler.
func (c *clientConn) Values() context.Context { return c.values }

// Begin implements h2.Handler.
func (c *clientConn) Begin(r *h2.Request) h2.Exchange {
	if r.Repeated && c.again != nil {
		return c.newCall(callHeader{method: c.again, metadata: c.last.received})
	}
	c.again = nil
	h := c.readHeader(r)
	if c.web != nil && h.rejected != nil && h.rejected.foreign {
		c.http2.AllowPings()
		return c.web.Begin(r)
	}
	if h.rejected == nil && h.special == nil && !h.hasTimeout && h.metadata == c.last.received {
		c.again = h.method
	}
	return c.newCall(h)
}

// newCall returns the exchange for a call with this header.
func (c *clientConn) newCall(h callHeader) h2.Exchange {
	if h.method != nil && h.rejected == nil && h.method.Open != nil {
		x := &sessionCall{}
		x.conn, x.header = c, h
		return x
	}
	x := calls.Get().(*call)
	x.conn, x.header = c, h
	return x
}

// runWeb runs the handler of a request that is not gRPC.
func (c *clientConn) runWeb(f func()) {
	s := c.server
	c.client.noteCall()
	s.handlers.Add(1)
	s.conns.Workers.Run(func() {
		defer s.handlers.Done()
		f()
	})
}

// secured is a connection after its TLS handshake.
type secured interface{ TLSState() *tls.ConnectionState }

// plainInfo is the AuthInfo of a connection without TLS.
type plainInfo struct{ credentials.CommonAuthInfo }

// AuthType implements credentials.AuthInfo.
func (plainInfo) AuthType() string { return "insecure" }
