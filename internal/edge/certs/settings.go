package certs

import (
	"crypto/tls"
	"errors"
	"fmt"
)

// Settings are the TLS versions and cipher suites of all connections.
type Settings struct {
	// MinVersion and MaxVersion are "TLS1.2" or "TLS1.3"; "" leaves the choice to crypto/tls.
	MinVersion, MaxVersion string
	// CipherSuites are IANA names of cipher suites of TLS 1.2. The default is the choice of
	// crypto/tls.
	CipherSuites []string
}

// DefaultMinVersion is the least version that a server accepts by default.
const DefaultMinVersion = "TLS1.2"

// versions are the TLS versions by etcd's names.
var versions = map[string]uint16{"": 0, "TLS1.2": tls.VersionTLS12, "TLS1.3": tls.VersionTLS13}

// oldCiphers are older names that etcd accepts too.
var oldCiphers = map[string]uint16{
	"TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305":   tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
	"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
}

// cipherSuite returns the id of a cipher suite. Suites that Go calls insecure are found too: the
// operator decides.
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

// Validate reports unknown versions and cipher suites, and combinations that exclude each other.
func (s Settings) Validate() error {
	var errs []error
	for _, v := range []struct{ flag, version string }{{"tls-min-version", s.MinVersion},
		{"tls-max-version", s.MaxVersion}} {
		if _, ok := versions[v.version]; !ok {
			errs = append(errs, fmt.Errorf("--%s: %q is neither TLS1.2 nor TLS1.3",
				v.flag, v.version))
		}
	}
	if least, most := versions[s.MinVersion], versions[s.MaxVersion]; most != 0 && least > most {
		errs = append(errs, fmt.Errorf("--tls-min-version: %s is above --tls-max-version (%s)",
			s.MinVersion, s.MaxVersion))
	}
	for _, name := range s.CipherSuites {
		if _, ok := cipherSuite(name); !ok {
			errs = append(errs, fmt.Errorf("--cipher-suites: no cipher suite is called %q", name))
		}
	}
	if s.MinVersion == "TLS1.3" && len(s.CipherSuites) > 0 {
		errs = append(errs, errors.New("--cipher-suites: the suites of TLS 1.3 cannot be "+
			"chosen, and --tls-min-version allows no lower version"))
	}
	return errors.Join(errs...)
}

// config returns the part of a TLS configuration that does not depend on files. The settings must
// be valid.
func (s Settings) config(k Kind) *tls.Config {
	t := &tls.Config{MinVersion: versions[s.MinVersion], MaxVersion: versions[s.MaxVersion]}
	for _, name := range s.CipherSuites {
		id, _ := cipherSuite(name)
		t.CipherSuites = append(t.CipherSuites, id)
	}
	if k == Clients {
		t.NextProtos = []string{"h2", "http/1.1"}
	}
	return t
}
