package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority issues certificates into a directory.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	a.issue("authority",
		&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// issue writes NAME and NAME.key: a certificate with this common name, or that of the authority.
func (a *authority) issue(name string, c *x509.Certificate) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c.Subject, c.SerialNumber = pkix.Name{CommonName: name}, big.NewInt(time.Now().UnixNano())
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if a.cert == nil {
		a.cert, a.key = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for file, b := range map[string]*pem.Block{name: {Type: "CERTIFICATE", Bytes: der},
		name + ".key": {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(a.file(file), pem.EncodeToMemory(b), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
}

func (a *authority) open(kind Kind, o Options, name string) *Store {
	a.t.Helper()
	o.CertFile, o.KeyFile, o.TrustedCAFile, o.ClientCertAuth = a.file(name), a.file(name+".key"),
		a.file("authority"), true
	s, err := Open(Config{Kind: kind, Options: o, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		a.t.Fatal(err)
	}
	return s
}

// handshake returns the errors of both sides of a connection to a port of this machine.
func handshake(t *testing.T, dialing, accepting *Store) (dial, accept error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			s := tls.Server(c, accepting.Server())
			if err = s.Handshake(); err == nil {
				_, err = s.Read(make([]byte, 1)) // an alert of the other side, or its byte
			}
			c.Close()
		}
		accepted <- err
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	conf := dialing.Client().Clone()
	conf.ServerName = "127.0.0.1"
	s := tls.Client(c, conf)
	if dial = s.Handshake(); dial == nil {
		_, _ = s.Write([]byte{1})
	}
	return dial, <-accepted
}

// TestAllowedNames: a member accepts connections from and makes connections to those members only
// whose certificates have an allowed name, like etcd.
func TestAllowedNames(t *testing.T) {
	a := newAuthority(t)
	for name, host := range map[string]string{"member": "member.example",
		"stranger": "stranger.example"} {
		a.issue(name, &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
			DNSNames: []string{host}, KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth,
				x509.ExtKeyUsageClientAuth}})
	}
	for flag, o := range map[string]Options{"common names": {AllowedCN: []string{"other",
		"member"}}, "host names": {AllowedHostname: []string{"other.example", "member.example"}}} {
		o.SkipClientSAN = true
		strict, member, stranger := a.open(Peers, o, "member"),
			a.open(Peers, Options{SkipClientSAN: true}, "member"),
			a.open(Peers, Options{SkipClientSAN: true}, "stranger")
		for name, c := range map[string]struct {
			dialing, accepting *Store
			allowed            bool
		}{
			"to a member":     {strict, member, true},
			"from a member":   {member, strict, true},
			"to a stranger":   {strict, stranger, false},
			"from a stranger": {stranger, strict, false},
		} {
			dial, accept := handshake(t, c.dialing, c.accepting)
			if c.allowed != (dial == nil && accept == nil) {
				t.Errorf("%s: a connection %s: %v, and on the other side %v", flag,
					name, dial, accept)
			}
			if err := dial; name == "to a stranger" && err != nil &&
				!strings.Contains(err.Error(), "stranger") {
				t.Errorf("%s: the error does not name the certificate: %v", flag, err)
			}
		}
	}
}
