package secrets

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"vigil/test/proc"
	"vigil/test/proc/pki"
)

const patience = 60 * time.Second

// user is the name of a user. It is not a secret: it must be found where the secrets are looked
// for.
const user = "eve-whose-name-is-known"

// word returns a password that occurs nowhere else.
func word() string { return "pw" + rand.Text() }

// member is a running member, and what it must keep to itself.
type member struct {
	t       *testing.T
	server  *proc.Server
	url     string
	archive string
	tls     *tls.Config
	auth    pb.AuthClient
	kv      pb.KVClient
	web     *http.Client
	search  *search
	// said are the errors and pages that clients got, by what was asked for.
	said map[string]string
}

// start runs a member with TLS, an archive, all pages and all lines of the log.
func start(t *testing.T, tokens func(*pki.Authority) string) *member {
	t.Helper()
	m := &member{t: t, archive: t.TempDir(), search: newSearch(), said: map[string]string{}}
	ca := pki.New(t)
	ca.Issue("server", nil)
	ca.Issue("peer", nil)
	port := proc.FreePort(t)
	m.url = fmt.Sprintf("https://127.0.0.1:%d", port)
	m.server = proc.New(t, proc.Config{
		Args: []string{
			"--listen-client-urls=" + m.url, "--advertise-client-urls=" + m.url,
			"--cert-file=" + ca.File("server.pem"), "--key-file=" + ca.File("server-key.pem"),
			"--peer-cert-file=" + ca.File("peer.pem"), "--peer-key-file=" + ca.File("peer-key.pem"),
			"--peer-trusted-ca-file=" + ca.File("authority.pem"),
			"--auth-token=" + tokens(ca), "--bcrypt-cost=4", "--archive=file://" + m.archive,
			"--enable-pprof", "--metrics=extensive",
			"--log-level=debug", "--warning-apply-duration=1ns",
			"--warning-unary-request-duration=1ns",
		},
	})
	m.server.Launch()
	m.ready()
	for _, name := range []string{"server", "peer", "authority"} {
		b, err := os.ReadFile(ca.File(name + "-key.pem"))
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(b)
		key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		secret, err := key.(*ecdsa.PrivateKey).Bytes()
		if err != nil {
			t.Fatal(err)
		}
		m.search.add(t, "the private key of the "+name, secret)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.Cert)
	m.tls = &tls.Config{RootCAs: pool}
	cc, err := grpc.NewClient(strings.TrimPrefix(m.url, "https://"),
		grpc.WithTransportCredentials(credentials.NewTLS(m.tls)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	m.auth, m.kv = pb.NewAuthClient(cc), pb.NewKVClient(cc)
	m.web = &http.Client{Transport: &http.Transport{TLSClientConfig: m.tls}, Timeout: patience}
	t.Cleanup(m.web.CloseIdleConnections)
	// From here on the archive gets each entry, and not only a state.
	m.await("an archive that follows the log", func() bool {
		status, _ := m.page(t.Context(), "/debug/archive", "", "")
		return strings.Contains(status, `"archiving"`)
	})
	return m
}

func (m *member) await(what string, ok func() bool) {
	m.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			m.t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

func (m *member) ready() {
	m.t.Helper()
	select {
	case <-m.server.Log().Wait("ready to serve client requests"):
	case <-time.After(patience):
		m.t.Fatal("the member does not serve")
	}
}

// note keeps the error of a call that must fail.
func (m *member) note(what string, _ any, err error) {
	m.t.Helper()
	if err == nil {
		m.t.Errorf("%s succeeds", what)
	}
	m.said["the error of "+what] = fmt.Sprint(err)
}

func (m *member) must(_ any, err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// login returns a context with a token of a user, which is a secret.
func (m *member) login(ctx context.Context, name, password string) (context.Context, string) {
	m.t.Helper()
	r, err := m.auth.Authenticate(ctx, &pb.AuthenticateRequest{Name: name, Password: password})
	if err != nil {
		m.t.Fatal(err)
	}
	m.addToken("a token of "+name, r.Token)
	return metadata.AppendToOutgoingContext(ctx, "token", r.Token), r.Token
}

func (m *member) addToken(name, token string) {
	m.t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) == 2 {
		m.search.add(m.t, name, []byte(parts[0]))
		return
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		m.t.Fatal(err)
	}
	m.search.add(m.t, name, signature)
}

// page asks for a page or calls a method of the gateway, and keeps the answer.
func (m *member) page(ctx context.Context, path, token, body string) (string, int) {
	m.t.Helper()
	method, in := http.MethodGet, io.Reader(nil)
	if body != "" {
		method, in = http.MethodPost, strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, m.url+path, in)
	if err != nil {
		m.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", token)
	}
	res, err := m.web.Do(req)
	if err != nil {
		m.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		m.t.Fatal(err)
	}
	return string(b), res.StatusCode
}

// TestSecrets uses passwords, tokens and keys in every way, and then looks for them.
func TestSecrets(t *testing.T) {
	if proc.Subject() != proc.Vigil {
		t.Skip("the archive and the flags are Vigil's")
	}
	hmac := []byte(rand.Text() + rand.Text())
	for name, tokens := range map[string]func(*pki.Authority) string{
		"simple": func(*pki.Authority) string { return "simple" },
		"jwt": func(ca *pki.Authority) string {
			ca.Write("hmac", hmac)
			return "jwt,sign-method=HS256,priv-key=" + ca.File("hmac")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := start(t, tokens)
			if name == "jwt" {
				m.search.add(t, "the key of tokens", hmac)
			}
			m.use()
			m.look()
		})
	}
}

// use makes users, and mistakes with them.
func (m *member) use() {
	t, ctx := m.t, proc.Context(m.t)
	password := map[string]string{}
	for _, of := range []string{"root", "eve", "eve later", "nobody", "a mistake",
		"a certificate's user", "the gateway", "the console", "a line", "too long"} {
		password[of] = word()
		m.search.add(t, "the password of "+of, []byte(password[of]))
	}
	m.must(m.auth.UserAdd(ctx, &pb.AuthUserAddRequest{Name: "root", Password: password["root"]}))
	m.must(m.auth.UserGrantRole(ctx, &pb.AuthUserGrantRoleRequest{User: "root", Role: "root"}))
	m.must(m.auth.AuthEnable(ctx, &pb.AuthEnableRequest{}))
	root, _ := m.login(ctx, "root", password["root"])
	m.must(m.auth.UserAdd(root, &pb.AuthUserAddRequest{Name: user, Password: password["eve"]}))
	_, err := m.auth.UserAdd(root, &pb.AuthUserAddRequest{Name: user, Password: password["eve"]})
	m.note("adding a user twice", nil, err)
	_, err = m.auth.UserAdd(root,
		&pb.AuthUserAddRequest{Name: "long", Password: strings.Repeat(password["too long"], 4)})
	m.note("a password of 112 bytes", nil, err)
	m.login(ctx, user, password["eve"])
	m.must(m.auth.UserChangePassword(root,
		&pb.AuthUserChangePasswordRequest{Name: user, Password: password["eve later"]}))
	// a signed token is older than the changes
	root, rootToken := m.login(ctx, "root", password["root"])
	eve, token := m.login(ctx, user, password["eve later"])
	_, err = m.auth.Authenticate(ctx,
		&pb.AuthenticateRequest{Name: user, Password: password["a mistake"]})
	m.note("a wrong password", nil, err)
	_, err = m.auth.Authenticate(ctx,
		&pb.AuthenticateRequest{Name: "nobody", Password: password["nobody"]})
	m.note("an unknown user", nil, err)
	_, err = m.kv.Put(eve, &pb.PutRequest{Key: []byte("x")})
	m.note("a put without the right", nil, err)
	for _, wrong := range []string{"bad" + token, token + "0", strings.Replace(token, ".", "", 1)} {
		_, err = m.kv.Range(metadata.AppendToOutgoingContext(ctx, "token", wrong),
			&pb.RangeRequest{Key: []byte("x")})
		m.note("a token that is not valid", nil, err)
	}
	for i := range 20 {
		m.must(m.kv.Put(root,
			&pb.PutRequest{Key: fmt.Append(nil, "k", i), Value: make([]byte, 1000)}))
	}

	// Over HTTP, by the gateway and the console.
	for path, name := range map[string]string{"/v3/auth/authenticate": "the gateway",
		"/console/api/login": "the console"} {
		m.said["the answer of "+
			name] = first(m.page(ctx, path, "",
			fmt.Sprintf(`{"name":%q,"password":%q}`, user, password[name])))
		m.said["the answer of "+name+" to broken JSON"] = first(m.page(ctx, path, "",
			fmt.Sprintf(`{"name":%q,"password":%q`, user, password[name])))
		m.said["the answer of "+name+" to an unknown field"] = first(m.page(ctx, path, "",
			fmt.Sprintf(`{"name":%q,"passwort":%q}`, user, password[name])))
	}
	m.said["a range"] = first(m.page(ctx, "/v3/kv/range", rootToken, `{"key":"aw=="}`))
	m.said["a range with a token that is not valid"] = first(m.page(ctx, "/v3/kv/range",
		"bad"+token, `{"key":"aw=="}`))

	// The tools.
	for what, args := range map[string][]string{
		"a wrong password": {"--user", user + ":" + password["a line"], "get", "k"},
		"a wrong password, with --debug": {"--debug", "--user", user, "--password",
			password["a line"], "get", "k"},
		"a password in an endpoint": {"--endpoints",
			strings.Replace(m.url, "//", "//"+user+":"+password["a line"]+"@", 1), "get", "k"},
		"that, with --debug": {"--debug", "--endpoints",
			strings.Replace(m.url, "//", "//"+user+":"+password["a line"]+"@", 1), "get", "k"},
		"a token that is not valid": {"--auth-jwt-token", "bad" + token,
			"--debug", "get", "k"},
		"a bucket with a password": {"archive", "list",
			"s3://" + user + ":" + password["a line"] + "@bucket"},
	} {
		r := proc.Run(t, patience,
			proc.Spec{Name: proc.Path(t, proc.Vigilctl),
				Args: append([]string{"--endpoints", m.url, "--insecure-skip-tls-verify",
					"--command-timeout", "20s"}, args...)})
		if r.Code == 0 {
			t.Errorf("vigilctl with %s succeeds: %s", what, r.Stdout)
		}
		m.said["the output of vigilctl with "+what] = r.Stdout + r.Stderr
	}
	for _, path := range []string{"/metrics", "/version", "/health", "/livez?verbose",
		"/readyz?verbose", "/debug/vars", "/debug/requests?fam=all&b=0&exp=1", "/debug/events",
		"/debug/watch", "/debug/archive",
		"/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2",
		"/debug/pprof/heap?debug=1", "/members"} {
		m.said["the page "+path] = first(m.page(ctx, path, "", ""))
		m.said["the page "+path+" for root"] = first(m.page(ctx, path, rootToken, ""))
	}
	body := m.said["the page /debug/requests?fam=all&b=0&exp=1"]
	for _, line := range strings.Split(body, `"`) {
		if strings.HasPrefix(line, "?fam=") {
			m.said["the page /debug/requests"+
				line] = first(m.page(ctx, "/debug/requests"+strings.ReplaceAll(line, "&amp;", "&")+
				"&exp=1", "", ""))
		}
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{m.url}, TLS: m.tls, Username: "root",
		Password: password["root"]})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := c.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	backup, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	m.said["a backup"] = string(backup)
}

func first(s string, _ int) string { return s }

// look looks for the secrets. Where a name is to be found that is not secret, the search has seen
// what there is.
func (m *member) look() {
	t := m.t
	known := map[string]bool{}
	see := func(kind, where string, data []byte) {
		m.search.in(t, where, data)
		known[kind] = known[kind] || strings.Contains(string(data), user)
	}
	m.await("the last put in the archive", func() bool {
		for name, b := range files(t, m.archive) {
			if strings.HasPrefix(name, "log/") && strings.Contains(string(unzip(t, b)), "k19") {
				return true
			}
		}
		return false
	})
	m.server.Kill()
	see("log", "the log", []byte(m.server.Log().String()))
	m.server.Launch()
	m.ready()
	m.server.Stop()
	for name, b := range files(t, m.server.DataDir()) {
		see(strings.Split(name, "/")[0], name, b)
	}
	for name, b := range files(t, m.archive) {
		kind := "archive: " + strings.Split(name, "/")[0]
		see(kind, name, b)
		see(kind, name+", unzipped", unzip(t, b))
	}
	see("log", "the log after the restart", []byte(m.server.Log().String()))
	for what, text := range m.said {
		see("said", what, []byte(text))
	}
	for _, kind := range []string{"wal", "history", "archive: log", "log", "said"} {
		if !known[kind] {
			t.Errorf("%s: not even the name of a user was found: the search does not see it", kind)
		}
	}
}

// files returns the files below a directory.
func files(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(dir, name))
		if !os.IsNotExist(err) && err != nil {
			return err
		}
		out[name] = b
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A password in a URL or in another flag is in no line of the log, no error and no list of
// settings, whether the member starts or not.
func TestPasswordsInFlags(t *testing.T) {
	if proc.Subject() != proc.Vigil {
		t.Skip("the flags are Vigil's")
	}
	password := word()
	s := newSearch()
	s.add(t, "the password", []byte(password))
	with := func(scheme string) string {
		return scheme + "://" + user + ":" + password +
			"@127.0.0.1:1"
	}
	for _, flag := range []string{
		"--listen-client-urls=" + with("http"), "--advertise-client-urls=" + with("http"),
		"--listen-peer-urls=" + with("http"), "--initial-advertise-peer-urls=" + with("http"),
		"--listen-metrics-urls=" + with("http"), "--listen-client-http-urls=" + with("http"),
		"--initial-cluster=m1=" + with("http"), "--archive=" + with("s3"),
		"--archive=" + with("nothing"),
		"--discovery-endpoints=" + with("http"), "--discovery-proxy=" + with("http"),
		"--discovery-user=" + user + ":" + password, "--discovery-password=" + password,
		"--distributed-tracing-address=" + with("http"), "--cors=" + with("http"),
		"--host-whitelist=" + with("http"), "--discovery-srv=" + with("http"),
		"--initial-cluster-token=" + with("http"),
	} {
		name, _, _ := strings.Cut(flag, "=")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append(proc.Config{DataDir: filepath.Join(t.TempDir(), "data"),
				ClientPort: proc.FreePort(t), PeerPort: proc.FreePort(t)}.CommandLine(),
				"--enable-distributed-tracing", "--log-level=debug", flag)
			p, err := proc.Launch(append([]string{proc.Path(t, proc.Vigil)}, args...), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Kill()
			select {
			case <-p.Log().Wait("ready to serve client requests"):
			case <-p.Log().Wait("retry"):
			case <-p.Exited():
			case <-time.After(patience):
				t.Errorf("the member neither serves nor exits:\n%s", p.Log().Tail(5))
			}
			s.in(t, "the log with "+name, []byte(p.Log().String()))
			for _, format := range []string{"simple", "yaml", "json"} {
				r := proc.Run(t, patience,
					proc.Spec{Name: proc.Path(t, proc.Vigil),
						Args: []string{"config", "-w", format, flag}})
				s.in(t, "vigil config -w "+format+" with "+name, []byte(r.Stdout+r.Stderr))
			}
		})
	}
}
