//go:build !linux

package h2

import (
	"net"
	"time"
)

// setUserTimeout has no effect here: pings end the connection of a client that has vanished.
func setUserTimeout(net.Conn, time.Duration) {}
