package certs

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// DefaultSelfSignedValidity is how long a generated certificate is valid by default.
const DefaultSelfSignedValidity = 365 * 24 * time.Hour

// Config is what Open needs.
type Config struct {
	Kind
	Options
	Settings
	// DataDir is the data directory of the member. A self-signed certificate is stored below it.
	DataDir string
	// SelfSignedValidity is how long a generated certificate is valid.
	SelfSignedValidity time.Duration
	// URLs are the URLs that are listened on and advertised. A generated certificate names their
	// hosts.
	URLs   []string
	Logger *slog.Logger
}

// Store builds TLS configurations from certificate files, and builds them again when the files
// change. Its methods are safe for concurrent use.
type Store struct {
	c    Config
	base *tls.Config // the part that does not come from files
	auto *selfSigned // of Options.Auto without a CertFile, or nil

	mu struct {
		sync.Mutex
		sources        []*source
		loaded         loaded
		serverC, dialC *tls.Config
		reported       string // the error that was logged last, empty after a success
	}
}

// Open reads all files once, so that a mistake is found at the start.
func Open(c Config) (*Store, error) {
	s := &Store{c: c, base: c.Settings.config(c.Kind)}
	prefix := c.flagPrefix()
	switch {
	case c.Auto && c.CertFile != "":
		c.Logger.Warn("a certificate is configured: no self-signed one is generated", "flag",
			prefix+"auto-tls")
	case c.Auto:
		auto, damage, err := openSelfSigned(filepath.Join(c.DataDir, "fixtures", c.Kind.String()),
			hostNames(c.URLs), c.SelfSignedValidity)
		if err != nil {
			return nil, fmt.Errorf("--%sauto-tls: %w", prefix, err)
		}
		if s.auto = auto; damage != nil {
			c.Logger.Warn("the self-signed certificate cannot be used: another one is generated",
				"flag", prefix+"auto-tls", "error", damage)
		}
	}
	if c.ClientCertAuth && c.TrustedCAFile == "" && c.Serves() {
		effect := "with authentication enabled, the common name of such a certificate names the " +
			"user"
		if c.Kind == Peers {
			effect = "the owner of any such certificate can act as a member"
		}
		c.Logger.Warn("certificates of every authority that the system trusts are accepted, "+
			"including public ones: set a file of authorities to accept only theirs",
			"flag", prefix+"client-cert-auth", "missing", prefix+"trusted-ca-file",
			"effect", effect)
	}
	if c.Kind == Clients {
		s.c.SkipClientSAN = true // like etcd: clients may connect from any address
	}
	s.mu.sources = s.mu.loaded.sources(&s.c.Options, s.auto)
	if err := s.refresh(); err != nil {
		return nil, fmt.Errorf("certificates of %ss: %w", c.Kind, err)
	}
	for _, e := range s.Expiries() {
		if e.End.Before(time.Now()) {
			c.Logger.Warn("a certificate has expired, so that the other side refuses the "+
				"connection: replace its file, which is read again",
				"kind", c.Kind.String(), "use", e.Use, "file", s.c.fileOf(e.Use), "expired", e.End)
		}
	}
	for _, u := range c.URLs {
		if c.CertFile != "" &&
			(strings.HasPrefix(u, "http://") || strings.HasPrefix(u, "unix://")) {
			c.Logger.Warn("certificates are configured, but this URL does not use them", "kind",
				c.Kind.String(), "url", u)
		}
	}
	return s, nil
}

// SaveSelfSigned writes the generated certificate, if there is one, to the data directory.
func (s *Store) SaveSelfSigned() error {
	if s.auto == nil {
		return nil
	}
	if err := s.auto.save(); err != nil {
		return fmt.Errorf("--%sauto-tls: %w", s.c.flagPrefix(), err)
	}
	return nil
}

// refresh reads changed files. If a file cannot be read, its previous content stays in use, and the
// next connection tries again.
func (s *Store) refresh() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	changed := s.mu.serverC == nil
	for _, f := range s.mu.sources {
		fresh, err := f.refresh()
		changed = changed || fresh
		errs = append(errs, err)
	}
	if changed {
		s.mu.serverC, s.mu.dialC = s.serverConfig(), s.dialConfig()
	}
	return errors.Join(errs...)
}

// Server returns the present configuration of accepted connections.
func (s *Store) Server() *tls.Config { c, _ := s.currentConfigs(); return c }

// Client returns the present configuration of dialed connections.
func (s *Store) Client() *tls.Config { _, c := s.currentConfigs(); return c }

func (s *Store) currentConfigs() (server, client *tls.Config) {
	err := s.refresh()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.mu.reported = ""
	case s.mu.reported != err.Error(): // each connection tries again
		s.mu.reported = err.Error()
		s.c.Logger.Warn("files of certificates cannot be read again: their previous content "+
			"stays in use", "error", err)
	}
	return s.mu.serverC, s.mu.dialC
}

func (s *Store) dialConfig() *tls.Config {
	t := s.base.Clone()
	t.NextProtos = nil
	t.ServerName = s.c.ServerName
	t.RootCAs = s.mu.loaded.pool
	// A self-signed certificate cannot be verified.
	t.InsecureSkipVerify = s.auto != nil && s.c.TrustedCAFile == ""
	if s.c.Kind == Peers {
		t.VerifyConnection = s.c.checkServerCert
	}
	for _, pair := range []*tls.Certificate{s.mu.loaded.clientPair, s.mu.loaded.pair} {
		if pair != nil {
			t.Certificates = []tls.Certificate{*pair}
			break
		}
	}
	return t
}

func (s *Store) serverConfig() *tls.Config {
	t := s.base.Clone()
	if s.mu.loaded.pair != nil {
		t.Certificates = []tls.Certificate{*s.mu.loaded.pair}
	}
	if s.c.ClientCertAuth || s.c.TrustedCAFile != "" {
		// Like etcd: a configured authority makes client certificates mandatory.
		t.ClientAuth = tls.RequireAndVerifyClientCert
		t.ClientCAs = s.mu.loaded.pool
	}
	revoked := s.mu.loaded.revoked
	t.VerifyConnection = func(st tls.ConnectionState) error {
		return s.c.checkClientCert(st,
			revoked)
	}
	if s.c.SkipClientSAN {
		return t
	}
	t.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		conf := t.Clone()
		conf.VerifyConnection = func(st tls.ConnectionState) error {
			if err := s.c.checkClientCert(st, revoked); err != nil ||
				len(st.PeerCertificates) == 0 {
				return err
			}
			return checkAddress(hello.Context(), st.PeerCertificates[0], hello.Conn.RemoteAddr())
		}
		return conf, nil
	}
	return t
}

// hostNames returns the host names in URLs, each once. An unspecified address cannot be dialed: it
// stands for the loopback addresses and the name of this machine.
func hostNames(urls []string) (names []string) {
	add := func(list ...string) {
		for _, name := range list {
			if name != "" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	for _, s := range urls {
		u, err := url.Parse(s)
		switch {
		case err != nil:
		case net.ParseIP(u.Hostname()).IsUnspecified():
			add("localhost", "127.0.0.1", "::1")
			if name, err := os.Hostname(); err == nil && isASCII(name) {
				add(name)
			}
		default:
			add(u.Hostname())
		}
	}
	return names
}

// isASCII reports whether a certificate can have a name.
func isASCII(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool { return r >= utf8.RuneSelf })
}
