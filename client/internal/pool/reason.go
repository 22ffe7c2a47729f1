package pool

import (
	"errors"
	"slices"
	"strings"
)

// refused is why a member cannot be reached that no later attempt will reach with the same
// settings.
type refused struct{ text string }

func (r *refused) Error() string { return r.text }

// noise are the parts of a text of gRPC that say nothing about the reason.
var noise = []string{"connection error: desc = ", "last connection error: ",
	"transport: Error while dialing: ", "transport: authentication handshake failed: ",
	"error reading server preface: "}

// lasting are the reasons that stay: a text of package crypto/tls or net, and what it means.
var lasting = []struct{ text, means string }{
	{"remote error: tls: certificate required",
		"the member demands a certificate of its clients, of an authority that it trusts"},
	{"remote error: tls: unknown certificate authority",
		"the member does not know the authority of the client's certificate"},
	{"remote error: tls: bad certificate", "the member rejects the client's certificate"},
	{"remote error: tls: expired certificate",
		"the client's certificate has expired, or the authority that signed it"},
	{"remote error: tls: revoked certificate", "the client's certificate is revoked"},
	{"remote error: tls: unsupported certificate",
		"the member does not support the client's certificate"},
	{"remote error: tls: access denied", "the member rejects the client's certificate"},
	{"remote error: tls: handshake failure",
		"the member accepts none of the client's cipher suites and certificates"},
	{"remote error: tls: protocol version not supported",
		"the member accepts none of the client's versions of TLS"},
	{"certificate signed by unknown authority",
		"the authority of the member's certificate is not known"},
	{"certificate has expired or is not yet valid", ""},
	{") expired on ", ""}, // of package reload, as the next one
	{") is not valid before ", ""},
	{"certificate is valid for ", ""},
	{"certificate is not valid for ", ""},
	{"x509: cannot validate certificate for ", ""},
}

// Reasons that may pass: what was seen, and where to look. inspect may find more.
const (
	noReply    = "no reply to the attempt to connect: check the address, that its machine runs, and firewalls on the way"
	silent     = "accepts the connection and does not answer: check whether its process hangs or is stopped, its log, and proxies on the way"
	notHTTP2   = "answers, but not in HTTP/2: check that the address is the client port of a member"
	onlyHTTP1  = "answers in HTTP/1 only, as members do not: check the address, and that a proxy on the way passes HTTP/2"
	notTLS     = "answers, but not in TLS: check the address; a member without TLS wants http://"
	closes     = "closes the connection without an answer: check its log, and that the address is the client port of a member"
	closesTLS  = "closes the connection during the TLS handshake: check its log, and that the address is the client port of a member"
	closesLate = "closes the connection after the TLS handshake: check its log, and that the address is the client port of a member"
	closesBare = "asks for a client certificate, gets none, and closes the connection: check its log, and whether it demands one"
)

// reasonOf returns why a connection could not be made, of gRPC's text. unclear reports that the
// member may have a reason that gRPC did not see.
func reasonOf(text string, secure, demanded bool) (why error, unclear bool) {
	dialing, handshake := strings.Contains(text, "while dialing"),
		strings.Contains(text, "handshake failed")
	for _, n := range noise {
		text = strings.ReplaceAll(text, n, "")
	}
	text = strings.ReplaceAll(strings.Trim(text, `"`), `\"`, `"`)
	text = strings.ReplaceAll(text, "tls: failed to verify certificate: x509: ", "the member's ")
	if _, rest, ok := strings.Cut(text, ": connect: "); ok && strings.HasPrefix(text, "dial ") {
		text = rest // the address is known
	}
	for _, l := range lasting {
		if strings.Contains(text, l.text) {
			if l.means != "" {
				text = l.means
			}
			return &refused{text}, false
		}
	}
	timeout := containsAny(text, "i/o timeout", "deadline exceeded",
		"use of closed network connection")
	switch {
	case dialing && timeout:
		return errors.New(noReply), false
	case dialing && !strings.Contains(text, "connection reset"): // which a connection may be before connect returns
		return errors.New(text), false
	case timeout: // gRPC closes the connection when the time of the attempt is over
		return errors.New(silent), false
	case strings.Contains(text, "first record does not look like a TLS"):
		return errors.New(notTLS), true
	case strings.Contains(text, "looked like an HTTP/1.1 header"):
		return errors.New(onlyHTTP1), true
	case strings.Contains(text, "frame too large"):
		return errors.New(notHTTP2), true
	case !containsAny(text, "EOF", "connection reset", "broken pipe", "connection was aborted"):
		return errors.New(text), false
	case !secure, dialing:
		return errors.New(closes), true
	case handshake:
		return errors.New(closesTLS), true
	case demanded:
		return errors.New(closesBare), true
	}
	return errors.New(closesLate), true
}

func containsAny(text string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(text, p) })
}
