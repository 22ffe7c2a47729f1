package peer

import (
	"time"

	"golang.org/x/sys/unix"
)

// unsent limits the bytes of a stream that the kernel accepts but has not yet sent. Its default is
// several MiB: on a slow path a heartbeat would wait seconds behind them.
const unsent = 128 << 10

func setOptions(fd uintptr, dead time.Duration) {
	_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsent)
	_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT,
		int(dead.Milliseconds()))
}
