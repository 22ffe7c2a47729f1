package tls

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"net/http"
	"strings"
	"testing"

	"vigil/test/proc"
	"vigil/test/proc/pki"
)

// TestGatewayLendsNoIdentity: where certificates name users, a request to the gateway has no name:
// neither that of its client's certificate, nor that of the server's own, which is root here.
func TestGatewayLendsNoIdentity(t *testing.T) {
	for _, program := range both {
		t.Run(string(program), func(t *testing.T) {
			ca := pki.New(t)
			named := func(name string) func(*x509.Certificate) {
				return func(c *x509.Certificate) {
					c.Subject = pkix.Name{CommonName: name,
						Organization: []string{"tests"}}
				}
			}
			ca.Issue("server", named("root"))
			ca.Issue("admin", named("root"))
			ca.Issue("nobody", named(""))
			s := start(t, program, []string{"https"}, mutual(ca)...)
			url := "https://" + s.Addr()
			c := dial(t, url, ca.Client("admin"))
			ctx := proc.Context(t)
			for _, step := range []func() error{
				func() error { _, err := c.UserAdd(ctx, "root", "secret"); return err },
				func() error { _, err := c.RoleAdd(ctx, "root"); return err },
				func() error { _, err := c.UserGrantRole(ctx, "root", "root"); return err },
				func() error { _, err := c.AuthEnable(ctx); return err },
				// the certificate is root's
				func() error { _, err := c.Put(ctx, "k", "v"); return err },
			} {
				if err := step(); err != nil {
					t.Fatal(err)
				}
			}
			ask := func(config *tls.Config, path, body string, header ...string) (int, string) {
				t.Helper()
				hc := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
				defer hc.CloseIdleConnections()
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+path,
					strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				if body == "" {
					req.Method = http.MethodGet
				}
				for i := 0; i < len(header); i += 2 {
					req.Header.Set(header[i], header[i+1])
				}
				res, err := hc.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				b, err := io.ReadAll(res.Body)
				if err != nil {
					t.Fatal(err)
				}
				return res.StatusCode, string(b)
			}
			const get = `{"key":"aw=="}`
			for _, x := range []struct {
				client, path, body string
				code               int
				want               string
			}{
				{"admin", "/v3/kv/range", get, 400,
					"CommonName of client sending a request against gateway will be ignored and not used as expected\n"},
				{"admin", "/v3beta/kv/range", get, 400, "CommonName of client"},
				{"admin", "/health", "", 200, `"health":"true"`},
				{"admin", "/version", "", 200, "etcdserver"},
				{"nobody", "/v3/kv/range", get, 400, "etcdserver: user name is empty"},
				{"nobody", "/v3/auth/user/list", "{}", 400, "etcdserver: user name is empty"},
				{"nobody", "/v3/auth/authenticate", `{"name":"root","password":"secret"}`,
					200, `"token":`},
			} {
				if program == proc.Etcd && strings.Contains(x.want, "user name is empty") {
					continue // its gateway shows the server's certificate, and is root if the client sends no Accept
				}
				code, body := ask(ca.Client(x.client), x.path, x.body)
				if code != x.code || !strings.Contains(body, x.want) {
					t.Errorf("%s asks %s: %d %s, want %d %s", x.client, x.path, code, body,
						x.code, x.want)
				}
			}
			_, body := ask(ca.Client("nobody"), "/v3/auth/authenticate",
				`{"name":"root","password":"secret"}`)
			_, token, _ := strings.Cut(body, `"token":`)
			token = strings.Trim(token, ` "}`)
			if code, body := ask(ca.Client("nobody"), "/v3/kv/range", get, "Authorization",
				token); code != 200 || !strings.Contains(body, `"count":`) {
				t.Errorf("with a token: %d %s", code, body)
			}
		})
	}
}
