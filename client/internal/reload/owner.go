package reload

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc/credentials"
)

// NameOwner returns credentials whose errors say whose certificate is not valid at present:
// crypto/tls does not.
func NameOwner(c credentials.TransportCredentials) credentials.TransportCredentials {
	return naming{c}
}

type naming struct {
	credentials.TransportCredentials
}

// ClientHandshake implements credentials.TransportCredentials.
func (n naming) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn,
	credentials.AuthInfo, error) {
	secure, info, err := n.TransportCredentials.ClientHandshake(ctx, authority, conn)
	if err != nil {
		err = nameOwner(err, time.Now())
	}
	return secure, info, err
}

// Clone implements credentials.TransportCredentials.
func (n naming) Clone() credentials.TransportCredentials {
	return naming{n.TransportCredentials.Clone()}
}

// nameOwner returns an error that names the certificate because of which a handshake has failed, if
// its time is the reason.
func nameOwner(err error, now time.Time) error {
	rejected, ok := errors.AsType[*tls.CertificateVerificationError](err)
	invalid, timed := errors.AsType[x509.CertificateInvalidError](err)
	if !ok || !timed || invalid.Reason != x509.Expired || invalid.Cert == nil {
		return err
	}
	owner := "the authority of the member's certificate, which this client trusts,"
	switch chain := rejected.UnverifiedCertificates; slices.IndexFunc(chain, invalid.Cert.Equal) {
	case -1:
	case 0:
		owner = "the member's certificate"
	default:
		owner = "an authority that the member sends with its certificate"
	}
	if now.Before(invalid.Cert.NotBefore) {
		return fmt.Errorf("%s (%s) is not valid before %s: check the clock of this machine", owner,
			invalid.Cert.Subject, invalid.Cert.NotBefore.UTC().Format(time.RFC3339))
	}
	return fmt.Errorf("%s (%s) expired on %s", owner, invalid.Cert.Subject,
		invalid.Cert.NotAfter.UTC().Format(time.RFC3339))
}
