package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestOrigin: a certificate that names addresses comes from one of them.
func TestOrigin(t *testing.T) {
	here, there := net.IPv4(127, 0, 0, 1), net.IPv4(192, 0, 2, 7)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nobody is asked for names
	for _, c := range []struct {
		name string
		cert x509.Certificate
		from net.Addr
		ok   bool
	}{
		{"no names", x509.Certificate{}, &net.TCPAddr{IP: here}, true},
		{"its address", x509.Certificate{IPAddresses: []net.IP{there, here}}, &net.TCPAddr{IP: here}, true},
		{"its address in IPv6", x509.Certificate{IPAddresses: []net.IP{here}}, &net.TCPAddr{IP: here.To16()}, true},
		{"another address", x509.Certificate{IPAddresses: []net.IP{there}}, &net.TCPAddr{IP: here}, false},
		{"another name", x509.Certificate{DNSNames: []string{"there.invalid"}}, &net.TCPAddr{IP: here}, false},
		{"another address, and a name", x509.Certificate{IPAddresses: []net.IP{there}, DNSNames: []string{"*.invalid"}}, &net.TCPAddr{IP: here}, false},
		{"a socket", x509.Certificate{IPAddresses: []net.IP{there}}, &net.UnixAddr{Name: "@"}, true},
	} {
		if err := checkOrigin(ctx, &c.cert, c.from); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestMadeCertificate: one that is there and valid is used again, one that has expired is not.
func TestMadeCertificate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "fixtures")
	made := func(validity time.Duration) *x509.Certificate {
		t.Helper()
		s, err := newSelfSigned(dir, []string{"127.0.0.1", "localhost"}, validity)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.keep(); err != nil {
			t.Fatal(err)
		}
		pair, err := s.load()
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf
	}
	first := made(-time.Hour)
	second := made(time.Hour)
	if first.SerialNumber.Cmp(second.SerialNumber) == 0 {
		t.Error("an expired certificate is used again")
	}
	if third := made(time.Hour); third.SerialNumber.Cmp(second.SerialNumber) != 0 {
		t.Error("a valid certificate is made again")
	}
	if err := second.VerifyHostname("localhost"); err != nil {
		t.Error(err)
	}
}

// TestCertificatesOfClientsAreAskedFor: making a certificate does not open what was asked to be closed.
func TestCertificatesOfClientsAreAskedFor(t *testing.T) {
	auto, err := newSelfSigned(t.TempDir(), nil, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tls  TLS
		want tls.ClientAuthType
	}{
		{TLS{Auto: true}, tls.NoClientCert},
		{TLS{Auto: true, ClientCertAuth: true}, tls.RequireAndVerifyClientCert},
	} {
		s, err := newCertificates(c.tls, new(tls.Config), auto, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if got := s.server().ClientAuth; got != c.want {
			t.Errorf("%+v: %v, want %v", c.tls, got, c.want)
		}
	}
}

// TestPartsAreReadByThemselves: a file that cannot be read keeps no other from being used.
func TestPartsAreReadByThemselves(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file+".new", b, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
		return file
	}
	made := func() *selfSigned {
		s, err := newSelfSigned(filepath.Join(dir, "none"), []string{"localhost"}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	one, two := made(), made()
	c := TLS{CertFile: write("cert", one.cert), KeyFile: write("key", one.key), TrustedCAFile: write("ca", one.cert)}
	var log strings.Builder
	s, err := newCertificates(c, new(tls.Config), nil, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	before := s.server()
	if s.server() != before {
		t.Error("the configuration is made again without need")
	}
	write("ca", []byte("nothing"))
	write("cert", two.cert)
	write("key", two.key)
	now := s.server()
	if now == before || string(now.Certificates[0].Certificate[0]) == string(before.Certificates[0].Certificate[0]) {
		t.Error("the new certificate is not used")
	}
	if !now.ClientCAs.Equal(before.ClientCAs) {
		t.Error("the authorities are others")
	}
	if s.server(); strings.Count(log.String(), "holds no certificate") != 1 {
		t.Errorf("the log: %s", log.String())
	}
	// A pair of which one half is there already.
	write("cert", one.cert)
	if got := s.server(); string(got.Certificates[0].Certificate[0]) != string(now.Certificates[0].Certificate[0]) {
		t.Error("half a pair is used")
	}
	write("key", one.key)
	if got := s.server(); string(got.Certificates[0].Certificate[0]) == string(now.Certificates[0].Certificate[0]) {
		t.Error("the other half is not seen")
	}
	if _, err := newCertificates(TLS{TrustedCAFile: filepath.Join(dir, "missing")}, new(tls.Config), nil, s.log); err == nil {
		t.Error("a missing file at the start")
	}
}

// Who asks for certificates without naming authorities is warned: those of the system are believed then.
func TestWarningWithoutAuthority(t *testing.T) {
	for _, c := range []struct {
		tls  TLS
		want bool
	}{
		{TLS{Auto: true, ClientCertAuth: true}, true},
		{TLS{Auto: true}, false},
		{TLS{ClientCertAuth: true}, false}, // no TLS at all
	} {
		for _, kind := range []string{"client", "peer"} {
			var out bytes.Buffer
			m := &Member{log: slog.New(slog.NewTextHandler(&out, nil)), cfg: Config{DataDir: t.TempDir(), SelfSignedValidity: 1}}
			prefix := map[string]string{"peer": "peer-"}[kind]
			if _, err := m.certificates(prefix, kind, c.tls, []string{"https://127.0.0.1:0"}); err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(out.String(), "missing="+prefix+"trusted-ca-file"); got != c.want {
				t.Errorf("%+v for %ss: warned %v, want %v: %s", c.tls, kind, got, c.want, &out)
			}
		}
	}
}
