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

// listen opens one listener for each URL, or none: what was opened is closed if one fails.
func (c *Config) listen(urls []string) (ls []net.Listener, err error) {
	lc := net.ListenConfig{Control: c.controlSocket}
	defer func() {
		if err != nil {
			closeAll(ls)
			ls = nil
		}
	}()
	seen := map[string]bool{}
	for _, u := range urls {
		network, addr, _, err := listenAddr(u)
		if err != nil {
			return ls, err
		}
		if seen[network+addr] {
			continue
		}
		seen[network+addr] = true
		if network == "unix" {
			if err := removeStaleSocket(addr); err != nil {
				return ls, fmt.Errorf("listen on %s: %w", u, err)
			}
		}
		l, err := lc.Listen(context.Background(), network, addr)
		if errors.Is(err, syscall.EADDRINUSE) {
			return ls, fmt.Errorf("listen on %s: the address is in use by another program: %w", u, err)
		}
		if err != nil {
			return ls, fmt.Errorf("listen on %s: %w", u, err)
		}
		ls = append(ls, l)
	}
	return ls, nil
}

// warnAdvertised tells of advertised URLs that lead nowhere: an address to listen on is not one to dial.
func (m *Member) warnAdvertised() {
	for _, s := range slices.Concat(m.cfg.AdvertiseClientURLs, m.cfg.InitialAdvertisePeerURLs) {
		if u, err := url.Parse(s); err == nil && net.ParseIP(u.Hostname()).IsUnspecified() {
			m.log.Warn("this URL is advertised and names no address that others could dial: give --advertise-client-urls or --initial-advertise-peer-urls", "url", s)
		}
	}
}

// controlSocket sets what was asked for on a socket before it is bound.
func (c *Config) controlSocket(network, _ string, conn syscall.RawConn) error {
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

// removeStaleSocket removes a socket file that nobody listens on any more, which is what a killed
// process leaves behind.
func removeStaleSocket(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return errors.New("the file exists and is no socket")
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
