//go:build !unix

package h2

import (
	"net"
	"syscall"
)

func rawOf(net.Conn) syscall.RawConn { return nil }

func (in *input) tryRead(uintptr) bool { panic("not called") }
