package peer

import (
	"bufio"
	"net"
)

// HTTP returns a listener of the HTTP/1.1 connections on the peer port, after their TLS handshake.
// It needs Options.HTTP. Its user closes the connections.
func (t *Transport) HTTP() net.Listener { return t.http }

// sniffed is a connection whose first bytes were already read.
type sniffed struct {
	net.Conn
	r *bufio.Reader // owned by the reader; nil when it is empty
}

// NetConn returns the connection below.
func (c *sniffed) NetConn() net.Conn { return c.Conn }

func (c *sniffed) Read(b []byte) (int, error) {
	if c.r == nil {
		return c.Conn.Read(b)
	}
	n, err := c.r.Read(b[:min(len(b), c.r.Buffered())])
	if c.r.Buffered() == 0 {
		c.r = nil
	}
	return n, err
}

// peerPort is the address of a listener that combines several.
type peerPort struct{}

func (peerPort) Network() string { return "tcp" }
func (peerPort) String() string  { return "peer port" }
