package pool

import (
	"errors"
	"testing"
)

func TestReason(t *testing.T) {
	const dial = `connection error: desc = "transport: Error while dialing: `
	const preface = `connection error: desc = "error reading server preface: `
	const handshake = `connection error: desc = "transport: authentication handshake failed: `
	const demands = "the member demands a certificate of its clients, of an authority that it trusts"
	for _, c := range []struct {
		text             string
		secure, demanded bool
		want             string
		lasting, unclear bool
	}{
		{dial + `dial tcp 127.0.0.1:1: connect: connection refused"`, false, false,
			"connection refused", false, false},
		{dial + `dial tcp 127.0.0.1:1: connect: connection refused"`, true, true,
			"connection refused", false, false},
		{dial + `dial tcp: lookup no.invalid: no such host"`, false, false,
			"dial tcp: lookup no.invalid: no such host", false, false},
		{dial + `dial tcp 192.0.2.1:2379: i/o timeout"`, false, false, noReply, false, false},
		{dial + `dial tcp 127.0.0.1:1: connect: connection reset by peer"`, false, false,
			closes, false, true},
		{dial + `dial tcp 127.0.0.1:1: connect: connection reset by peer"`, true, false,
			closes, false, true},
		{preface + `EOF"`, false, false, closes, false, true},
		{preface + `read tcp 1.1.1.1:1->1.1.1.1:2: read: connection reset by peer"`, false, false,
			closes, false, true},
		{preface + `raw-read tcp 1.1.1.1:1->1.1.1.1:2: use of closed network connection"`, false,
			false, silent, false, false},
		{preface + `raw-read tcp 1.1.1.1:1->1.1.1.1:2: use of closed network connection"`, true,
			true, silent, false, false},
		{handshake + `context deadline exceeded"`, true, false, silent, false, false},
		{preface + `http2: failed reading the frame payload: http2: frame too large, note that the frame header looked like an HTTP/1.1 header"`, false, false, onlyHTTP1, false, true},
		{preface + `http2: frame too large"`, false, false, notHTTP2, false, true},
		{preface + `EOF"`, true, false, closesLate, false, true},
		{preface + `EOF"`, true, true, closesBare, false, true},
		{`connection error: desc = "write tcp 1.1.1.1:1->1.1.1.1:2: write: broken pipe"`, true,
			true, closesBare, false, true},
		{preface + `remote error: tls: certificate required"`, true, false, demands, true, false},
		{handshake + `EOF"`, true, true, closesTLS, false, true},
		{handshake + `tls: first record does not look like a TLS handshake"`, true, false,
			notTLS, false, true},
		{handshake + `tls: failed to verify certificate: x509: certificate signed by unknown authority"`, true, false, "the authority of the member's certificate is not known", true, false},
		{handshake + `tls: failed to verify certificate: x509: certificate is valid for 127.0.0.1, not 127.0.0.2"`, true, false,
			"the member's certificate is valid for 127.0.0.1, not 127.0.0.2", true, false},
	} {
		err, unclear := reasonOf(c.text, c.secure, c.demanded)
		_, lasting := errors.AsType[*refused](err)
		if err.Error() != c.want || lasting != c.lasting || unclear != c.unclear {
			t.Errorf("%s, %v, %v: %q, lasting %v, unclear %v", c.text, c.secure, c.demanded, err,
				lasting, unclear)
		}
	}
}
