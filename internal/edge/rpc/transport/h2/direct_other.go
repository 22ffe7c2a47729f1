//go:build !linux

package h2

import "net"

// direct writes to a socket without waiting, where that is implemented.
type direct struct{}

func (d *direct) init(net.Conn) {}

func (d *direct) canWrite() bool { return false }

func (d *direct) write(*batch) (int, error) { panic("h2: direct writes are not implemented") }
