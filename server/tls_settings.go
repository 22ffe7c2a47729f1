package server

import (
	"crypto/tls"
	"errors"
	"fmt"
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
