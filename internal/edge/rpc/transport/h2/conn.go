package h2

import (
	"net"

	"golang.org/x/net/http2"
)

// Conn is a connection with a client.
type Conn struct {
	link   link
	reader reader
}

// New makes a Conn from an accepted connection. Call Serve.
func New(nc net.Conn, o Options) *Conn {
	o = o.withDefaults()
	c := &Conn{}
	c.link.init(nc, &o)
	c.reader.init(&c.link)
	settings := []http2.Setting{{ID: http2.SettingMaxFrameSize, Val: maxFrame}}
	if o.MaxConcurrentStreams != 1<<32-1 {
		settings = append(settings,
			http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: o.MaxConcurrentStreams})
	}
	settings = append(settings,
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: o.MaxHeaderBytes})
	c.link.mu.out.control = appendWindowUpdate(appendSettings(nil, settings...), 0,
		connWindow-initialWindow)
	return c
}

// Serve reads the connection until it ends, and closes it. The error says why it ended; nil means
// that the client closed it.
func (c *Conn) Serve(h Handler) error {
	c.reader.handler, c.link.values = h, h.Values()
	defer c.reader.in.releaseBuffer()
	c.link.closeConn(c.reader.readAll())
	return c.link.waitForEnd()
}

// Close closes the connection and ends all its streams.
func (c *Conn) Close() { c.link.closeConn(net.ErrClosed) }

// Drain tells the client to send no further requests, and closes the connection once all requests
// are answered. Requests that the client sent before it got the message are served too.
func (c *Conn) Drain() { c.link.startDraining() }

// Flush writes what is ready without waiting for the client.
func (c *Conn) Flush() { c.link.flush() }

// NothingRead reports whether everything that was read from the connection is processed. Only
// methods of Handler and Exchange may call it.
func (c *Conn) NothingRead() bool { return c.reader.in.r == c.reader.in.w }

// AllowPings exempts the client from gRPC's policy on pings, which browsers and proxies do not
// know. Pings still count as frames without effect. Only methods of Handler and Exchange may call
// it.
func (c *Conn) AllowPings() { c.reader.pings.any = true }
