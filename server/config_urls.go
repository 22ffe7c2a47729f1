package server

import (
	"errors"
	"fmt"
	"net"
	"net/url"
)

// listenAddr turns a listen URL into what net.Listen takes.
func listenAddr(s string) (network, addr string, secure bool, err error) {
	u, err := url.Parse(s)
	if err != nil {
		return "", "", false, fmt.Errorf("%q is not a URL: %w", s, errors.Unwrap(err))
	}
	switch u.Scheme {
	case "unix", "unixs":
		path := u.Host + u.Path
		if path == "" {
			return "", "", false, fmt.Errorf("%q names no socket file", s)
		}
		return "unix", path, u.Scheme == "unixs", nil
	case "http":
	case "https":
		secure = true
	default:
		return "", "", false, fmt.Errorf("%q must start with http://, https:// or unix://", s)
	}
	if u.Path != "" && u.Path != "/" {
		return "", "", false, fmt.Errorf("%q must not have a path", s)
	}
	host, port, err := net.SplitHostPort(u.Host)
	if err != nil || port == "" {
		return "", "", false, fmt.Errorf("%q must have the form %s://HOST:PORT", s, u.Scheme)
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if net.ParseIP(host) == nil {
		return "", "", false, fmt.Errorf("%q must name an IP address or localhost to listen on, not %q", s, host)
	}
	return "tcp", net.JoinHostPort(host, port), secure, nil
}

// checkAdvertised accepts what another program can dial.
func checkAdvertised(s string) error {
	u, err := url.Parse(s)
	if err != nil {
		return fmt.Errorf("%q is not a URL: %w", s, errors.Unwrap(err))
	}
	switch u.Scheme {
	case "unix", "unixs":
		return nil
	case "http", "https":
	default:
		return fmt.Errorf("%q must start with http://, https:// or unix://", s)
	}
	if u.Path != "" && u.Path != "/" {
		return fmt.Errorf("%q must not have a path", s)
	}
	if _, port, err := net.SplitHostPort(u.Host); err != nil || port == "" {
		return fmt.Errorf("%q must have the form %s://HOST:PORT", s, u.Scheme)
	}
	return nil
}
