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

// New makes a connection of one that was accepted. Call Serve.
func New(nc net.Conn, o Options) *Conn {
	o = o.withDefaults()
	c := &Conn{}
	c.link.init(nc, &o)
	c.reader.init(&c.link)
	settings := []http2.Setting{{ID: http2.SettingMaxFrameSize, Val: maxFrame}}
	if o.MaxConcurrentStreams != 1<<32-1 {
		settings = append(settings, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: o.MaxConcurrentStreams})
	}
	settings = append(settings, http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: o.MaxHeaderBytes})
	c.link.mu.out.control = appendWindowUpdate(appendSettings(nil, settings...), 0, connWindow-initialWindow)
	return c
}

// Serve reads the connection until its end, and closes it. The error says why it has ended; it is nil if the client has closed it.
func (c *Conn) Serve(h Handler) error {
	c.reader.handler, c.link.values = h, h.Values()
	defer c.reader.in.releaseBuffer()
	c.link.closeConn(c.reader.readAll())
	return c.link.waitForEnd()
}

// Close closes the connection, and resets its streams.
func (c *Conn) Close() { c.link.closeConn(net.ErrClosed) }

// Drain notifies the client that there will be no further requests, and closes the connection when those under way are
// answered. Requests that the client has sent before it was notified are still served.
func (c *Conn) Drain() { c.link.startDraining() }

// Flush writes what is ready, without waiting for the client.
func (c *Conn) Flush() { c.link.flush() }

// NothingRead reports whether nothing was read from the connection that is not processed yet. Methods of Handler and Exchange may call
// it.
func (c *Conn) NothingRead() bool { return c.reader.in.r == c.reader.in.w }

// AllowPings lets the client ping as often as it likes, which is bounded like other frames without effect: the policy is one of gRPC,
// and browsers and proxies do not know it. Methods of Handler and Exchange may call it.
func (c *Conn) AllowPings() { c.reader.pings.any = true }
