package tls

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"vigil/test/proc"
	"vigil/test/proc/pki"
)

// patience bounds the waiting for a condition.
const patience = 60 * time.Second

// start runs a server whose client URLs are those of the schemes, all on one port.
func start(t *testing.T, program proc.Program, schemes []string, args ...string) *proc.Server {
	t.Helper()
	c := proc.Config{Program: program, Memory: true, ClientPort: proc.FreePort(t)}
	var urls []string
	for _, s := range schemes {
		urls = append(urls, fmt.Sprintf("%s://127.0.0.1:%d", s, c.ClientPort))
	}
	list := strings.Join(urls, ",")
	c.Args = append([]string{"--listen-client-urls=" + list,
		"--advertise-client-urls=" + list}, args...)
	return proc.Start(t, c)
}

// shown are the flags for a server that shows the certificate server.pem.
func shown(a *pki.Authority) []string {
	return []string{"--cert-file=" + a.File("server.pem"), "--key-file=" + a.File("server-key.pem")}
}

// mutual are the flags for one that wants a certificate of its clients too.
func mutual(a *pki.Authority) []string {
	return append(shown(a), "--trusted-ca-file="+a.File("authority.pem"), "--client-cert-auth")
}

func dial(t *testing.T, endpoint string, config *tls.Config) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, TLS: config,
		Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// works puts and gets by a new connection.
func works(t *testing.T, endpoint string, config *tls.Config) {
	t.Helper()
	c := dial(t, endpoint, config)
	if _, err := c.Put(proc.Context(t), "k", endpoint); err != nil {
		t.Fatalf("put by %s: %v", endpoint, err)
	}
	if got, err := c.Get(proc.Context(t), "k"); err != nil || string(got.Kvs[0].Value) != endpoint {
		t.Fatalf("get by %s: %v, %v", endpoint, got, err)
	}
}

// refused reports how a new connection fails, which it must do at once.
func refused(t *testing.T, endpoint string, config *tls.Config) error {
	t.Helper()
	creds := insecure.NewCredentials()
	if config != nil {
		creds = credentials.NewTLS(config)
	}
	_, addr, _ := strings.Cut(endpoint, "://")
	cc, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	err = cc.Invoke(proc.Context(t), "/etcdserverpb.Maintenance/Status", &statusRequest{},
		&statusResponse{})
	if status.Code(err) != codes.Unavailable && status.Code(err) != codes.Unimplemented {
		t.Errorf("%s with a client that must be refused: %v", endpoint, err)
	}
	return err
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s after %v", what, patience)
		}
	}
}

const rejected = "rejected connection on client endpoint"

// both are the server under test and a stock one.
var both = []proc.Program{proc.Vigil, proc.Etcd}

// TestWhoIsLetIn presents certificates of every kind to both servers.
func TestWhoIsLetIn(t *testing.T) {
	ca, other := pki.New(t), pki.New(t)
	ca.Issue("server", nil)
	ca.Issue("good", nil)
	other.Issue("stranger", nil)
	ca.Issue("expired", func(c *x509Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	})
	ca.Issue("elsewhere", func(c *x509Certificate) { c.DNSNames = []string{"elsewhere.example"} })
	ca.Revoke("crl.der", ca.Issue("revoked", nil))
	config := func(a *pki.Authority, name string) *tls.Config {
		c := a.Client(name)
		c.RootCAs = ca.Client("").RootCAs
		return c
	}
	allowed := "--client-cert-allowed-hostname=127.0.0.1,good.example"
	for _, program := range both {
		t.Run(string(program), func(t *testing.T) {
			t.Parallel()
			s := start(t, program, []string{"https"},
				append(mutual(ca), "--client-crl-file="+ca.File("crl.der"), allowed)...)
			u := "https://" + s.Addr()
			works(t, u, config(ca, "good"))
			for _, c := range []struct {
				what   string
				config *tls.Config
				line   string
			}{
				{"none", config(ca, ""), "client didn't provide a certificate"},
				{"expired", config(ca, "expired"), "certificate has expired"},
				{"stranger", config(other, "stranger"), "unknown authority"},
				{"revoked", config(ca, "revoked"), "revoked"},
			} {
				if err := refused(t, u, c.config); err != nil {
					t.Logf("%s: %v", c.what, err)
				}
				until(t, "line with "+c.line,
					func() bool { return strings.Contains(s.Log().String(), c.line) })
			}
			if !strings.Contains(s.Log().String(), rejected) {
				t.Errorf("no line %q", rejected)
			}
			// A version of TLS that is too old, and none.
			old := config(ca, "good")
			old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
			refused(t, u, old)
			refused(t, "http://"+s.Addr(), nil)
			works(t, u, config(ca, "good"))

			strict := start(t, program, []string{"https"},
				append(mutual(ca), "--client-cert-allowed-hostname=good.example",
					"--tls-min-version=TLS1.3")...)
			refused(t, "https://"+strict.Addr(), config(ca, "elsewhere"))
			until(t, "line", func() bool {
				return strings.Contains(strict.Log().String(),
					"client certificate authentication failed")
			})
			twelve := config(ca, "good")
			twelve.MaxVersion = tls.VersionTLS12
			refused(t, "https://"+strict.Addr(), twelve)
		})
	}
}

// TestOnePort speaks every protocol to one port with http:// and https://, to both servers. What
// the stock one leaves out is in skip.
func TestOnePort(t *testing.T) {
	ca := pki.New(t)
	ca.Issue("server", nil)
	for _, program := range both {
		t.Run(string(program), func(t *testing.T) {
			t.Parallel()
			metrics := proc.FreePort(t)
			s := start(t, program, []string{"https", "http"},
				append(shown(ca), fmt.Sprintf("--listen-metrics-urls=https://127.0.0.1:%d",
					metrics))...)
			works(t, "http://"+s.Addr(), nil)
			works(t, "https://"+s.Addr(), ca.Client(""))
			plain, err := grpc.NewClient("passthrough:///"+s.Addr(),
				grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
					d := tls.Dialer{Config: ca.Client("")} // no ALPN
					return d.DialContext(ctx, "tcp", addr)
				}))
			if err != nil {
				t.Fatal(err)
			}
			defer plain.Close()
			err = plain.Invoke(proc.Context(t), "/etcdserverpb.Maintenance/Status",
				&statusRequest{}, &statusResponse{})
			if program == proc.Vigil && err != nil {
				t.Errorf("gRPC without ALPN: %v", err)
			}
			t.Logf("gRPC without ALPN: %v", status.Code(err))
			for _, c := range []struct {
				what, url string
				tr        http.RoundTripper
				major     int
			}{
				{"HTTP/1.1", "http://" + s.Addr(), &http.Transport{}, 1},
				{"HTTP/1.1 in TLS", "https://" + s.Addr(),
					&http.Transport{TLSClientConfig: ca.Client("")}, 1},
				{"h2 in TLS", "https://" + s.Addr(),
					&http.Transport{TLSClientConfig: ca.Client(""), Protocols: only(false)}, 2},
				{"either in TLS", "https://" + s.Addr(),
					&http.Transport{TLSClientConfig: ca.Client(""), ForceAttemptHTTP2: true}, 2},
				{"h2c", "http://" + s.Addr(), &http.Transport{Protocols: only(true)}, 2},
				{"metrics in TLS", fmt.Sprintf("https://127.0.0.1:%d", metrics),
					&http.Transport{TLSClientConfig: ca.Client(""), Protocols: only(false)}, 2},
			} {
				client := &http.Client{Transport: c.tr}
				res, err := client.Get(c.url + "/health")
				client.CloseIdleConnections()
				if err != nil {
					t.Errorf("%s: %v", c.what, err)
					continue
				}
				res.Body.Close()
				if program == proc.Etcd && c.what == "h2c" {
					continue // it takes all of this for gRPC
				}
				if res.StatusCode != 200 || res.ProtoMajor != c.major {
					t.Errorf("%s: %s %s", c.what, res.Proto, res.Status)
				}
			}
		})
	}
}

// only is HTTP/2 alone, without TLS or with it.
func only(plain bool) *http.Protocols {
	var p http.Protocols
	p.SetUnencryptedHTTP2(plain)
	p.SetHTTP2(!plain)
	return &p
}

// TestWrongScheme: TLS to a plain port and the reverse fail at once, and the log has the reason.
func TestWrongScheme(t *testing.T) {
	t.Parallel()
	ca := pki.New(t)
	ca.Issue("server", nil)
	plain := start(t, proc.Vigil, []string{"http"})
	if _, err := tls.Dial("tcp", plain.Addr(), ca.Client("")); err == nil {
		t.Error("a handshake with a plain port")
	}
	secure := start(t, proc.Vigil, []string{"https"}, shown(ca)...)
	cc := secure.Dial()
	err := cc.Invoke(proc.Context(t), "/etcdserverpb.Maintenance/Status", &statusRequest{},
		&statusResponse{})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("plain gRPC: %v", err)
	}
	for _, s := range []*proc.Server{plain, secure} {
		until(t, "line", func() bool { return strings.Contains(s.Log().String(), rejected) })
		if strings.Contains(s.Log().String(), `"level":"error"`) {
			t.Errorf("an error in the log:\n%s", s.Log().Tail(20))
		}
	}
}

// TestSplit puts HTTP on a port of its own.
func TestSplit(t *testing.T) {
	t.Parallel()
	ca := pki.New(t)
	ca.Issue("server", nil)
	port := proc.FreePort(t)
	s := start(t, proc.Vigil, []string{"https"},
		append(shown(ca), fmt.Sprintf("--listen-client-http-urls=https://127.0.0.1:%d", port))...)
	works(t, "https://"+s.Addr(), ca.Client(""))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: ca.Client("")}}
	res, err := client.Get(fmt.Sprintf("https://127.0.0.1:%d/health", port))
	if err != nil || res.StatusCode != 200 {
		t.Errorf("%v, %v", res, err)
	} else {
		res.Body.Close()
	}
	if res, err := client.Get("https://" + s.Addr() + "/health"); err == nil {
		res.Body.Close()
		t.Errorf("HTTP on the port of gRPC: %v", res.Status)
	}
	if err := refused(t, fmt.Sprintf("https://127.0.0.1:%d", port), ca.Client("")); err == nil {
		t.Error("gRPC on the port of HTTP")
	}
}

// TestAutoTLS: the certificate is made once, and a client that is given it believes it.
func TestAutoTLS(t *testing.T) {
	t.Parallel()
	s := start(t, proc.Vigil, []string{"https"}, "--auto-tls")
	file := filepath.Join(s.DataDir(), "fixtures", "client", "cert.pem")
	made, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(filepath.Dir(file), "key.pem")); err != nil ||
		info.Mode().Perm() != 0o600 {
		t.Errorf("the key: %v, %v", info, err)
	}
	works(t, "https://"+s.Addr(), &tls.Config{InsecureSkipVerify: true})
	config := &tls.Config{RootCAs: newPool(made)}
	works(t, "https://"+s.Addr(), config)
	if err := refused(t, "https://"+s.Addr(), pki.New(t).Client("")); err == nil {
		t.Error("a client trusts a certificate of an unknown authority")
	}
	s.Stop()
	s.Restart()
	works(t, "https://"+s.Addr(), config)
}

// TestSockets: stock clients over files, with TLS and without.
func TestSockets(t *testing.T) {
	t.Parallel()
	ca := pki.New(t)
	ca.Issue("server", nil)
	dir := proc.Dir(t)
	plain, secure := "unix://"+filepath.Join(dir, "plain"), "unixs://"+filepath.Join(dir, "secure")
	c := proc.Config{Program: proc.Vigil, Memory: true,
		Args: append(shown(ca), "--listen-client-urls="+plain+","+secure,
			"--advertise-client-urls="+plain+","+secure)}
	s := proc.Start(t, c)
	// a path is no name that a certificate could have
	config := &tls.Config{InsecureSkipVerify: true}
	works(t, plain, nil)
	works(t, secure, config)
	// The file of a killed server does not block the start.
	s.Kill()
	s.Restart()
	works(t, plain, nil)
	works(t, secure, config)
}

// TestSlowClients: handshakes and headers that never finish delay no other client, and are closed.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	ca := pki.New(t)
	ca.Issue("server", nil)
	s := start(t, proc.Vigil, []string{"https", "http"}, shown(ca)...)
	var slow []net.Conn
	for i := range 300 {
		c, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		slow = append(slow, c)
		begin := []string{"\x16\x03\x01\x02\x00\x01", "GET /health HTTP/1.1\r\nX-",
			"PRI * HTTP"}[i%3]
		if _, err := io.WriteString(c, begin); err != nil {
			t.Fatal(err)
		}
	}
	works(t, "https://"+s.Addr(), ca.Client(""))
	works(t, "http://"+s.Addr(), nil)
	for _, c := range slow {
		_ = c.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.Copy(io.Discard, c); err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a connection is open after %v", patience)
		}
	}
	works(t, "https://"+s.Addr(), ca.Client(""))
}
