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
		lasting          bool
	}{
		{dial + `dial tcp 127.0.0.1:1: connect: connection refused"`, false, false, "connection refused", false},
		{dial + `dial tcp 127.0.0.1:1: connect: connection refused"`, true, true, "connection refused", false},
		{preface + `EOF"`, false, false, "EOF (does the member want TLS? then write https://)", false},
		{preface + `EOF"`, true, false, "EOF", false},
		{preface + `EOF"`, true, true, demands, true},
		{`connection error: desc = "write tcp 1.1.1.1:1->1.1.1.1:2: write: broken pipe"`, true, true, demands, true},
		{preface + `remote error: tls: certificate required"`, true, false, demands, true},
		{handshake + `EOF"`, true, true, "EOF (does the member speak TLS? if not, write http:// and leave TLS out)", false},
		{handshake + `tls: failed to verify certificate: x509: certificate signed by unknown authority"`, true, false, "the authority of the member's certificate is not known", true},
		{handshake + `tls: failed to verify certificate: x509: certificate is valid for 127.0.0.1, not 127.0.0.2"`, true, false,
			"the member's certificate is valid for 127.0.0.1, not 127.0.0.2", true},
	} {
		err := reason(c.text, c.secure, c.demanded)
		_, lasting := errors.AsType[*refused](err)
		if err.Error() != c.want || lasting != c.lasting {
			t.Errorf("%s, %v, %v: %q, lasting %v", c.text, c.secure, c.demanded, err, lasting)
		}
	}
}
