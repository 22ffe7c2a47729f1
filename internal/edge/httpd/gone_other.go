//go:build !linux

package httpd

import "net"

// ended would report whether the client has closed its side of a connection.
func clientGone(net.Conn) bool { return false }
