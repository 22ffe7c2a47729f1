package peer

import (
	"bufio"
	"net"
)

// HTTP returns the listener that gets the connections which speak HTTP/1.1 on the peer port, after
// their TLS handshake, if Options.HTTP is set. They are its user's to close.
func (t *Transport) HTTP() net.Listener { return t.http }

// sniffed is a connection of which the first bytes have been read already.
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
