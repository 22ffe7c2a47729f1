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
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", u, explain(err))
	}
	return l, nil
}

// reasons are the errors of systems that a text for people replaces.
var reasons = map[error]string{
	syscall.EADDRINUSE:    "the address is in use by another program",
	syscall.EADDRNOTAVAIL: "no network interface of this machine has the address",
	syscall.EACCES:        "permission denied: a port below 1024 needs the capability CAP_NET_BIND_SERVICE, a socket the right to write its directory",
}

// reason is an error whose text says what it means.
type reason struct {
	error
	text string
}

func (r *reason) Error() string { return r.text }
func (r *reason) Unwrap() error { return r.error }

func explain(err error) error {
	for known, text := range reasons {
		if errors.Is(err, known) {
			return &reason{err, text}
		}
	}
	return err
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
	switch {
	case err == nil:
		c.Close()
		return syscall.EADDRINUSE
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(path)
	case errors.Is(err, syscall.EAGAIN): // too many wait for its listener
		return syscall.EADDRINUSE
	}
	return fmt.Errorf("it is not known whether a program uses the socket: %w", err)
}
