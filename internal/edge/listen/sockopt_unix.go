//go:build unix

package listen

import (
	"errors"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// set sets the options of a socket before it is bound.
func (o Options) set(network, _ string, conn syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	var errs []error
	if err := conn.Control(func(fd uintptr) {
		if o.ReuseAddress {
			errs = append(errs, unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
		}
		if o.ReusePort {
			errs = append(errs, unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
		}
	}); err != nil {
		return err
	}
	return errors.Join(errs...)
}
