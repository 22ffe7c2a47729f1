// Package listen opens listeners at URLs, checks the URLs, and divides file descriptors among connections.
package listen

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
)

// Options are options of TCP sockets.
type Options struct {
	ReuseAddress, ReusePort bool
	// Listen opens the socket, without the options above. Default the network of the machine.
	Listen func(ctx context.Context, network, address string) (net.Listener, error)
}

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
	open := o.Listen
	if open == nil {
		open = (&net.ListenConfig{Control: o.set}).Listen
	}
	l, err := open(context.Background(), network, addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("listen on %s: the address is in use by another program: %w", u, err)
	case err != nil:
		return nil, fmt.Errorf("listen on %s: %w", u, err)
	}
	return l, nil
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
