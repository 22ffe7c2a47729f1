// Package pki issues certificates for tests, into files that servers read while they are replaced.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// Authority issues certificates into a directory. Its own is in authority.pem. Its methods are for
// the goroutine of the test.
type Authority struct {
	Cert *x509.Certificate

	t   testing.TB
	dir string
	key *ecdsa.PrivateKey
}

// New makes an authority with a directory that goes with the test.
func New(t testing.TB) *Authority {
	t.Helper()
	return In(t, t.TempDir())
}

// In makes an authority that writes into a directory, where it may take another's place.
func In(t testing.TB, dir string) *Authority {
	t.Helper()
	a := &Authority{t: t, dir: dir}
	a.Cert, a.key = a.issue("authority",
		&x509.Certificate{IsCA: true, BasicConstraintsValid: true,
			KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign})
	return a
}

// File is the path of a file in the directory.
func (a *Authority) File(name string) string { return filepath.Join(a.dir, name) }

// Issue writes NAME.pem and NAME-key.pem: a certificate for servers and clients at 127.0.0.1 that
// is called NAME. change, which may be nil, makes it another.
func (a *Authority) Issue(name string, change func(*x509.Certificate)) *x509.Certificate {
	a.t.Helper()
	c := &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	if change != nil {
		change(c)
	}
	cert, _ := a.issue(name, c)
	return cert
}

// serials are different for all certificates of a process.
var serials atomic.Int64

func (a *Authority) issue(name string, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	if c.Subject.CommonName == "" && c.Subject.Organization == nil {
		c.Subject = pkix.Name{CommonName: name}
	}
	c.SerialNumber = big.NewInt(time.Now().UnixNano() + serials.Add(1))
	if c.NotAfter.IsZero() {
		c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	parent, by := a.Cert, a.key
	if parent == nil {
		parent, by = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, by)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.Write(name+"-key.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
	a.Write(name+".pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

// Write writes a file. A concurrent reader sees the old or the new content.
func (a *Authority) Write(name string, b []byte) {
	a.t.Helper()
	temp := a.File(name + ".tmp")
	if err := os.WriteFile(temp, b, 0o600); err != nil {
		a.t.Fatal(err)
	}
	if err := os.Rename(temp, a.File(name)); err != nil {
		a.t.Fatal(err)
	}
}

// Revoke writes a list of revoked certificates, in DER as etcd wants it.
func (a *Authority) Revoke(name string, revoked ...*x509.Certificate) {
	a.t.Helper()
	list := &x509.RevocationList{Number: big.NewInt(time.Now().UnixNano()), ThisUpdate: time.Now(),
		NextUpdate: time.Now().Add(time.Hour)}
	for _, c := range revoked {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries,
			x509.RevocationListEntry{SerialNumber: c.SerialNumber, RevocationTime: time.Now()})
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, a.Cert, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.Write(name, der)
}

// Client is the configuration of a client that believes this authority and shows the certificate
// NAME, or none.
func (a *Authority) Client(name string) *tls.Config {
	a.t.Helper()
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AddCert(a.Cert)
	if name != "" {
		pair, err := tls.LoadX509KeyPair(a.File(name+".pem"), a.File(name+"-key.pem"))
		if err != nil {
			a.t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}
