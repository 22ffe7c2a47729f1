package h2

import (
	"crypto/tls"
	"net"
)

// socket is the connection below HTTP/2. One goroutine at a time writes to it.
type socket struct {
	nc net.Conn
	// nc without its wrappers, if it can write several buffers at once; otherwise nil
	plain  net.Conn
	direct direct // writes to plain without waiting; owned by the writer
}

// connect takes over an accepted connection.
func (k *socket) connect(nc net.Conn) {
	k.nc, k.plain = nc, plainSocket(nc)
	k.direct.init(k.plain)
}

// plainSocket returns the socket of a connection if bytes reach it unchanged, otherwise nil.
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

// passesOn reports whether all wrappers of the connection now pass on the bytes of its socket
// unchanged. A wrapper says so by its method PassesOn.
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

// newBatch returns an empty batch. A plain socket writes large buffers from their place. With TLS
// they are copied, so that a batch is one record.
func (k *socket) newBatch() *batch {
	b := batches.Get().(*batch)
	b.inPlace = k.plain != nil
	return b
}

// write writes a batch from byte n on. It waits until the client takes the bytes.
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

// closeWrite shuts the output.
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

// close closes the connection. It closes the socket first, because TLS would wait for a client that
// does not read, to send it an alert.
func (k *socket) close() {
	inner := k.nc
	for c, ok := inner.(interface{ NetConn() net.Conn }); ok; c,
		ok = inner.(interface{ NetConn() net.Conn }) {
		inner = c.NetConn()
	}
	inner.Close()
	k.nc.Close()
}
