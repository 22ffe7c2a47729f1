package h2

import (
	"crypto/tls"
	"net"
)

// socket is the connection below HTTP/2. One goroutine at a time writes to it.
type socket struct {
	nc     net.Conn
	plain  net.Conn // nc without its wrappers, if several buffers can be written at once; otherwise nil
	direct direct   // writes to plain without waiting; owned by the writer
}

// connect takes over a connection.
func (k *socket) connect(nc net.Conn) {
	k.nc, k.plain = nc, plainSocket(nc)
	k.direct.init(k.plain)
}

// plainSocket returns the socket of a connection, if what is written reaches it unchanged.
func plainSocket(nc net.Conn) net.Conn {
	for {
		switch c := nc.(type) {
		case *net.TCPConn, *net.UnixConn:
			return c
		case interface{ ConnectionState() tls.ConnectionState }: // *tls.Conn, or what embeds it
			return nil
		case interface{ NetConn() net.Conn }:
			nc = c.NetConn()
		default:
			return nil
		}
	}
}

// passesOn reports whether the wrappers of the connection pass on what is read from its socket, from now on. Those that may
// not have a method that says so.
func (k *socket) passesOn() bool {
	for nc := k.nc; ; {
		switch c := nc.(type) {
		case *net.TCPConn, *net.UnixConn:
			return true
		case interface {
			NetConn() net.Conn
			PassesOn() bool
		}:
			if !c.PassesOn() {
				return false
			}
			nc = c.NetConn()
		default:
			return false
		}
	}
}

// newBatch returns an empty batch. Large buffers are written from their place if the socket takes several at once; with TLS they
// are copied, so that there is one record a batch.
func (k *socket) newBatch() *batch {
	b := batches.Get().(*batch)
	b.inPlace = k.plain != nil
	return b
}

// write writes a batch without its first n bytes, which are written. It waits until the client takes them.
func (k *socket) write(b *batch, n int) error {
	if len(b.parts) == 0 {
		_, err := k.nc.Write(b.own[n:])
		return err
	}
	vec := b.vector()
	for n > 0 {
		skip := min(n, len(vec[0]))
		if n -= skip; skip == len(vec[0]) {
			vec = vec[1:]
		} else {
			vec[0] = vec[0][skip:]
		}
	}
	announceWrite()
	_, err := vec.WriteTo(k.plain)
	clear(b.vec)
	return err
}

// closeWrite ends the output.
func (k *socket) closeWrite() {
	for nc := k.nc; ; {
		if w, ok := nc.(interface{ CloseWrite() error }); ok {
			_ = w.CloseWrite() // the client may have closed it
			return
		}
		inner, ok := nc.(interface{ NetConn() net.Conn })
		if !ok {
			return
		}
		nc = inner.NetConn()
	}
}

// close closes the socket first: TLS would wait for a client that does not read, to send it an alert.
func (k *socket) close() {
	inner := k.nc
	for c, ok := inner.(interface{ NetConn() net.Conn }); ok; c, ok = inner.(interface{ NetConn() net.Conn }) {
		inner = c.NetConn()
	}
	inner.Close()
	k.nc.Close()
}
