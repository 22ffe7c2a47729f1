package listen

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// parseURL parses the URL of a listener or a member. A TCP URL has exactly the form
// SCHEME://HOST:PORT: a path, a query or a user would have no effect and is a mistake.
func parseURL(s string) (u *url.URL, host, port string, err error) {
	u, err = url.Parse(s)
	if err != nil && !strings.Contains(s, "://") {
		return nil, "", "", fmt.Errorf("%q must start with http://, https:// or unix://", s)
	}
	if err != nil {
		return nil, "", "", fmt.Errorf("%q is not a URL: %w", s, errors.Unwrap(err))
	}
	switch {
	case u.RawQuery != "" || u.ForceQuery:
		return nil, "", "", fmt.Errorf("%q must not have a query (?)", s)
	case u.Fragment != "":
		return nil, "", "", fmt.Errorf("%q must not have a fragment (#)", s)
	}
	switch u.Scheme {
	case "unix", "unixs":
		if u.Host+u.Path == "" {
			return nil, "", "", fmt.Errorf("%q names no socket file", s)
		}
		return u, "", "", nil
	case "http", "https":
	default:
		return nil, "", "", fmt.Errorf("%q must start with http://, https:// or unix://", s)
	}
	if u.User != nil {
		return nil, "", "", fmt.Errorf("%q must not have a user (@)", u.Redacted())
	}
	if u.Path != "" {
		return nil, "", "", fmt.Errorf("%q must not have a path: end it after the port", s)
	}
	host, port, err = net.SplitHostPort(u.Host)
	if err != nil || port == "" {
		return nil, "", "", fmt.Errorf("%q must have the form %s://HOST:PORT", s, u.Scheme)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return nil, "", "", fmt.Errorf("%q: the port must be a number from 0 to 65535, not %s", s,
			port)
	}
	return u, host, port, nil
}

// Address converts a listen URL to the arguments of net.Listen.
func Address(s string) (network, addr string, secure bool, err error) {
	u, host, port, err := parseURL(s)
	if err != nil {
		return "", "", false, err
	}
	switch u.Scheme {
	case "unix", "unixs":
		return "unix", u.Host + u.Path, u.Scheme == "unixs", nil
	case "https":
		secure = true
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if net.ParseIP(host) == nil {
		return "", "", false,
			fmt.Errorf("%q must name an IP address or localhost to listen on, not %q", s, host)
	}
	return "tcp", net.JoinHostPort(host, port), secure, nil
}

// CheckURL reports an error if other programs cannot dial a URL.
func CheckURL(s string) error {
	_, _, _, err := parseURL(s)
	return err
}

// LocalAddr returns the first IP address in URLs that other programs can dial, empty if there is
// none.
func LocalAddr(urls []string) string {
	for _, s := range urls {
		_, host, _, err := parseURL(s)
		if err != nil {
			continue
		}
		if ip, err := netip.ParseAddr(host); err == nil && !ip.IsLoopback() && !ip.IsUnspecified() {
			return ip.String()
		}
	}
	return ""
}
