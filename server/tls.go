package server

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
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
	// ServerName is what the certificate of a server that is dialed must be valid for, by default the host of its
	// URL.
	ServerName string
	// CRLFile lists certificates that were revoked.
	CRLFile string
	// SkipClientSAN leaves out comparing the addresses in the certificate of those who connect, if it
	// has any, with where they connect from.
	SkipClientSAN bool
	// Auto makes a certificate that nobody can check, and believes every one: it hides the traffic and
	// keeps nobody out.
	Auto bool
}

// serves reports whether there is a certificate for listeners, or there will be.
func (c *TLS) serves() bool { return c.CertFile != "" || c.Auto }

// validate reports what cannot work, in the words of the flags. Those of files begin with files, those
// of checks with checks.
func (c *TLS) validate(files, checks string) error {
	var errs []error
	bad := func(cond bool, format string, prefix string) {
		if cond {
			errs = append(errs, fmt.Errorf(format, prefix))
		}
	}
	bad((c.CertFile == "") != (c.KeyFile == ""), "--%[1]scert-file and --%[1]skey-file go together", files)
	bad((c.ClientCertFile == "") != (c.ClientKeyFile == ""), "--%[1]sclient-cert-file and --%[1]sclient-key-file go together", files)
	names := len(c.AllowedCN) + len(c.AllowedHostname)
	bad(len(c.AllowedCN) > 0 && len(c.AllowedHostname) > 0, "--%[1]s-cert-allowed-cn and --%[1]s-cert-allowed-hostname exclude each other", checks)
	bad(names > 0 && !c.ClientCertAuth && c.TrustedCAFile == "", "--%[1]s-cert-allowed-cn and --%[1]s-cert-allowed-hostname need certificates to be asked for: "+
		"give the file of the trusted authorities", checks)
	return errors.Join(errs...)
}

// certificates makes configurations of TLS out of the files, again when these have changed.
type certificates struct {
	c    TLS
	base *tls.Config // what does not come from files
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
func newCertificates(c TLS, base *tls.Config, auto *selfSigned, log *slog.Logger) (*certificates, error) {
	s := &certificates{c: c, base: base, auto: auto, log: log}
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
	server, client = s.base.Clone(), s.base.Clone()
	client.ServerName = c.ServerName
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
		t := s.base.Clone()
		t.ServerName = s.c.ServerName
		return t
	}
	_, c := s.get()
	return c
}
