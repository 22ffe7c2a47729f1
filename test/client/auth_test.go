package client

import (
	"crypto/tls"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/proc"
	"vigil/test/proc/pki"
)

// secure makes the users root and alice, who may do everything below a/, and enables auth. Their
// passwords are their names.
func secure(t *testing.T, c *clientv3.Client) {
	t.Helper()
	ctx := proc.Context(t)
	try := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	try(c.RoleAdd(ctx, "r"))
	try(c.RoleGrantPermission(ctx, "r", "a/", clientv3.GetPrefixRangeEnd("a/"),
		clientv3.PermissionType(clientv3.PermReadWrite)))
	for user, role := range map[string]string{"root": "root", "alice": "r"} {
		try(c.UserAdd(ctx, user, user))
		try(c.UserGrantRole(ctx, user, role))
	}
	try(c.AuthEnable(ctx))
}

// login is a client of a user.
func login(t *testing.T, addr, user, password string, tls *tls.Config) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Username: user,
		Password: password, TLS: tls, DialTimeout: within})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// The stock client gets a new token when the one that it has ends: with time, with a restart, and
// for a JWT with a change of users.
func TestTokensAreRenewed(t *testing.T) {
	t.Parallel()
	keys := pki.New(t)
	keys.Write("secret", []byte("a secret that is long enough for anybody"))
	for name, args := range map[string][]string{
		"simple": {"--auth-token-ttl=2"},
		"jwt":    {"--auth-token=jwt,sign-method=HS256,ttl=2s,priv-key=" + keys.File("secret")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := proc.Start(t, proc.Config{Memory: true, Args: append(args, "--bcrypt-cost=4")})
			secure(t, s.Client())
			ctx := proc.Context(t)
			alice, root := login(t, s.Addr(), "alice", "alice", nil),
				login(t, s.Addr(), "root", "root", nil)
			put := func(when string) {
				t.Helper()
				if _, err := alice.Put(ctx, "a/x", when); err != nil {
					t.Errorf("%s: %v", when, err)
				}
			}
			put("at first")
			events := alice.Watch(ctx, "a/", clientv3.WithPrefix())
			lease, err := alice.Grant(ctx, 8)
			if err != nil {
				t.Fatal(err)
			}
			alive, err := alice.KeepAlive(ctx, lease.ID)
			if err != nil {
				t.Fatal(err)
			}
			// The keep-alives of a lease of 8 s come every 2.7 s: longer than the token lasts.
			for range 3 {
				if a := <-alive; a == nil {
					t.Fatal("the keep-alive has ended with the token")
				}
			}
			put("after its time")
			if _, err := root.RoleAdd(ctx, "new"); err != nil {
				t.Fatal(err)
			}
			put("after a change")
			for _, want := range []string{"after its time", "after a change"} {
				r := <-events
				if err := r.Err(); err != nil || len(r.Events) != 1 ||
					string(r.Events[0].Kv.Value) != want {
					t.Fatalf("event %v, %v, want %s", r.Events, err, want)
				}
			}
			s.Kill()
			s.Restart()
			put("after a restart")
			if _, err := alice.Put(ctx, "b", ""); !errors.Is(err, rpctypes.ErrPermissionDenied) {
				t.Errorf("another's key: %v", err)
			}
			if _, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()},
				Username: "alice", Password: "wrong"}); err == nil {
				t.Error("a wrong password is taken")
			}
		})
	}
}

// The stock client sees that its watch has ended, and why one that is refused at once is.
func TestWatchIsRevoked(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Memory: true, Args: []string{"--bcrypt-cost=4"}})
	secure(t, s.Client())
	ctx := proc.Context(t)
	alice, root := login(t, s.Addr(), "alice", "alice", nil),
		login(t, s.Addr(), "root", "root", nil)
	events := alice.Watch(ctx, "a/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if r := <-events; !r.Created || r.Err() != nil {
		t.Fatalf("%+v", r)
	}
	if _, err := root.Put(ctx, "a/x", "1"); err != nil {
		t.Fatal(err)
	}
	if r := <-events; len(r.Events) != 1 {
		t.Fatalf("%+v", r)
	}
	if _, err := root.UserRevokeRole(ctx, "alice", "r"); err != nil {
		t.Fatal(err)
	}
	// This client keeps the reason to itself and closes the channel.
	if r, open := <-events; open {
		t.Fatalf("after the role was revoked: %+v", r)
	}
	denied := alice.Watch(ctx, "", clientv3.WithPrefix())
	if r := <-denied; r.Err() == nil {
		t.Fatalf("a watch of everything: %+v", r)
	}
}

// The common name of a certificate is a user, unless there is a token.
func TestCertificatesAreUsers(t *testing.T) {
	t.Parallel()
	a := pki.New(t)
	a.Issue("server", nil)
	named := func(cn string) *tls.Config {
		a.Issue(cn, nil)
		return a.Client(cn)
	}
	port := proc.FreePort(t)
	url := fmt.Sprintf("https://127.0.0.1:%d", port)
	s := proc.New(t, proc.Config{Memory: true,
		Args: []string{"--bcrypt-cost=4", "--client-cert-auth",
			"--trusted-ca-file=" + a.File("authority.pem"),
			"--cert-file=" + a.File("server.pem"), "--key-file=" + a.File("server-key.pem"),
			"--listen-client-urls=" + url, "--advertise-client-urls=" + url}})
	s.Launch()
	select {
	case <-s.Log().Wait("ready to serve client requests"):
	case <-time.After(within):
		t.Fatal("the member does not serve")
	}
	root := login(t, url, "", "", named("root"))
	secure(t, root)
	ctx := proc.Context(t)
	alice := login(t, url, "", "", named("alice"))
	if _, err := root.UserAddWithOptions(ctx, "cert", "",
		&clientv3.UserAddOptions{NoPassword: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := root.UserGrantRole(ctx, "cert", "r"); err != nil {
		t.Fatal(err)
	}
	cert, stranger := login(t, url, "", "", named("cert")), login(t, url, "", "", named("stranger"))
	for name, c := range map[string]*clientv3.Client{"alice": alice, "cert": cert} {
		if _, err := c.Put(ctx, "a/x", ""); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := c.Put(ctx, "b", ""); !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("%s, another's key: %v", name, err)
		}
	}
	if _, err := stranger.Get(ctx, "a/x"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
		t.Errorf("a certificate that names no user: %v", err)
	}
	// The token counts, and not the certificate.
	if _, err := login(t, url, "alice", "alice", named("root")).Get(ctx, "b"); !errors.Is(err,
		rpctypes.ErrPermissionDenied) {
		t.Errorf("the token of alice with the certificate of root: %v", err)
	}
	if _, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, Username: "cert",
		Password: "x", TLS: named("cert")}); err == nil {
		t.Error("a user without password has logged in with one")
	}
}
