package console

import (
	"bufio"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"vigil/test/proc"
	"vigil/test/proc/pki"
)

// secure starts a member with TLS for clients and users, and returns the administrator's client.
func secure(t *testing.T, ca *pki.Authority, args ...string) (*proc.Server, *clientv3.Client) {
	t.Helper()
	ca.Issue("server", nil)
	port := proc.FreePort(t)
	addr := "https://127.0.0.1:" + strconv.Itoa(port)
	m := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true, ClientPort: port,
		Args: append([]string{"--listen-client-urls=" + addr, "--advertise-client-urls=" + addr,
			"--cert-file=" + ca.File("server.pem"), "--key-file=" + ca.File("server-key.pem")},
			args...)})
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: patience,
		TLS: ca.Client("server")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	put(t, c, "config/app", "visible")
	put(t, c, "secret/key", "hidden")
	enableAuth(t, c)
	return m, c
}

// trusting lets a browser accept the certificate of a name, as if its authority were installed.
func trusting(t *testing.T, ca *pki.Authority, name string) chromedp.ExecAllocatorOption {
	t.Helper()
	sum := sha256.Sum256(ca.Client(name).Certificates[0].Leaf.RawSubjectPublicKeyInfo)
	return chromedp.Flag("ignore-certificate-errors-spki-list",
		base64.StdEncoding.EncodeToString(sum[:]))
}

// TestTLS: a login over TLS, whose cookie is for TLS only.
func TestTLS(t *testing.T) {
	chromium(t)
	ca := pki.New(t)
	m, _ := secure(t, ca)
	b := newBrowser(t, "https://"+m.Addr(), trusting(t, ca, "server"))
	b.open("keys")
	b.fill("User", "alice")
	b.until(`!document.body.innerText.includes("not encrypted")`)
	b.fill("Password", "secret")
	b.click("Log in")
	b.shows("You may read these ranges")
	cookies := call(b, network.GetCookies, network.GetCookiesParams{}).Cookies
	if len(cookies) != 1 || !cookies[0].Secure || !cookies[0].HTTPOnly ||
		cookies[0].SameSite != network.CookieSameSiteStrict {
		t.Errorf("cookies: %+v", cookies)
	}
	b.open("keys?k=config/app")
	b.shows("visible")
	b.check()
}

// TestClientCertificate: a certificate of the browser logs in by itself. Chromium asks a person
// which certificate to show, so a proxy between the two shows it, as a browser does that remembers
// the answer.
func TestClientCertificate(t *testing.T) {
	chromium(t)
	ca := pki.New(t)
	ca.Issue("alice", nil)
	m, _ := secure(t, ca, "--client-cert-auth", "--trusted-ca-file="+ca.File("authority.pem"))
	proxy := showing(t, ca.Client("server"), ca.Client("alice"))
	b := newBrowser(t, "https://"+m.Addr(), trusting(t, ca, "server"),
		chromedp.ProxyServer("http://"+proxy), chromedp.Flag("proxy-bypass-list", "<-loopback>"))
	b.open("keys")
	b.shows("alice", "by certificate", "You may read these ranges")
	if strings.Contains(b.text(), "Log out") {
		t.Error("a session by certificate has a button to log out")
	}
	b.open("keys?k=config/app")
	b.shows("visible")
	b.open("keys?k=secret/key")
	b.shows("permission denied")
	b.open("watches")
	b.shows("root only", "Next: log in as a user with the role root")
	b.accessible("certificate")
	b.check()
}

// showing runs a proxy that ends the TLS of a browser, and shows a certificate to the member.
func showing(t *testing.T, inner, outer *tls.Config) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	keep := func(c net.Conn) {
		mu.Lock()
		defer mu.Unlock()
		open = append(open, c)
	}
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	pass := func(c net.Conn) {
		defer c.Close()
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil || r.Method != http.MethodConnect {
			return
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		out, err := tls.Dial("tcp", r.Host, outer)
		if err != nil {
			return
		}
		defer out.Close()
		keep(out)
		in := tls.Server(c, &tls.Config{Certificates: inner.Certificates})
		all.Go(func() {
			_, _ = io.Copy(out, in)
			out.Close()
		})
		_, _ = io.Copy(in, out)
		in.Close()
	}
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			keep(c)
			all.Go(func() { pass(c) })
		}
	})
	return l.Addr().String()
}
