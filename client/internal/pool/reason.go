package pool

import (
	"errors"
	"strings"
)

// refused is why a member cannot be reached that no later attempt will reach with the same settings.
type refused struct{ text string }

func (r *refused) Error() string { return r.text }

// noise are the parts of a text of gRPC that say nothing about the reason.
var noise = []string{"connection error: desc = ", "last connection error: ", "transport: Error while dialing: ", "transport: authentication handshake failed: ",
	"error reading server preface: "}

// lasting are the reasons that stay: a text of package crypto/tls or net, and what it means.
var lasting = []struct{ text, means string }{
	{"remote error: tls: certificate required", "the member demands a certificate of its clients, of an authority that it trusts"},
	{"remote error: tls: unknown certificate authority", "the member does not know the authority of the client's certificate"},
	{"remote error: tls: bad certificate", "the member rejects the client's certificate"},
	{"remote error: tls: expired certificate", "the client's certificate has expired"},
	{"remote error: tls: revoked certificate", "the client's certificate is revoked"},
	{"remote error: tls: unsupported certificate", "the member does not support the client's certificate"},
	{"remote error: tls: access denied", "the member rejects the client's certificate"},
	{"remote error: tls: handshake failure", "the member accepts none of the client's cipher suites and certificates"},
	{"remote error: tls: protocol version not supported", "the member accepts none of the client's versions of TLS"},
	{"certificate signed by unknown authority", "the authority of the member's certificate is not known"},
	{"certificate has expired or is not yet valid", ""},
	{"certificate is valid for ", ""},
	{"certificate is not valid for ", ""},
	{"x509: cannot validate certificate for ", ""},
}

// reason returns why a connection could not be made, of gRPC's text.
func reason(text string, secure, demanded bool) error {
	dialing, handshake, preface := strings.Contains(text, "while dialing"), strings.Contains(text, "handshake failed"), strings.Contains(text, "reading server preface")
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
			return &refused{text}
		}
	}
	if demanded && !dialing && !handshake {
		// The end of the connection has overtaken the member's alert.
		return &refused{lasting[0].means}
	}
	closed := strings.HasSuffix(text, "EOF") || strings.Contains(text, "connection reset") || strings.Contains(text, "broken pipe")
	switch {
	case !secure && preface:
		text += " (does the member want TLS? then write https://)"
	case secure && handshake && (closed || strings.Contains(text, "first record does not look like a TLS")):
		text += " (does the member speak TLS? if not, write http:// and leave TLS out)"
	}
	return errors.New(text)
}
