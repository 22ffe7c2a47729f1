package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// tlsVersions are those that may be asked for, by etcd's names; none is the transport's choice.
var tlsVersions = map[string]uint16{"": 0, "TLS1.2": tls.VersionTLS12, "TLS1.3": tls.VersionTLS13}

// oldCiphers are names that etcd takes too.
var oldCiphers = map[string]uint16{
	"TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305":   tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
	"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
}

// cipherSuite finds a cipher suite by its name. Those that Go calls insecure are found too: who names
// one means it.
func cipherSuite(name string) (uint16, bool) {
	for _, list := range [][]*tls.CipherSuite{tls.CipherSuites(), tls.InsecureCipherSuites()} {
		for _, s := range list {
			if s.Name == name {
				return s.ID, true
			}
		}
	}
	id, ok := oldCiphers[name]
	return id, ok
}

// tlsSettings is what all connections with TLS have in common. It expects a valid configuration.
func (c *Config) tlsSettings() *tls.Config {
	t := &tls.Config{MinVersion: tlsVersions[c.TLSMinVersion], MaxVersion: tlsVersions[c.TLSMaxVersion]}
	for _, name := range c.CipherSuites {
		id, _ := cipherSuite(name)
		t.CipherSuites = append(t.CipherSuites, id)
	}
	return t
}

// validateTLS reports what is wrong with certificates and versions.
func (c *Config) validateTLS() error {
	errs := []error{c.ClientTLS.validate("", "client"), c.PeerTLS.validate("peer-", "peer")}
	for _, v := range []struct{ flag, version string }{{"tls-min-version", c.TLSMinVersion}, {"tls-max-version", c.TLSMaxVersion}} {
		if _, ok := tlsVersions[v.version]; !ok {
			errs = append(errs, fmt.Errorf("--%s: %q is neither TLS1.2 nor TLS1.3", v.flag, v.version))
		}
	}
	if least, most := tlsVersions[c.TLSMinVersion], tlsVersions[c.TLSMaxVersion]; most != 0 && least > most {
		errs = append(errs, fmt.Errorf("--tls-min-version: %s is above --tls-max-version (%s)", c.TLSMinVersion, c.TLSMaxVersion))
	}
	for _, name := range c.CipherSuites {
		if _, ok := cipherSuite(name); !ok {
			errs = append(errs, fmt.Errorf("--cipher-suites: no cipher suite is called %q", name))
		}
	}
	if c.TLSMinVersion == "TLS1.3" && len(c.CipherSuites) > 0 {
		errs = append(errs, errors.New("--cipher-suites: those of TLS 1.3 cannot be chosen, and --tls-min-version leaves no other"))
	}
	return errors.Join(errs...)
}

// openTLS reads the certificates, and makes those that are to be made.
func (m *Member) openTLS() (err error) {
	c := &m.cfg
	clients := slices.Concat(c.ListenClientURLs, c.ListenClientHTTPURLs, c.ListenMetricsURLs, c.AdvertiseClientURLs)
	if m.clientTLS, err = m.certificates("", "client", c.ClientTLS, clients); err != nil {
		return err
	}
	m.peerTLS, err = m.certificates("peer-", "peer", c.PeerTLS, slices.Concat(c.ListenPeerURLs, c.InitialAdvertisePeerURLs))
	return err
}

// certificates opens those of one kind of connections, whose flags begin with prefix.
func (m *Member) certificates(prefix, kind string, c TLS, urls []string) (*certificates, error) {
	var auto *selfSigned
	var err error
	switch {
	case c.Auto && c.CertFile != "":
		m.log.Warn("a certificate is given: none is made", "flag", prefix+"auto-tls")
	case c.Auto:
		dir := filepath.Join(m.cfg.DataDir, "fixtures", kind)
		if auto, err = newSelfSigned(dir, hosts(urls), m.cfg.SelfSignedValidity); err != nil {
			return nil, fmt.Errorf("--%sauto-tls: %w", prefix, err)
		}
	}
	if c.ClientCertAuth && c.TrustedCAFile == "" && (c.CertFile != "" || c.Auto) {
		m.log.Warn("certificates of every authority that the system trusts are accepted, public ones included: give a file of the authorities to accept only theirs",
			"flag", prefix+"client-cert-auth", "missing", prefix+"trusted-ca-file",
			"effect", map[string]string{"client": "with authentication enabled, the common name of such a certificate names the user", "peer": "whoever has such a certificate may act as a member"}[kind])
	}
	settings := m.cfg.tlsSettings()
	if kind == "client" {
		settings.NextProtos = []string{"h2", "http/1.1"}
		c.SkipClientSAN = true // as etcd has it: clients come from anywhere
	}
	s, err := newCertificates(c, settings, auto, m.log)
	if err != nil {
		return nil, fmt.Errorf("certificates of %ss: %w", kind, err)
	}
	for _, u := range urls {
		if c.CertFile != "" && (strings.HasPrefix(u, "http://") || strings.HasPrefix(u, "unix://")) {
			m.log.Warn("there are certificates, and this URL does not use them", "kind", kind, "url", u)
		}
	}
	return s, nil
}

// keepCertificates writes those that were made.
func (m *Member) keepCertificates() error {
	for prefix, s := range map[string]*certificates{"": m.clientTLS, "peer-": m.peerTLS} {
		if s.auto != nil {
			if err := s.auto.keep(); err != nil {
				return fmt.Errorf("--%sauto-tls: %w", prefix, err)
			}
		}
	}
	return nil
}

// hosts are the host names in URLs, each once.
func hosts(urls []string) (names []string) {
	for _, s := range urls {
		if u, err := url.Parse(s); err == nil && u.Hostname() != "" && !slices.Contains(names, u.Hostname()) {
			names = append(names, u.Hostname())
		}
	}
	return names
}
