package transport

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// Client receives answers: it is a connection, or the reader of calls made in this process. A call
// finds it through the address of its peer.
type Client struct {
	cut       func()
	closed    context.Context // ends when the connection is closed
	firstCall func()          // runs at the first call; may be nil
	called    atomic.Bool
}

// NewReader returns a client for calls made in this process. cut ends its requests.
func NewReader(cut func()) *Client { return &Client{cut: cut, closed: context.Background()} }

// Cut closes the connection.
func (c *Client) Cut() { c.cut() }

// AfterClose runs f in its own goroutine once the connection is closed, unless stop is called
// before.
func (c *Client) AfterClose(f func()) (stop func() bool) { return context.AfterFunc(c.closed, f) }

// noteCall runs firstCall at the first call of a connection.
func (c *Client) noteCall() {
	if c.firstCall != nil && !c.called.Load() && c.called.CompareAndSwap(false, true) {
		c.firstCall()
	}
}

// clientAddr is the address of a client together with the client.
type clientAddr struct {
	net.Addr
	client *Client
	text   string // of the address; all streams of the client share it
}

func addrOf(addr net.Addr, c *Client) clientAddr { return clientAddr{addr, c, addr.String()} }

// String implements net.Addr.
func (a clientAddr) String() string { return a.text }

// ClientOf returns the client of a call, nil if it is unknown.
func ClientOf(ctx context.Context) *Client {
	if p, ok := peer.FromContext(ctx); ok {
		if a, ok := p.Addr.(clientAddr); ok {
			return a.client
		}
	}
	return nil
}

// WithClient returns the context of a call made in this process. c may be nil.
func WithClient(ctx context.Context, addr net.Addr, c *Client) context.Context {
	if c != nil {
		addr = addrOf(addr, c)
	}
	return peer.NewContext(ctx, &peer.Peer{Addr: addr})
}

// WithTLS returns the context of a call that is made in this process for a client whose connection
// has this TLS state. The context is one of WithClient.
func WithTLS(ctx context.Context, state *tls.ConnectionState) context.Context {
	p, ok := peer.FromContext(ctx)
	if !ok || state == nil {
		return ctx
	}
	return peer.NewContext(ctx,
		&peer.Peer{Addr: p.Addr, AuthInfo: credentials.TLSInfo{State: *state}})
}

// Remote returns the address of a call's client, empty if it is unknown.
func Remote(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return ""
}

// TLS returns the TLS state of the connection of a call, nil without TLS.
func TLS(ctx context.Context) *tls.ConnectionState {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			return &info.State
		}
	}
	return nil
}
