//go:build wasip1

package sys

import (
	"context"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"vigil/sim/world/abi"
)

//go:wasmimport vigil listen
func hostListen(p unsafe.Pointer, n uint32) int64

//go:wasmimport vigil dial
func hostDial(p unsafe.Pointer, n uint32) int64

//go:wasmimport vigil dialed
func hostDialed(fd int32) int64

//go:wasmimport vigil addrs
func hostAddrs(fd int32, p unsafe.Pointer, n uint32) int64

// Network is the simulated network of this machine. It implements server.Network.
type Network struct{}

// Listen opens a listener at an IP address and port.
func (Network) Listen(_ context.Context, network, address string) (net.Listener, error) {
	fd := hostListen(textOf(address))
	if fd < 0 {
		return nil, &net.OpError{Op: "listen", Net: network,
			Err: os.NewSyscallError("bind", abi.Error(fd))}
	}
	f := os.NewFile(uintptr(fd), address)
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	return &listener{l.(*net.TCPListener), addrOf(address)}, nil
}

// Dial opens a connection to an IP address and port.
func (Network) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: addrOf(address), Err: err}
	}
	fd := hostDial(textOf(address))
	if fd < 0 {
		return fail(os.NewSyscallError("connect", abi.Error(fd)))
	}
	f := os.NewFile(uintptr(fd), address)
	c, err := net.FileConn(f)
	f.Close()
	if err != nil {
		return fail(err)
	}
	tcp := c.(*net.TCPConn)
	if d, ok := ctx.Deadline(); ok {
		tcp.SetWriteDeadline(d)
	}
	stop := context.AfterFunc(ctx, func() { tcp.SetWriteDeadline(time.Unix(1, 0)) })
	raw, err := tcp.SyscallConn()
	var result int64
	if err == nil {
		err = raw.Write(func(fd uintptr) bool {
			result = hostDialed(int32(fd))
			return result != -8
		})
	}
	stop()
	if err == nil && result < 0 {
		err = os.NewSyscallError("connect", abi.Error(result))
	}
	if err == nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		tcp.Close()
		return fail(err)
	}
	tcp.SetWriteDeadline(time.Time{})
	return named(tcp, int32(fd)), nil
}

func addrOf(s string) *net.TCPAddr {
	a, err := netip.ParseAddrPort(s)
	if err != nil {
		return &net.TCPAddr{}
	}
	return net.TCPAddrFromAddrPort(a)
}

// conn is a connection that has addresses, which WASI does not know.
type conn struct {
	*net.TCPConn
	local, remote *net.TCPAddr
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func named(c *net.TCPConn, fd int32) net.Conn {
	b := make([]byte, 128)
	p, n := bytesOf(b)
	local, remote, _ := strings.Cut(string(b[:max(hostAddrs(fd, p, n), 0)]), " ")
	return &conn{c, addrOf(local), addrOf(remote)}
}

type listener struct {
	*net.TCPListener
	addr *net.TCPAddr
}

func (l *listener) Addr() net.Addr { return l.addr }

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.TCPListener.AcceptTCP()
	if err != nil {
		return nil, err
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var out net.Conn
	err = raw.Control(func(fd uintptr) { out = named(c, int32(fd)) })
	return out, err
}

var _ syscall.Conn = (*conn)(nil)
