package kubernetes

import (
	"crypto"
	"crypto/x509"
	"net"
	"path/filepath"
	"testing"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/pkiutil"
)

// authority issues certificates as kubeadm does for etcd.
type authority struct {
	dir, file string
	cert      *x509.Certificate
	key       crypto.Signer
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	cert, key, err := pkiutil.NewCertificateAuthority(&pkiutil.CertConfig{Config: certutil.Config{CommonName: "etcd-ca"}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := pkiutil.WriteCert(dir, "ca", cert); err != nil {
		t.Fatal(err)
	}
	return &authority{dir: dir, file: filepath.Join(dir, "ca.crt"), cert: cert, key: key}
}

// issue writes a certificate for a server and client at 127.0.0.1, and its key.
func (a *authority) issue(t *testing.T, name string) (certFile, keyFile string) {
	t.Helper()
	cert, key, err := pkiutil.NewCertAndKey(a.cert, a.key,
		&pkiutil.CertConfig{Config: certutil.Config{
			CommonName: name,
			AltNames:   certutil.AltNames{IPs: []net.IP{net.IPv4(127, 0, 0, 1)}},
			Usages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}})
	if err != nil {
		t.Fatal(err)
	}
	if err := pkiutil.WriteCertAndKey(a.dir, name, cert, key); err != nil {
		t.Fatal(err)
	}
	return pkiutil.PathsForCertAndKey(a.dir, name)
}
