package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vigil/test/proc"
)

// authority issues certificates in files.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

func (a *authority) write(name, kind string, der []byte) {
	a.t.Helper()
	// Whoever reads a file while it is replaced sees one or the other.
	temp := a.file(name + ".tmp")
	if err := os.WriteFile(temp, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	if err := os.Rename(temp, a.file(name)); err != nil {
		a.t.Fatal(err)
	}
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.issue("authority", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign})
	return a
}

// issue writes NAME.pem and NAME-key.pem.
func (a *authority) issue(name string, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c.Subject = pkix.Name{CommonName: name}
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, by := a.cert, a.key
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
	a.write(name+".pem", "CERTIFICATE", der)
	a.write(name+"-key.pem", "PRIVATE KEY", secret)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

func (a *authority) member(name string) *x509.Certificate {
	c, _ := a.issue(name, &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}})
	return c
}

func (a *authority) flags(name string) []string {
	return []string{"--peer-cert-file=" + a.file(name+".pem"), "--peer-key-file=" + a.file(name+"-key.pem"),
		"--peer-trusted-ca-file=" + a.file("authority.pem"), "--peer-client-cert-auth"}
}

// Members speak mutual TLS. One with a certificate that is not believed, is not the name that is allowed,
// or was revoked, is left outside, with a line on both sides; new files are used without a restart.
func TestPeerTLS(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	ca.member("member")
	other.member("member")
	somebody := ca.member("somebody")
	empty, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{Number: big.NewInt(1), NextUpdate: time.Now().Add(time.Hour)}, ca.cert, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	ca.write("crl.pem", "X509 CRL", empty)
	// A list in DER, as etcd wants it.
	if err := os.WriteFile(ca.file("crl.der"), empty, 0o600); err != nil {
		t.Fatal(err)
	}
	g := run(&group{t: t, secure: true, args: append(ca.flags("member"), "--peer-cert-allowed-cn=member,somebody", "--peer-crl-file="+ca.file("crl.der"))}, 3)
	for _, m := range g.list {
		g.put(m, m.name, "x")
	}
	g.agree()
	lead := g.leader()
	m := g.others(lead)[0]
	good := slices.Clone(m.cfg.Args)
	refused := func(args []string, here, there string) {
		t.Helper()
		m.Kill()
		m.SetArgs(append(slices.Clone(good), args...)...)
		m.Launch()
		g.until("a line on both sides", func() bool {
			return strings.Contains(lead.Log().String(), here) && strings.Contains(m.Log().String(), there)
		})
	}
	strange := other.flags("member")
	strange[2] = "--peer-trusted-ca-file=" + ca.file("authority.pem")
	refused(strange, "unknown authority", "unknown certificate authority")
	if proc.Subject() == proc.Vigil {
		revoked, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{Number: big.NewInt(2), NextUpdate: time.Now().Add(time.Hour),
			RevokedCertificateEntries: []x509.RevocationListEntry{{SerialNumber: somebody.SerialNumber, RevocationTime: time.Now()}}}, ca.cert, ca.key)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(ca.file("crl.der"), revoked, 0o600); err != nil {
			t.Fatal(err)
		}
		// The others have shown a line like it within the minute.
		refused(ca.flags("somebody"), "", "bad certificate")
	}
	m.Kill()
	// The files of all are replaced while they run.
	ca.member("member")
	m.SetArgs(good...)
	m.Restart()
	for _, m := range g.list {
		g.put(m, m.name, "y")
	}
	g.agree()
}

func TestPeerAutoTLS(t *testing.T) {
	g := run(&group{t: t, secure: true, args: []string{"--peer-auto-tls"}}, 3)
	for _, m := range g.list {
		g.put(m, m.name, "x")
	}
	g.agree()
}
