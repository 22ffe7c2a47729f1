package reload

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
)

// pair is a certificate with its key.
type pair struct {
	*x509.Certificate
	key *ecdsa.PrivateKey
}

// issue makes a certificate for a time, signed by another one, or by itself without one.
func issue(t *testing.T, name string, from, to time.Time, by *pair) *pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &pair{&x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: from, NotAfter: to, IsCA: name != "m1", BasicConstraintsValid: true,
		DNSNames: []string{"m1"}, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature},
		key}
	parent, signer := p.Certificate, key
	if by != nil {
		parent, signer = by.Certificate, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, p.Certificate, parent, &key.PublicKey, signer)
	if err == nil {
		p.Certificate, err = x509.ParseCertificate(der)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestNameOwner: the error of a handshake names the certificate that is not valid at present.
func TestNameOwner(t *testing.T) {
	now := time.Now()
	before, after := now.Add(-48*time.Hour), now.Add(48*time.Hour)
	expired, future := now.Add(-24*time.Hour), now.Add(24*time.Hour)
	for _, c := range []struct {
		name, want                         string
		rootTo, middleTo, leafFrom, leafTo time.Time
	}{
		{"the member's", "the member's certificate (CN=m1) expired on ", after, after,
			before, expired},
		{"not yet", "the member's certificate (CN=m1) is not valid before ", after, after,
			future, after},
		{"the authority between",
			"an authority that the member sends with its certificate (CN=middle) expired on ",
			after, expired, before, after},
		{"the authority", "the authority of the member's certificate, which this client trusts, (CN=root) expired on ", expired, after, before, after},
	} {
		root := issue(t, "root", before, c.rootTo, nil)
		middle := issue(t, "middle", before, c.middleTo, root)
		leaf := issue(t, "m1", c.leafFrom, c.leafTo, middle)
		pool := x509.NewCertPool()
		pool.AddCert(root.Certificate)
		client, server := net.Pipe()
		go func() {
			_ = tls.Server(server,
				&tls.Config{NextProtos: []string{"h2"},
					Certificates: []tls.Certificate{{Certificate: [][]byte{leaf.Raw, middle.Raw},
						PrivateKey: leaf.key}}}).HandshakeContext(t.Context())
			server.Close()
		}()
		_, _, err := NameOwner(credentials.NewTLS(&tls.Config{RootCAs: pool})).Clone().ClientHandshake(t.Context(), "m1", client)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		client.Close()
	}
}
