//go:build unix

package h2

import (
	"io"
	"net"
	"os"
	"syscall"
)

// rawOf returns a socket for tryRead, nil if there is none.
func rawOf(nc net.Conn) syscall.RawConn {
	if s, ok := nc.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			return raw
		}
	}
	return nil
}

// tryRead reads the bytes that the socket has. If there are none it returns false, and the runtime
// calls it again when there are.
func (in *input) tryRead(fd uintptr) bool {
	p := in.into
	if p == nil {
		p = in.takeBuffer()
	}
	for {
		n, err := syscall.Read(int(fd), p)
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			in.releaseBuffer()
			return false
		case err != nil:
			in.err = os.NewSyscallError("read", err)
		case n == 0:
			in.err = io.EOF
		default:
			in.n = n
		}
		return true
	}
}
