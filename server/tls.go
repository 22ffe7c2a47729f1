package server

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
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// TLS names the certificates of one kind of connection. Files are read again when they have changed:
// connections that are made from then on use what they hold.
type TLS struct {
	// CertFile and KeyFile are what a server shows, and what it shows to other members if
	// ClientCertFile and ClientKeyFile are not set.
	CertFile, KeyFile             string
	ClientCertFile, ClientKeyFile string
	// TrustedCAFile holds the authorities whose certificates are believed.
	TrustedCAFile string
	// ClientCertAuth requires a certificate of those who connect.
	ClientCertAuth bool
	// AllowedCN and AllowedHostname, if set, are what the certificate of those who connect must have
	// one of.
	AllowedCN, AllowedHostname []string
	// CRLFile lists certificates that were revoked.
	CRLFile string
	// Auto makes a certificate that nobody can check, for Validity, and believes every one: it hides
	// the traffic and keeps nobody out.
	Auto     bool
	Validity time.Duration
}

// serves reports whether there is a certificate for listeners, or there will be.
func (c *TLS) serves() bool { return c.CertFile != "" || c.Auto }

// validate reports what cannot work, in the words of the flags of peers.
func (c *TLS) validate() error {
	var errs []error
	bad := func(cond bool, text string) {
		if cond {
			errs = append(errs, errors.New(text))
		}
	}
	bad((c.CertFile == "") != (c.KeyFile == ""), "--peer-cert-file and --peer-key-file go together")
	bad((c.ClientCertFile == "") != (c.ClientKeyFile == ""), "--peer-client-cert-file and --peer-client-key-file go together")
	bad(len(c.AllowedCN) > 0 && len(c.AllowedHostname) > 0, "--peer-cert-allowed-cn and --peer-cert-allowed-hostname exclude each other")
	bad(c.ClientCertAuth && c.TrustedCAFile == "" && !c.Auto, "--peer-client-cert-auth needs --peer-trusted-ca-file")
	bad((len(c.AllowedCN) > 0 || len(c.AllowedHostname) > 0 || c.CRLFile != "") && !c.ClientCertAuth && c.TrustedCAFile == "",
		"--peer-cert-allowed-cn, --peer-cert-allowed-hostname and --peer-crl-file need --peer-trusted-ca-file")
	return errors.Join(errs...)
}

// certificates makes configurations of TLS out of the files, again when these have changed.
type certificates struct {
	c    TLS
	auto *selfSigned // of TLS.Auto without a CertFile, or nil
	log  *slog.Logger

	mu struct {
		sync.Mutex
		stamp          []stamp
		serverC, dialC *tls.Config
	}
}

// stamp tells whether a file has changed.
type stamp struct {
	size int64
	mod  time.Time
}

// newCertificates reads the files once, so that what is wrong with them is found at the start.
func newCertificates(c TLS, auto *selfSigned, log *slog.Logger) (*certificates, error) {
	s := &certificates{c: c, auto: auto, log: log}
	if !c.serves() && c.TrustedCAFile == "" && c.ClientCertFile == "" {
		return s, nil
	}
	return s, s.refresh()
}

func (s *certificates) files() []string {
	var out []string
	for _, f := range []string{s.c.CertFile, s.c.KeyFile, s.c.ClientCertFile, s.c.ClientKeyFile, s.c.TrustedCAFile, s.c.CRLFile} {
		if f != "" {
			out = append(out, f)
		}
	}
	return out
}

// refresh reads the files if they have changed, which it looks at for each connection. After an error what was read before stays in use.
func (s *certificates) refresh() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var now []stamp
	for _, f := range s.files() {
		i, err := os.Stat(f)
		if err != nil {
			return err
		}
		now = append(now, stamp{i.Size(), i.ModTime()})
	}
	if s.mu.serverC != nil && slices.Equal(now, s.mu.stamp) {
		return nil
	}
	server, client, err := s.load()
	if err != nil {
		return err
	}
	s.mu.serverC, s.mu.dialC, s.mu.stamp = server, client, now
	return nil
}

func (s *certificates) load() (server, client *tls.Config, err error) {
	c := &s.c
	server, client = &tls.Config{MinVersion: tls.VersionTLS12}, &tls.Config{MinVersion: tls.VersionTLS12}
	if s.auto != nil {
		pair, err := s.auto.load()
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", s.auto.certFile, err)
		}
		server.Certificates = []tls.Certificate{pair}
		client.Certificates = server.Certificates
	}
	if c.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, nil, fmt.Errorf("%s and %s: %w", c.CertFile, c.KeyFile, err)
		}
		server.Certificates = []tls.Certificate{pair}
		client.Certificates = server.Certificates
	}
	if c.ClientCertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.ClientCertFile, c.ClientKeyFile)
		if err != nil {
			return nil, nil, fmt.Errorf("%s and %s: %w", c.ClientCertFile, c.ClientKeyFile, err)
		}
		client.Certificates = []tls.Certificate{pair}
	}
	if c.TrustedCAFile != "" {
		b, err := os.ReadFile(c.TrustedCAFile)
		if err != nil {
			return nil, nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(b) {
			return nil, nil, fmt.Errorf("%s holds no certificate", c.TrustedCAFile)
		}
		server.ClientCAs, client.RootCAs = pool, pool
	}
	if c.ClientCertAuth || c.TrustedCAFile != "" {
		// As etcd has it: an authority that is named is asked.
		server.ClientAuth = tls.RequireAndVerifyClientCert
	}
	if c.Auto && c.TrustedCAFile == "" {
		client.InsecureSkipVerify = true
		server.ClientAuth = tls.NoClientCert
	}
	revoked, err := c.revoked()
	if err != nil {
		return nil, nil, err
	}
	server.VerifyConnection = func(st tls.ConnectionState) error { return c.admit(st, revoked) }
	return server, client, nil
}

// revoked returns the serial numbers that the list has.
func (c *TLS) revoked() (map[string]bool, error) {
	if c.CRLFile == "" {
		return nil, nil
	}
	b, err := os.ReadFile(c.CRLFile)
	if err != nil {
		return nil, err
	}
	if block, _ := pem.Decode(b); block != nil {
		b = block.Bytes
	}
	list, err := x509.ParseRevocationList(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.CRLFile, err)
	}
	out := map[string]bool{}
	for _, e := range list.RevokedCertificateEntries {
		out[e.SerialNumber.String()] = true
	}
	return out, nil
}

// admit decides about a certificate that is valid.
func (c *TLS) admit(st tls.ConnectionState, revoked map[string]bool) error {
	if len(st.PeerCertificates) == 0 {
		return nil // required or not: crypto/tls has seen to that
	}
	cert := st.PeerCertificates[0]
	switch {
	case revoked[cert.SerialNumber.String()]:
		return fmt.Errorf("certificate %s of %q was revoked", cert.SerialNumber, cert.Subject.CommonName)
	case len(c.AllowedCN) > 0 && !slices.Contains(c.AllowedCN, cert.Subject.CommonName):
		return fmt.Errorf("common name %q is not allowed", cert.Subject.CommonName)
	case len(c.AllowedHostname) > 0 && !slices.ContainsFunc(c.AllowedHostname, func(h string) bool { return cert.VerifyHostname(h) == nil }):
		return fmt.Errorf("certificate of %q has none of the names that are allowed", cert.Subject.CommonName)
	}
	return nil
}

func (s *certificates) get() (server, client *tls.Config) {
	if err := s.refresh(); err != nil {
		s.log.Warn("the certificates cannot be read again, those read before stay in use", "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.serverC, s.mu.dialC
}

// server and client are what connections that are accepted, and dialed, use now.
func (s *certificates) server() *tls.Config { c, _ := s.get(); return c }

func (s *certificates) client() *tls.Config {
	if !s.c.serves() && s.c.TrustedCAFile == "" && s.c.ClientCertFile == "" {
		// The authorities of the system.
		return &tls.Config{MinVersion: tls.VersionTLS12}
	}
	_, c := s.get()
	return c
}

// selfSigned is the certificate of Auto.
type selfSigned struct {
	certFile, keyFile string
	cert, key         []byte // PEM, if they are not in the files yet
}

// newSelfSigned finds the certificate in a directory, or makes one without writing it.
func newSelfSigned(dir string, hosts []string, validity time.Duration) (*selfSigned, error) {
	s := &selfSigned{certFile: filepath.Join(dir, "cert.pem"), keyFile: filepath.Join(dir, "key.pem")}
	pair, err := tls.LoadX509KeyPair(s.certFile, s.keyFile)
	switch {
	case err == nil && time.Now().Before(pair.Leaf.NotAfter):
		return s, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: %w", s.certFile, err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{Organization: []string{"vigil"}},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(validity),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
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
		return nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	s.cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	s.key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	return s, nil
}

// load returns the certificate and its key.
func (s *selfSigned) load() (tls.Certificate, error) {
	if s.cert != nil {
		return tls.X509KeyPair(s.cert, s.key)
	}
	return tls.LoadX509KeyPair(s.certFile, s.keyFile)
}

// keep writes what is not in the files.
func (s *selfSigned) keep() error {
	if s.cert == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(s.certFile), 0o700); err != nil {
		return err
	}
	// The key first: the certificate makes them a pair.
	return errors.Join(os.WriteFile(s.keyFile, s.key, 0o600), os.WriteFile(s.certFile, s.cert, 0o600))
}
