package h2

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// direct writes to a socket without waiting for the client.
type direct struct {
	raw syscall.RawConn // nil without a socket
	try func(fd uintptr) bool

	// Set during a call of write.
	b   *batch
	n   int
	err error
}

func (d *direct) init(socket net.Conn) {
	if s, ok := socket.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			d.raw, d.try = raw, d.tryOnce
		}
	}
}

// canWrite reports whether write works for this connection.
func (d *direct) canWrite() bool { return d.raw != nil }

// write writes as much of a batch as the socket takes at once.
func (d *direct) write(b *batch) (n int, err error) {
	announceWrite()
	d.b, d.n, d.err = b, 0, nil
	err = d.raw.Write(d.try)
	if err == nil {
		err = d.err
	}
	d.b = nil
	return d.n, err
}

// tryOnce makes the system call. It returns true so that the runtime does not wait for the socket.
func (d *direct) tryOnce(fd uintptr) bool {
	b := d.b
	for {
		if len(b.parts) == 0 {
			d.n, d.err = unix.Write(int(fd), b.own)
		} else {
			d.n, d.err = unix.Writev(int(fd), b.vector())
		}
		switch d.err {
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			d.n, d.err = 0, nil
		}
		d.n = max(d.n, 0)
		return true
	}
}
