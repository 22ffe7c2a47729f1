package pool

import (
	"errors"
	"fmt"
	"net"
	"strings"
)

// Errors that this package returns.
var (
	ErrClosed  = errors.New("the client is closed")
	ErrInvalid = errors.New("invalid argument")
)

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// Scheme is what an endpoint says about TLS.
type Scheme uint8

// The schemes.
const (
	SchemeNone Scheme = iota
	SchemePlain
	SchemeSecure
)

// Endpoint is the address at which a member serves clients.
type Endpoint struct {
	Scheme Scheme
	// network and address are for net.Dial, host is the name in the certificate.
	network, address, host string
}

// Parse parses host:port, http://host:port, https://host:port, unix:///path or unixs:///path.
func Parse(s string) (Endpoint, error) {
	kind, rest, ok := strings.Cut(s, "://")
	if !ok {
		if path, isUnix := strings.CutPrefix(s, "unix:"); isUnix {
			kind, rest = "unix", path
		} else {
			kind, rest = "", s
		}
	}
	e := Endpoint{network: "tcp", address: strings.TrimSuffix(rest, "/")}
	switch strings.ToLower(kind) {
	case "":
	case "http":
		e.Scheme = SchemePlain
	case "https":
		e.Scheme = SchemeSecure
	case "unix":
		e.Scheme, e.network, e.address, e.host = SchemePlain, "unix", rest, "localhost"
	case "unixs":
		e.Scheme, e.network, e.address, e.host = SchemeSecure, "unix", rest, "localhost"
	default:
		return e, invalid("endpoint %q: scheme %q is not one of http, https, unix, unixs", s, kind)
	}
	if e.network == "unix" {
		if e.address == "" {
			return e, invalid("endpoint %q has no path", s)
		}
		return e, nil
	}
	if i := strings.LastIndexByte(e.address, '@'); i >= 0 {
		// It may be a password, and errors are logged.
		return e, invalid("endpoint %q contains a user or a password; set the user and the password of the client instead", "..."+e.address[i:])
	}
	if strings.ContainsAny(e.address, " ;") {
		return e, invalid("endpoint %q: several endpoints are separated by commas", s)
	}
	host, port, err := net.SplitHostPort(e.address)
	if err != nil {
		return e, invalid("endpoint %q: %v; want host:port%s", s, err, example(kind, e.address))
	}
	if port == "" {
		return e, invalid("endpoint %q has no port", s)
	}
	if strings.Contains(host, "/") {
		return e, invalid("endpoint %q: %q is not a host; want host:port, or a URL such as http://HOST:PORT", s, host)
	}
	if n, path, has := strings.Cut(port, "/"); has {
		return e, invalid("endpoint %q contains a path: leave /%s out, after the port %s", s, path,
			n)
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return e, invalid("endpoint %q: %q is not a port", s, port)
	}
	e.host = host
	return e, nil
}

// defaultPort is where members serve clients unless they are told otherwise.
const defaultPort = "2379"

// example returns how an endpoint without a port may be meant, "" for any other.
func example(kind, address string) string {
	if kind != "" {
		kind += "://"
	}
	bare := strings.Trim(address, "[]")
	switch {
	case strings.Contains(bare, "/"):
		return ", or a URL such as http://HOST:PORT"
	case bare == "":
		return ""
	case net.ParseIP(bare) != nil, !strings.Contains(bare, ":"):
		return ", such as " + kind + net.JoinHostPort(bare, defaultPort)
	}
	return ""
}

// ParseAll parses endpoints that are known to be valid.
func ParseAll(list []string) (out []Endpoint) {
	for _, s := range list {
		e, _ := Parse(s)
		out = append(out, e)
	}
	return out
}

// String returns the address without the scheme. It names the member.
func (e Endpoint) String() string {
	if e.network == "unix" {
		return "unix:" + e.address
	}
	return e.address
}

// authority is the name that the member's certificate must have, and the host in requests.
func (e Endpoint) authority(serverName string) string {
	switch {
	case serverName != "":
		return serverName
	case e.network == "unix":
		return e.host
	}
	return e.address
}

// Check returns an endpoint without TLS and an endpoint with TLS, if there are any, and the errors
// of invalid ones.
func Check(endpoints []string) (plain, secure string, wrong []error) {
	for _, s := range endpoints {
		e, err := Parse(s)
		switch {
		case err != nil:
			wrong = append(wrong, err)
		case e.Scheme == SchemeSecure:
			secure = s
		case e.Scheme == SchemePlain:
			plain = s
		}
	}
	return plain, secure, wrong
}
