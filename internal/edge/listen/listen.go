// Package listen opens listeners at URLs, checks the URLs, and divides file descriptors among
// connections.
package listen

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"vigil/internal/holder"
)

// Options are options of TCP sockets.
type Options struct {
	// Flag is the flag that has the URL, for errors.
	Flag                    string
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
			return nil, fmt.Errorf("listen on %s: %w", u, o.explain(err, network, addr))
		}
	}
	open := o.Listen
	if open == nil {
		open = (&net.ListenConfig{Control: o.set}).Listen
	}
	l, err := open(context.Background(), network, addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", u, o.explain(err, network, addr))
	}
	return l, nil
}

// reason is an error with a text that explains it.
type reason struct {
	error
	text string
}

func (r *reason) Error() string { return r.text }
func (r *reason) Unwrap() error { return r.error }

// mostSocketPath is the maximum length of the path of a Unix socket in bytes.
const mostSocketPath = 107

// errNoSocket reports that the path of a socket names another kind of file.
var errNoSocket = errors.New("the file exists and is not a socket")

// errForeignSocket reports that the path names a socket to which this user may not connect.
var errForeignSocket = errors.New("permission denied: another user has made the socket")

// explain adds to an error of the system what it means and what to do.
func (o *Options) explain(err error, network, addr string) error {
	flag := o.Flag
	if flag == "" {
		flag = "the URL"
	}
	text := ""
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		by := holder.OfAddress(network, addr)
		if by != "" {
			by = " (" + by + ")"
		}
		text = fmt.Sprintf("the address is in use by another program%s: stop that, or choose "+
			"another address for %s", by, flag)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		text = fmt.Sprintf("no network interface of this machine has the address: choose one of "+
			"this machine for %s, or 0.0.0.0 for all; if the network was not up yet, start the "+
			"member after it", flag)
	case errors.Is(err, errForeignSocket):
		text = fmt.Sprintf("%v: choose another path for %s, or run vigil as the user that owns "+
			"the socket", err, flag)
	case errors.Is(err, syscall.EACCES):
		text = "permission denied: a port below 1024 needs the capability CAP_NET_BIND_SERVICE, " +
			"a socket the right to write its directory"
	case errors.Is(err, errNoSocket):
		text = fmt.Sprintf("%v: remove it, or choose another path for %s", err, flag)
	case network == "unix" && errors.Is(err, syscall.EINVAL) && len(addr) > mostSocketPath:
		text = fmt.Sprintf("the path of the socket has %d bytes and the most is %d: choose a "+
			"shorter one for %s", len(addr), mostSocketPath, flag)
	case network == "unix" && errors.Is(err, fs.ErrNotExist):
		text = fmt.Sprintf("there is no directory for the socket: create %s, or choose another "+
			"path for %s", filepath.Dir(addr), flag)
	default:
		return err
	}
	return &reason{err, text}
}

// removeStaleSocket removes a socket file without a listener, as a killed process leaves it.
func removeStaleSocket(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return errNoSocket
	}
	c, err := net.Dial("unix", path)
	switch {
	case err == nil:
		c.Close()
		return syscall.EADDRINUSE
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(path)
	case errors.Is(err, syscall.EACCES):
		return errForeignSocket
	case errors.Is(err, syscall.EAGAIN): // too many wait for its listener
		return syscall.EADDRINUSE
	}
	return fmt.Errorf("it is not known whether a program uses the socket: %w", err)
}
