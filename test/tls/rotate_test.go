package tls

import (
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/proc"
	"vigil/test/proc/pki"
)

type (
	x509Certificate = x509.Certificate
	statusRequest   = etcdserverpb.StatusRequest
	statusResponse  = etcdserverpb.StatusResponse
)

func newPool(pem []byte) *x509.CertPool {
	p := x509.NewCertPool()
	p.AppendCertsFromPEM(pem)
	return p
}

// TestRotation replaces certificate, key, authority and list of revoked certificates while a client
// watches. The watch lives on; new connections are made by the new files.
func TestRotation(t *testing.T) {
	t.Parallel()
	first := pki.New(t)
	dir := first.File("")
	first.Issue("server", nil)
	first.Issue("client", nil)
	first.Revoke("crl.der")
	s := start(t, proc.Vigil, []string{"https"},
		append(mutual(first), "--client-crl-file="+first.File("crl.der"))...)
	u := "https://" + s.Addr()
	old := first.Client("client")

	watcher := dial(t, u, old)
	watch := watcher.Watch(clientv3.WithRequireLeader(t.Context()), "k")
	events := 0
	seen := func(config *tls.Config) {
		t.Helper()
		works(t, u, config)
		res, ok := <-watch
		if !ok || res.Err() != nil || len(res.Events) == 0 {
			t.Fatalf("watch: %v, %v", res, res.Err())
		}
		events += len(res.Events)
	}
	seen(old)

	// A new certificate by the same authority: old clients go on, and see it.
	renewed := first.Issue("server", nil)
	seen(old)
	conn, err := tls.Dial("tcp", s.Addr(), old)
	if err != nil {
		t.Fatal(err)
	}
	if got := conn.ConnectionState().PeerCertificates[0]; got.SerialNumber.Cmp(renewed.SerialNumber) != 0 {
		t.Error("the old certificate is shown")
	}
	conn.Close()

	// Another authority, with everything that comes of it.
	second := pki.In(t, dir)
	second.Issue("server", nil)
	second.Issue("client", nil)
	second.Revoke("crl.der")
	now := second.Client("client")
	seen(now)
	foreign := second.Client("")
	foreign.Certificates = old.Certificates
	refused(t, u, foreign)

	// A certificate is revoked.
	gone := second.Issue("gone", nil)
	leaving := second.Client("gone")
	seen(leaving)
	second.Revoke("crl.der", gone)
	refused(t, u, leaving)
	seen(now)

	// An unreadable file changes nothing, and is logged once.
	second.Write("crl.der", []byte("not a list"))
	second.Write("server.pem", []byte("not a certificate"))
	seen(now)
	refused(t, u, leaving)
	seen(now)
	const line = "holds no list of revoked certificates"
	until(t, "line about the list", func() bool { return strings.Contains(s.Log().String(), line) })
	if n := strings.Count(s.Log().String(), line); n != 1 {
		t.Errorf("%d lines about the list", n)
	}
	second.Revoke("crl.der")
	seen(leaving)
	if events < 7 {
		t.Errorf("%d events", events)
	}
}

// TestFilesAtStart: what is wrong with a file is found before anything is written.
func TestFilesAtStart(t *testing.T) {
	t.Parallel()
	ca := pki.New(t)
	ca.Issue("server", nil)
	ca.Issue("other", nil)
	ca.Write("garbage.pem", []byte("garbage"))
	for _, c := range []struct {
		want string
		args []string
	}{
		{"garbage.pem holds no list of revoked certificates",
			append(mutual(ca), "--client-crl-file="+ca.File("garbage.pem"))},
		{"garbage.pem holds no certificate",
			append(shown(ca), "--trusted-ca-file="+ca.File("garbage.pem"))},
		{"missing.pem", append(shown(ca), "--trusted-ca-file="+ca.File("missing.pem"))},
		{"private key does not match public key",
			append(shown(ca), "--key-file="+ca.File("other-key.pem"))},
		{"--cert-file and --key-file go together", shown(ca)[:1]},
		{"--cipher-suites: no cipher suite is called \"ROT13\"",
			append(shown(ca), "--cipher-suites=ROT13")},
		{"needs --cert-file and --key-file, or --auto-tls", nil},
	} {
		cfg := proc.Config{DataDir: proc.Dir(t) + "/data", ClientPort: proc.FreePort(t),
			PeerPort: proc.FreePort(t),
			Args:     append(c.args, "--listen-client-urls=https://127.0.0.1:0")}
		res := proc.Run(t, patience,
			proc.Spec{Name: proc.Path(t, proc.Vigil), Args: cfg.CommandLine()})
		last := strings.TrimSpace(res.Stderr[strings.LastIndexByte(strings.TrimSpace(res.Stderr),
			'\n')+1:])
		if res.Code == 0 || !strings.Contains(last, c.want) {
			t.Errorf("exit %d: %s\nwant %q", res.Code, last, c.want)
		}
	}
}
