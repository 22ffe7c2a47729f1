package discovery

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"
)

// Config selects where to find the members: in a registry if Endpoints is set, or in the DNS if SRV
// is set. The zero value of a field is its default.
type Config struct {
	// Token names the new cluster. Endpoints are members of the cluster that holds the registry:
	// http://, https://, unix:// or unixs:// URLs, or HOST:PORT.
	Token     string
	Endpoints []string
	// DialTimeout bounds connecting and authenticating, default 2 s, RequestTimeout one request,
	// default 5 s.
	DialTimeout, RequestTimeout time.Duration
	// KeepAliveTime is how long a connection may be silent before a heartbeat is requested, default
	// 2 s (the transport takes anything below 10 s as 10 s). KeepAliveTimeout bounds the time until
	// the heartbeat, default 6 s.
	KeepAliveTime, KeepAliveTimeout time.Duration
	// TLS encrypts connections to endpoints without a scheme. For other endpoints http:// or
	// https:// decides.
	TLS bool
	// CertFile and KeyFile are the certificate sent to the registry. An authority in CAFile (by
	// default one of the system's) must have signed the registry's certificate, unless
	// InsecureSkipVerify accepts any.
	CertFile, KeyFile, CAFile string
	InsecureSkipVerify        bool
	// User and Password authenticate this member if both are set. User may be NAME:PASSWORD.
	User, Password string

	// SRV is a DNS domain whose SRV records name the members: _etcd-server-ssl._tcp lists https
	// members, _etcd-server._tcp lists http members. SRVName is a suffix of these names:
	// _etcd-server-SRVNAME.
	SRV, SRVName string
	// Resolver queries the DNS. Default net.DefaultResolver.
	Resolver *net.Resolver

	// Logger receives lines about members found and waits. Default: slog.Default().
	Logger *slog.Logger
}

// Registry reports whether to find the members in a registry. Wanted reports whether to find them
// at all.
func (c *Config) Registry() bool { return len(c.Endpoints) > 0 }
func (c *Config) Wanted() bool   { return c.Registry() || c.SRV != "" }

// WithDefaults returns c with every field that is zero set to its default.
func (c Config) WithDefaults() Config {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&c.DialTimeout, 2 * time.Second},
		{&c.RequestTimeout, 5 * time.Second},
		{&c.KeepAliveTime, 2 * time.Second},
		{&c.KeepAliveTimeout, 6 * time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if name, password, ok := strings.Cut(c.User, ":"); ok && c.Password == "" {
		c.User, c.Password = name, password
	}
	if c.Resolver == nil {
		c.Resolver = net.DefaultResolver
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Validate reports every invalid setting under the name of its flag. Call WithDefaults first.
func (c Config) Validate() error {
	var errs []error
	bad := func(cond bool, text string) {
		if cond {
			errs = append(errs, errors.New(text))
		}
	}
	bad((c.Token != "") != (len(c.Endpoints) > 0),
		"both --discovery-token and --discovery-endpoints must be set")
	for _, e := range c.Endpoints {
		bad(strings.TrimSpace(e) == "", "--discovery-endpoints must not contain empty endpoints")
	}
	bad((c.CertFile == "") != (c.KeyFile == ""), "--discovery-cert and --discovery-key go together")
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{
		{"dial-timeout", c.DialTimeout},
		{"request-timeout", c.RequestTimeout},
		{"keepalive-time", c.KeepAliveTime},
		{"keepalive-timeout", c.KeepAliveTimeout},
	} {
		bad(d.value < 0, fmt.Sprintf("--discovery-%s: %v is negative", d.flag, d.value))
	}
	return errors.Join(errs...)
}

// tls returns the TLS configuration for dialing the service, nil for plain TCP.
func (c *Config) tls(required bool) (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: c.InsecureSkipVerify}
	if c.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("--discovery-cert and --discovery-key: %w", err)
		}
		t.Certificates, required = []tls.Certificate{pair}, true
	}
	if c.CAFile != "" {
		b, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--discovery-cacert: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(b) {
			return nil, fmt.Errorf("--discovery-cacert: %s holds no certificate", c.CAFile)
		}
		required = true
	}
	if !required && !c.InsecureSkipVerify {
		return nil, nil
	}
	return t, nil
}
