package certs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestCheckAddress: a certificate that names addresses is accepted only from one of them.
func TestCheckAddress(t *testing.T) {
	here, there := net.IPv4(127, 0, 0, 1), net.IPv4(192, 0, 2, 7)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // no name server is asked
	for _, c := range []struct {
		name string
		cert x509.Certificate
		from net.Addr
		ok   bool
	}{
		{"no names", x509.Certificate{}, &net.TCPAddr{IP: here}, true},
		{"its address", x509.Certificate{IPAddresses: []net.IP{there, here}},
			&net.TCPAddr{IP: here}, true},
		{"its address in IPv6", x509.Certificate{IPAddresses: []net.IP{here}},
			&net.TCPAddr{IP: here.To16()}, true},
		{"another address", x509.Certificate{IPAddresses: []net.IP{there}},
			&net.TCPAddr{IP: here}, false},
		{"another name", x509.Certificate{DNSNames: []string{"there.invalid"}},
			&net.TCPAddr{IP: here}, false},
		{"another address, and a name",
			x509.Certificate{IPAddresses: []net.IP{there}, DNSNames: []string{"*.invalid"}},
			&net.TCPAddr{IP: here}, false},
		{"a socket", x509.Certificate{IPAddresses: []net.IP{there}},
			&net.UnixAddr{Name: "@"}, true},
	} {
		if err := checkAddress(ctx, &c.cert, c.from); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestSelfSignedIsReused: a stored valid certificate is used again, an expired one is not.
func TestSelfSignedIsReused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "fixtures")
	made := func(validity time.Duration) *x509.Certificate {
		t.Helper()
		s, _, err := openSelfSigned(dir, []string{"127.0.0.1", "localhost"}, validity)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.save(); err != nil {
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

// TestAutoKeepsClientCertAuth: a generated certificate does not disable the check of client
// certificates.
func TestAutoKeepsClientCertAuth(t *testing.T) {
	for _, c := range []struct {
		opts Options
		want tls.ClientAuthType
	}{
		{Options{Auto: true}, tls.NoClientCert},
		{Options{Auto: true, ClientCertAuth: true}, tls.RequireAndVerifyClientCert},
	} {
		s, err := Open(Config{Options: c.opts, DataDir: t.TempDir(), SelfSignedValidity: time.Hour,
			Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Server().ClientAuth; got != c.want {
			t.Errorf("%+v: %v, want %v", c.opts, got, c.want)
		}
	}
}

// TestReloadByFile: a file that cannot be read does not prevent the use of another one.
func TestReloadByFile(t *testing.T) {
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
		s, _, err := openSelfSigned(filepath.Join(dir, "none"), []string{"localhost"}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	one, two := made(), made()
	c := Options{CertFile: write("cert", one.cert), KeyFile: write("key", one.key),
		TrustedCAFile: write("ca", one.cert)}
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	s, err := Open(Config{Options: c, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	before := s.Server()
	if s.Server() != before {
		t.Error("the configuration is built again without need")
	}
	write("ca", []byte("nothing"))
	write("cert", two.cert)
	write("key", two.key)
	now := s.Server()
	if now == before || string(now.Certificates[0].Certificate[0]) == string(before.Certificates[0].Certificate[0]) {
		t.Error("the new certificate is not used")
	}
	if !now.ClientCAs.Equal(before.ClientCAs) {
		t.Error("the authorities are others")
	}
	if s.Server(); strings.Count(log.String(), "holds no certificate") != 1 {
		t.Errorf("the log: %s", log.String())
	}
	// A pair of which one half is there already.
	write("cert", one.cert)
	if got := s.Server(); string(got.Certificates[0].Certificate[0]) != string(now.Certificates[0].Certificate[0]) {
		t.Error("half a pair is used")
	}
	write("key", one.key)
	if got := s.Server(); string(got.Certificates[0].Certificate[0]) == string(now.Certificates[0].Certificate[0]) {
		t.Error("the other half is not seen")
	}
	if _, err := Open(Config{Options: Options{TrustedCAFile: filepath.Join(dir, "missing")},
		Logger: logger}); err == nil {
		t.Error("a missing file at the start")
	}
}

// A file that could not be read is read again without another change: what the member has missed
// may be a revocation.
func TestFailedReadIsRepeated(t *testing.T) {
	file := filepath.Join(t.TempDir(), "crl")
	if err := os.WriteFile(file, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	var failure error
	var seen string
	s := source{files: []string{file}, load: func() error {
		b, err := os.ReadFile(file)
		if failure == nil && err == nil {
			seen = string(b)
		}
		return cmp.Or(failure, err)
	}}
	refresh := func(want bool, wantErr error, content string) {
		t.Helper()
		if fresh, err := s.refresh(); fresh != want || err != wantErr || seen != content {
			t.Errorf("read again: %t, %v, with %q; want %t, %v, %q", fresh, err, seen, want,
				wantErr, content)
		}
	}
	refresh(true, nil, "one")
	if err := os.WriteFile(file, []byte("the second"), 0o600); err != nil {
		t.Fatal(err)
	}
	failure = syscall.EMFILE
	refresh(false, failure, "one")
	refresh(false, failure, "one")
	failure = nil
	refresh(true, nil, "the second")
	refresh(false, nil, "the second")
}

// TestWarningWithoutAuthority: client certificates without an authority file are logged, since the
// authorities of the system are trusted then.
func TestWarningWithoutAuthority(t *testing.T) {
	for _, c := range []struct {
		opts Options
		want bool
	}{
		{Options{Auto: true, ClientCertAuth: true}, true},
		{Options{Auto: true}, false},
		{Options{ClientCertAuth: true}, false}, // no TLS at all
	} {
		for kind, missing := range map[Kind]string{Clients: "missing=trusted-ca-file",
			Peers: "missing=peer-trusted-ca-file"} {
			var out strings.Builder
			if _, err := Open(Config{Kind: kind, Options: c.opts, DataDir: t.TempDir(),
				SelfSignedValidity: 1,
				URLs:               []string{"https://127.0.0.1:0"},
				Logger:             slog.New(slog.NewTextHandler(&out, nil))}); err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(out.String(), missing); got != c.want {
				t.Errorf("%+v for %ss: warned %v, want %v: %s", c.opts, kind, got, c.want, &out)
			}
		}
	}
}

// TestExpiries: the expiries are those of the present files: of a chain the first, of authorities
// the last.
func TestExpiries(t *testing.T) {
	dir := t.TempDir()
	made := func(validity time.Duration) *selfSigned {
		s, _, err := openSelfSigned(filepath.Join(dir, "none"), []string{"localhost"}, validity)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	write := func(name string, parts ...[]byte) string {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(file+".new", bytes.Join(parts, nil), 0o600),
			os.Rename(file+".new", file)); err != nil {
			t.Fatal(err)
		}
		return file
	}
	hour, day, week := made(time.Hour), made(24*time.Hour), made(7*24*time.Hour)
	o := Options{CertFile: write("cert", day.cert, hour.cert), KeyFile: write("key", day.key),
		ClientCertFile: write("client", week.cert), ClientKeyFile: write("client-key", week.key),
		TrustedCAFile: write("ca", hour.cert, day.cert)}
	s, err := Open(Config{Options: o, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	check := func(want ...string) {
		t.Helper()
		var got []string
		for _, e := range s.Expiries() {
			got = append(got, e.Use+" "+time.Until(e.End).Round(time.Hour).String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	check("server 1h0m0s", "client 168h0m0s", "authority 24h0m0s")
	write("cert", week.cert)
	write("key", week.key)
	write("ca", hour.cert)
	check("server 168h0m0s", "client 168h0m0s", "authority 1h0m0s")
	write("cert", []byte("nothing"))
	check("server 168h0m0s", "client 168h0m0s", "authority 1h0m0s")

	if s, err = Open(Config{Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	check()
}
