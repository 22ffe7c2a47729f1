package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// selfSigned is the certificate of Options.Auto.
type selfSigned struct {
	certFile, keyFile string
	cert, key         []byte // PEM, if not saved yet
}

// openSelfSigned finds a valid certificate in a directory, or generates one without writing it.
// Files that a crash left empty, or of which only one was renewed, count as missing, because they
// were generated too. damage says what is wrong with them.
func openSelfSigned(dir string, hosts []string, validity time.Duration) (s *selfSigned,
	damage, err error) {
	s = &selfSigned{certFile: filepath.Join(dir, "cert.pem"),
		keyFile: filepath.Join(dir, "key.pem")}
	pair, err := tls.LoadX509KeyPair(s.certFile, s.keyFile)
	unread := &fs.PathError{}
	switch {
	case err == nil && time.Now().Before(pair.Leaf.NotAfter):
		return s, nil, nil
	case errors.As(err, &unread) && !errors.Is(err, fs.ErrNotExist):
		return nil, nil, fmt.Errorf("%s: %w", s.certFile, err)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		damage = fmt.Errorf("%s and %s: %w", s.certFile, s.keyFile, err)
	}
	s.cert, s.key, err = generate(hosts, validity)
	return s, damage, err
}

// generate makes a certificate and its key, in PEM.
func generate(hosts []string, validity time.Duration) (cert, secret []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, err
	}
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{Organization: []string{"vigil"}},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(validity),
		KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth,
			x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return nil, nil, err
	}
	secret, err = x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), nil
}

// load returns the certificate and its key.
func (s *selfSigned) load() (tls.Certificate, error) {
	if s.cert != nil {
		return tls.X509KeyPair(s.cert, s.key)
	}
	return tls.LoadX509KeyPair(s.certFile, s.keyFile)
}

// save writes a generated certificate to its files.
func (s *selfSigned) save() error {
	if s.cert == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(s.certFile), 0o700); err != nil {
		return err
	}
	// A crash in between leaves files that do not match: see openSelfSigned.
	return errors.Join(os.WriteFile(s.keyFile, s.key, 0o600),
		os.WriteFile(s.certFile, s.cert, 0o600))
}
