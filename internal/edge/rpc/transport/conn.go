package transport

import (
	"context"
	"crypto/tls"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"vigil/internal/edge/rpc/transport/h2"
	"vigil/internal/edge/rpc/transport/h2http"
)

// clientConn is a connection with its client. It implements h2.Handler.
type clientConn struct {
	server *Server
	http2  *h2.Conn
	client Client
	peer   *peer.Peer
	values context.Context
	web    *h2http.Conn // serves requests that are not gRPC; nil if they are rejected
	// Owned by the reader.
	last  lastMetadata
	again *Method  // of the last request, if a repeated one needs nothing but that and the same metadata
	brief [32]byte // a message that is answered at once
	spare []byte   // memory for the next message of a call with one request; nil if there is none
}

// Values implements h2.Handler.
func (c *clientConn) Values() context.Context { return c.values }

// Begin implements h2.Handler.
func (c *clientConn) Begin(r *h2.Request) h2.Exchange {
	x := calls.Get().(*call)
	x.conn = c
	if r.Repeated && c.again != nil {
		x.method, x.metadata = c.again, c.last.received
		return x
	}
	x.readHeader(r)
	if c.web != nil && x.rejected != nil && x.rejected.foreign {
		c.again = nil
		x.recycle()
		c.http2.AllowPings()
		return c.web.Begin(r)
	}
	if c.again = nil; x.rejected == nil && x.special == nil && !x.hasTimeout && x.metadata == c.last.received {
		c.again = x.method
	}
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
