// Package listen opens listeners at URLs, checks the URLs, and divides file descriptors among connections.
package listen

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Options are options of TCP sockets.
type Options struct{ ReuseAddress, ReusePort bool }

// Open opens a listener for a URL.
func Open(u string, o Options) (net.Listener, error) {
	network, addr, _, err := Address(u)
	if err != nil {
		return nil, err
	}
	if network == "unix" {
		if err := removeStaleSocket(addr); err != nil {
			return nil, fmt.Errorf("listen on %s: %w", u, err)
		}
	}
	config := net.ListenConfig{Control: o.set}
	l, err := config.Listen(context.Background(), network, addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("listen on %s: the address is in use by another program: %w", u, err)
	case err != nil:
		return nil, fmt.Errorf("listen on %s: %w", u, err)
	}
	return l, nil
}

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

// removeStaleSocket removes a socket file without a listener, which remains after a process was killed.
func removeStaleSocket(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return errors.New("the file exists and is not a socket")
	}
	c, err := net.Dial("unix", path)
	if err == nil {
		c.Close()
		return syscall.EADDRINUSE
	}
	return os.Remove(path)
}
