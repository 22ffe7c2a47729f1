package h2

import (
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/sys/unix"
)

// TestStalledClient: a client that does not read, such as one that is stopped by a signal, keeps
// its connection, and gets its answer when it goes on.
func TestStalledClient(t *testing.T) {
	c := connect(t, Options{PingTimeout: time.Millisecond},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	c.must(c.WriteWindowUpdate(0, 1<<30))
	raw, err := c.conn.link.socket.nc.(*net.TCPConn).SyscallConn()
	c.must(err)
	var limit int
	c.must(raw.Control(func(fd uintptr) {
		limit,
			err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
	}))
	c.must(err)
	if limit != 0 {
		t.Errorf("the kernel closes the connection after %d ms", limit)
	}
	const size = 20_000_000 // more than sockets buffer
	c.must(c.open(1, "20000000", true))
	time.Sleep(50 * time.Millisecond) // the longer, the stricter
	if n := c.awaitEnd(1); n < size {
		t.Errorf("%d bytes", n)
	}
}
