package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"
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
	// ServerName is what the certificate of a server that is dialed must be valid for, by default the
	// host of its URL.
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

// certificates makes configurations of TLS out of the files, again when these have changed. Its methods
// are safe for concurrent use.
type certificates struct {
	c    TLS
	base *tls.Config // what does not come from files
	auto *selfSigned // of TLS.Auto without a CertFile, or nil
	log  *slog.Logger

	mu struct {
		sync.Mutex
		sources        []*source
		have           loaded
		serverC, dialC *tls.Config
	}
}

// newCertificates reads the files once, so that what is wrong with them is found at the start.
func newCertificates(c TLS, base *tls.Config, auto *selfSigned, log *slog.Logger) (*certificates, error) {
	s := &certificates{c: c, base: base, auto: auto, log: log}
	s.mu.sources = s.mu.have.sources(&c, auto)
	if err := s.refresh(); err != nil {
		return nil, err
	}
	return s, nil
}

// refresh reads the files that have changed. What could not be read stays as it was, and is tried again
// when its files change again; the error is that of this time.
func (s *certificates) refresh() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	changed := s.mu.serverC == nil
	for _, f := range s.mu.sources {
		fresh, err := f.read()
		changed = changed || fresh
		errs = append(errs, err)
	}
	if changed {
		s.mu.serverC, s.mu.dialC = s.serverConfig(), s.dialConfig()
	}
	return errors.Join(errs...)
}

// server and client are what connections that are accepted, and dialed, use now.
func (s *certificates) server() *tls.Config { c, _ := s.get(); return c }
func (s *certificates) client() *tls.Config { _, c := s.get(); return c }

func (s *certificates) get() (server, client *tls.Config) {
	if err := s.refresh(); err != nil {
		s.log.Warn("files of certificates cannot be read again: what was read before stays in use", "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.serverC, s.mu.dialC
}

func (s *certificates) dialConfig() *tls.Config {
	t := s.base.Clone()
	t.NextProtos = nil
	t.ServerName = s.c.ServerName
	t.RootCAs = s.mu.have.pool
	// Nobody can check what others made for themselves.
	t.InsecureSkipVerify = s.auto != nil && s.c.TrustedCAFile == ""
	for _, pair := range []*tls.Certificate{s.mu.have.clientPair, s.mu.have.pair} {
		if pair != nil {
			t.Certificates = []tls.Certificate{*pair}
			break
		}
	}
	return t
}

func (s *certificates) serverConfig() *tls.Config {
	t := s.base.Clone()
	if s.mu.have.pair != nil {
		t.Certificates = []tls.Certificate{*s.mu.have.pair}
	}
	if s.c.ClientCertAuth || s.c.TrustedCAFile != "" {
		// As etcd has it: an authority that is named is asked.
		t.ClientAuth = tls.RequireAndVerifyClientCert
		t.ClientCAs = s.mu.have.pool
	}
	revoked := s.mu.have.revoked
	t.VerifyConnection = func(st tls.ConnectionState) error { return s.c.admit(st, revoked) }
	if s.c.SkipClientSAN {
		return t
	}
	t.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		one := t.Clone()
		one.VerifyConnection = func(st tls.ConnectionState) error {
			if err := s.c.admit(st, revoked); err != nil || len(st.PeerCertificates) == 0 {
				return err
			}
			return checkOrigin(hello.Context(), st.PeerCertificates[0], hello.Conn.RemoteAddr())
		}
		return one, nil
	}
	return t
}
