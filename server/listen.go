package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// listen opens a listener for a URL.
func (c *Config) listen(u string) (net.Listener, error) {
	network, addr, _, err := listenAddr(u)
	if err != nil {
		return nil, err
	}
	if network == "unix" {
		if err := removeStaleSocket(addr); err != nil {
			return nil, fmt.Errorf("listen on %s: %w", u, err)
		}
	}
	config := net.ListenConfig{Control: c.setSocketOptions}
	l, err := config.Listen(context.Background(), network, addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("listen on %s: the address is in use by another program: %w", u, err)
	case err != nil:
		return nil, fmt.Errorf("listen on %s: %w", u, err)
	}
	return l, nil
}

// warnAdvertised warns about advertised URLs with an unspecified address, which other programs cannot dial.
func (m *Member) warnAdvertised() {
	for _, s := range slices.Concat(m.cfg.AdvertiseClientURLs, m.cfg.InitialAdvertisePeerURLs) {
		if u, err := url.Parse(s); err == nil && net.ParseIP(u.Hostname()).IsUnspecified() {
			m.log.Warn("the advertised URL has an address that others cannot dial: set --advertise-client-urls or --initial-advertise-peer-urls", "url", s)
		}
	}
}

// setSocketOptions sets the configured options of a socket before it is bound.
func (c *Config) setSocketOptions(network, _ string, conn syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	var errs []error
	if err := conn.Control(func(fd uintptr) {
		if c.SocketReuseAddress {
			errs = append(errs, unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
		}
		if c.SocketReusePort {
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

func closeAll(ls []net.Listener) {
	for _, l := range ls {
		l.Close()
	}
}
