package peer

import (
	"time"

	"golang.org/x/sys/unix"
)

// unsent is how much the kernel takes of a stream beyond what it has sent. Its own default is
// several MiB, which on a slow path is seconds that a heartbeat would wait.
const unsent = 128 << 10

func setOptions(fd uintptr, dead time.Duration) {
	_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsent)
	_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT,
		int(dead.Milliseconds()))
}
