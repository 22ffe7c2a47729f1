package server

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// The errors of auth as clients see them.
const (
	noUser       = "etcdserver: user name is empty"
	denied       = "etcdserver: permission denied"
	invalidToken = "etcdserver: invalid auth token"
	oldRevision  = "etcdserver: revision of auth store is old"
)

// vault is a member with auth enabled: root, and alice who may read and write a to b, read r and
// write w. Their passwords are their names.
type vault struct {
	t    *testing.T
	m    *Member
	addr string
	cc   *grpc.ClientConn
}

func newVault(t *testing.T, c Config) *vault {
	t.Helper()
	c.Auth.BcryptCost = max(c.Auth.BcryptCost, 4)
	v := &vault{t: t}
	v.m, v.addr = member(t, c)
	v.cc = dial(t, v.addr)
	v.fill()
	return v
}

func (v *vault) fill() {
	v.t.Helper()
	auth := pb.NewAuthClient(v.cc)
	ctx := timeout(v.t)
	try := func(_ any, err error) {
		v.t.Helper()
		if err != nil {
			v.t.Fatal(err)
		}
	}
	try(auth.UserAdd(ctx, &pb.AuthUserAddRequest{Name: "root", Password: "root"}))
	try(auth.UserGrantRole(ctx, &pb.AuthUserGrantRoleRequest{User: "root", Role: "root"}))
	try(auth.RoleAdd(ctx, &pb.AuthRoleAddRequest{Name: "r"}))
	for _, p := range []*authpb.Permission{
		{PermType: authpb.Permission_READWRITE, Key: []byte("a"), RangeEnd: []byte("b")},
		{PermType: authpb.Permission_READ, Key: []byte("r")},
		{PermType: authpb.Permission_WRITE, Key: []byte("w")},
	} {
		try(auth.RoleGrantPermission(ctx, &pb.AuthRoleGrantPermissionRequest{Name: "r", Perm: p}))
	}
	try(auth.UserAdd(ctx, &pb.AuthUserAddRequest{Name: "alice", Password: "alice"}))
	try(auth.UserGrantRole(ctx, &pb.AuthUserGrantRoleRequest{User: "alice", Role: "r"}))
	try(auth.AuthEnable(ctx, &pb.AuthEnableRequest{}))
}

// token authenticates a user.
func (v *vault) token(user, password string) string {
	v.t.Helper()
	res, err := pb.NewAuthClient(v.cc).Authenticate(timeout(v.t),
		&pb.AuthenticateRequest{Name: user, Password: password})
	if err != nil {
		v.t.Fatal(err)
	}
	return res.Token
}

// as is a context for calls with the token of a user.
func (v *vault) as(user string) context.Context {
	v.t.Helper()
	return metadata.AppendToOutgoingContext(timeout(v.t), "token", v.token(user, user))
}

func (v *vault) watch(ctx context.Context) *watching {
	v.t.Helper()
	s, err := pb.NewWatchClient(v.cc).Watch(ctx)
	if err != nil {
		v.t.Fatal(err)
	}
	return &watching{v.t, s}
}

// put puts a key as root.
func (v *vault) put(key string) {
	v.t.Helper()
	if _, err := pb.NewKVClient(v.cc).Put(v.as("root"),
		&pb.PutRequest{Key: []byte(key)}); err != nil {
		v.t.Fatal(err)
	}
}

// fails checks the text of an error.
func fails(t *testing.T, what string, err error, want string) {
	t.Helper()
	if got := status.Convert(err).Message(); got != want || err == nil {
		t.Errorf("%s: %v, want %s", what, err, want)
	}
}

// event takes the next response, which must have one event of a key.
func (w *watching) event(key string) {
	w.t.Helper()
	if r := w.recv(); len(r.Events) != 1 || string(r.Events[0].Kv.Key) != key {
		w.t.Fatalf("got %v, want an event of %s", r, key)
	}
}

// revoked takes the response that ends a watcher.
func (w *watching) revoked(id int64, reason string) {
	w.t.Helper()
	if r := w.recv(); !r.Canceled || r.Created || r.WatchId != id ||
		!strings.HasSuffix(r.CancelReason, reason) {
		w.t.Fatalf("got %v, want watcher %d canceled because %q", r, id, reason)
	}
}

func createKey(key, end string, id int64) *pb.WatchCreateRequest {
	return &pb.WatchCreateRequest{Key: []byte(key), RangeEnd: []byte(end), WatchId: id}
}

// A watcher ends when its user loses the right to what it watches, and only then. The stream goes
// on.
func TestWatchEndsWithItsRight(t *testing.T) {
	v := newVault(t, Config{})
	auth := pb.NewAuthClient(v.cc)
	root := v.as("root")
	w := v.watch(v.as("alice"))
	w.create(createKey("a", "b", 1))
	w.made(1)
	w.create(createKey("r", "", 2))
	w.made(2)
	w.create(createKey("a", "\x00", 3))
	w.refused("rpc error: code = PermissionDenied desc = " + denied)
	other := v.watch(root)
	other.create(createKey("a", "\x00", 1))
	other.made(1)

	v.put("a1")
	w.event("a1")
	other.event("a1")
	if _, err := auth.RoleRevokePermission(root,
		&pb.AuthRoleRevokePermissionRequest{Role: "r", Key: []byte("a"),
			RangeEnd: []byte("b")}); err != nil {
		t.Fatal(err)
	}
	w.revoked(1, denied)
	v.put("a2")
	v.put("r")
	w.event("r")
	other.event("a2")
	other.event("r")
	w.create(createKey("a1", "", 4))
	w.refused("rpc error: code = PermissionDenied desc = " + denied)
	// What is granted again may be watched again, on the same stream.
	if _, err := auth.RoleGrantPermission(root,
		&pb.AuthRoleGrantPermissionRequest{Name: "r",
			Perm: &authpb.Permission{Key: []byte("a1")}}); err != nil {
		t.Fatal(err)
	}
	w.create(createKey("a1", "", 5))
	w.made(5)
	// A new password makes another user of her.
	if _, err := auth.UserChangePassword(root,
		&pb.AuthUserChangePasswordRequest{Name: "alice", Password: "changed"}); err != nil {
		t.Fatal(err)
	}
	ended := map[int64]bool{}
	for range 2 {
		r := w.recv()
		if ended[r.WatchId] = true; !r.Canceled ||
			!strings.HasSuffix(r.CancelReason, invalidToken) {
			t.Fatalf("after the password was changed: %v", r)
		}
	}
	if !ended[2] || !ended[5] {
		t.Errorf("ended: %v", ended)
	}
	w.create(createKey("r", "", 6))
	w.refused("rpc error: code = Unauthenticated desc = " + invalidToken)
	if _, err := auth.AuthDisable(root, &pb.AuthDisableRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := pb.NewKVClient(v.cc).Put(timeout(t),
		&pb.PutRequest{Key: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	other.event("x")
}

// An event of a write after the change that took the right away reaches no watcher, however many
// there are to check.
func TestNoEventAfterTheRightIsGone(t *testing.T) {
	v := newVault(t, Config{})
	alice, root := v.as("alice"), v.as("root")
	const streams, each = 4, 500
	var list []*watching
	for range streams {
		w := v.watch(alice)
		list = append(list, w)
		for id := range int64(each) {
			w.create(createKey("a", "b", id+1))
			w.made(id + 1)
		}
	}
	if _, err := pb.NewAuthClient(v.cc).UserRevokeRole(root,
		&pb.AuthUserRevokeRoleRequest{Name: "alice", Role: "r"}); err != nil {
		t.Fatal(err)
	}
	if _, err := pb.NewKVClient(v.cc).Put(root, &pb.PutRequest{Key: []byte("a1")}); err != nil {
		t.Fatal(err)
	}
	leaked := 0
	for _, w := range list {
		for canceled := 0; canceled < each; {
			r := w.recv()
			leaked += len(r.Events)
			if r.Canceled {
				canceled++
			}
		}
	}
	if leaked > 0 {
		t.Errorf("%d of %d watchers received an event of a write after their user had lost the right", leaked, streams*each)
	}
}

// While users and roles change all the time, watchers whose users keep their rights receive all
// events, and new ones begin.
func TestWatchersDuringManyChangesOfRights(t *testing.T) {
	v := newVault(t, Config{})
	alice, root := v.as("alice"), v.as("root")
	stop, changed := make(chan struct{}), make(chan error)
	defer func() {
		close(stop)
		if err := <-changed; err != nil {
			t.Error(err)
		}
	}()
	before := v.m.replica.Hub().Withheld()
	go func() {
		auth := pb.NewAuthClient(v.cc)
		for {
			select {
			case <-stop:
				changed <- nil
				return
			default:
			}
			_, err := auth.RoleAdd(root, &pb.AuthRoleAddRequest{Name: "other"})
			if err == nil {
				_, err = auth.RoleDelete(root, &pb.AuthRoleDeleteRequest{Role: "other"})
			}
			if err != nil {
				changed <- err
				<-stop
				return
			}
		}
	}()
	live := v.watch(alice)
	live.create(createKey("a", "b", 1))
	live.made(1)
	var first int64
	for n := range int64(30) {
		for {
			res, err := pb.NewKVClient(v.cc).Put(root, &pb.PutRequest{Key: []byte("a1")})
			if err == nil {
				first = cmp.Or(first, res.Header.Revision)
				break
			}
			fails(t, "a put", err, oldRevision) // the rights have changed on its way
		}
		live.event("a1")
		ctx, end := context.WithCancel(alice)
		past := v.watch(ctx)
		past.create(&pb.WatchCreateRequest{Key: []byte("a"), RangeEnd: []byte("b"), WatchId: 1,
			StartRevision: first})
		past.made(1)
		for got := int64(0); got <= n; {
			r := past.recv()
			if r.Canceled {
				t.Fatal(r)
			}
			got += int64(len(r.Events))
		}
		end()
	}
	t.Logf("%d changes", v.m.replica.Hub().Withheld()-before)
}

// Who watches without a token is cut off when auth is enabled.
func TestWatchWhenAuthIsEnabled(t *testing.T) {
	v := &vault{t: t}
	v.m, v.addr = member(t, Config{Auth: Auth{BcryptCost: 4}})
	v.cc = dial(t, v.addr)
	w := v.watch(timeout(t))
	w.create(createKey("k", "", 1))
	w.made(1)
	v.fill()
	w.revoked(1, noUser)
}

// A stream lives longer than the token that it was opened with; another call with that token does
// not.
func TestStreamsOutliveTokens(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	v := newVault(t, Config{Auth: Auth{TokenTTL: ttl}})
	// as makes a call with a new token, and again if the token may have expired before the call.
	as := func(user string, call func(context.Context) error) {
		t.Helper()
		for {
			began := time.Now()
			err := call(v.as(user))
			if err == nil {
				return
			}
			if time.Since(began) < ttl {
				t.Fatal(err)
			}
		}
	}
	const lease = 7
	as("alice", func(ctx context.Context) error {
		_, err := pb.NewLeaseClient(v.cc).LeaseGrant(ctx,
			&pb.LeaseGrantRequest{ID: lease, TTL: 600})
		return err
	})
	var token context.Context
	var w *watching
	var alive pb.Lease_LeaseKeepAliveClient
	renew := func() error {
		if err := alive.Send(&pb.LeaseKeepAliveRequest{ID: lease}); err != nil {
			t.Fatal(err)
		}
		_, err := alive.Recv()
		return err
	}
	as("alice", func(ctx context.Context) (err error) {
		token, w = ctx, v.watch(ctx)
		w.create(createKey("a", "b", 1))
		if r := w.recv(); r.Canceled {
			return errors.New(r.CancelReason)
		}
		if alive, err = pb.NewLeaseClient(v.cc).LeaseKeepAlive(ctx); err != nil {
			return err
		}
		return renew()
	})
	// Using the token would make it last, so it is only looked at when it should be gone.
	<-time.After(ttl + 200*time.Millisecond)
	_, err := pb.NewKVClient(v.cc).Range(token, &pb.RangeRequest{Key: []byte("a")})
	fails(t, "a range with an expired token", err, invalidToken)
	w.create(createKey("a1", "", 2))
	w.made(2)
	as("root", func(ctx context.Context) error {
		_, err := pb.NewKVClient(v.cc).Put(ctx, &pb.PutRequest{Key: []byte("a2")})
		return err
	})
	w.event("a2")
	if err := renew(); err != nil {
		t.Errorf("keep-alive on a stream that was opened in time: %v", err)
	}
	as("root", func(ctx context.Context) error {
		_, err := pb.NewAuthClient(v.cc).UserDelete(ctx, &pb.AuthUserDeleteRequest{Name: "alice"})
		return err
	})
	for range 2 {
		if r := w.recv(); !r.Canceled || !strings.HasSuffix(r.CancelReason, invalidToken) {
			t.Fatalf("after the user was deleted: %v", r)
		}
	}
	fails(t, "keep-alive of a user who was deleted", renew(), invalidToken)
}

// Tokens are forgotten with the process, users are not. A user whose name was deleted and added
// again is another one.
func TestAuthAfterRestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "m.etcd")
	v := newVault(t, Config{DataDir: dir})
	old := metadata.AppendToOutgoingContext(context.Background(), "token",
		v.token("alice", "alice"))
	stop(t, v.m)
	v.m, v.addr = member(t, Config{DataDir: dir, Auth: Auth{BcryptCost: 4}})
	v.cc = dial(t, v.addr)
	kv := pb.NewKVClient(v.cc)
	_, err := kv.Range(old, &pb.RangeRequest{Key: []byte("a")})
	fails(t, "a token of a former process", err, invalidToken)
	_, err = kv.Range(timeout(t), &pb.RangeRequest{Key: []byte("a")})
	fails(t, "no user", err, noUser)
	alice := v.as("alice")
	if _, err := kv.Range(alice, &pb.RangeRequest{Key: []byte("a")}); err != nil {
		t.Error(err)
	}
	admin := pb.NewAuthClient(v.cc)
	root := v.as("root")
	for _, f := range []func() error{
		func() error {
			_, err := admin.UserDelete(root,
				&pb.AuthUserDeleteRequest{Name: "alice"})
			return err
		},
		func() error {
			_, err := admin.UserAdd(root, &pb.AuthUserAddRequest{Name: "alice", Password: "alice"})
			return err
		},
		func() error {
			_, err := admin.UserGrantRole(root,
				&pb.AuthUserGrantRoleRequest{User: "alice", Role: "root"})
			return err
		},
	} {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
	_, err = kv.Range(alice, &pb.RangeRequest{Key: []byte("a")})
	fails(t, "the token of a user who was replaced", err, invalidToken)
}

// Every kind of JWT, signed by one member and believed by another that has only the public key.
func TestJWT(t *testing.T) {
	dir := t.TempDir()
	write := func(name, kind string, der []byte, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}),
			0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	keys := func(name string, private any, public any) string {
		der, err := x509.MarshalPKCS8PrivateKey(private)
		priv := write(name+".key", "PRIVATE KEY", der, err)
		der, err = x509.MarshalPKIXPublicKey(public)
		return "pub-key=" + write(name+".pub", "PUBLIC KEY", der, err) + ",priv-key=" + priv
	}
	r, _ := rsa.GenerateKey(rand.Reader, 2048)
	e, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	pub, ed, _ := ed25519.GenerateKey(rand.Reader)
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("a long secret that is known here only"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for method, options := range map[string]string{
		"RS256": keys("rsa", r, &r.PublicKey), "PS384": keys("rsa", r, &r.PublicKey),
		"ES256": keys("ec", e, &e.PublicKey),
		"EdDSA": keys("ed", ed, pub), "HS512": "priv-key=" + secret,
	} {
		t.Run(method, func(t *testing.T) {
			v := newVault(t, Config{Auth: Auth{Token: "jwt,sign-method=" + method + "," +
				options + ",ttl=1m"}})
			alice := v.as("alice")
			kv := pb.NewKVClient(v.cc)
			if _, err := kv.Put(alice, &pb.PutRequest{Key: []byte("a")}); err != nil {
				t.Fatal(err)
			}
			_, err := kv.Put(alice, &pb.PutRequest{Key: []byte("x")})
			fails(t, "another's key", err, denied)
			w := v.watch(alice)
			w.create(createKey("a", "", 1))
			w.made(1)
			// A token says at which revision it was issued; after a change a new one is wanted.
			if _, err := pb.NewAuthClient(v.cc).RoleAdd(v.as("root"),
				&pb.AuthRoleAddRequest{Name: "new"}); err != nil {
				t.Fatal(err)
			}
			_, err = kv.Put(alice, &pb.PutRequest{Key: []byte("a")})
			fails(t, "an old token", err, oldRevision)
			v.put("a")
			w.event("a")
			forged := metadata.AppendToOutgoingContext(timeout(t), "token",
				v.token("alice", "alice")+"x")
			_, err = kv.Range(forged, &pb.RangeRequest{Key: []byte("a")})
			fails(t, "a forged token", err, invalidToken)
			if status.Code(err) != codes.Unauthenticated {
				t.Errorf("code %v", status.Code(err))
			}
		})
	}
}

// What is wrong with the options of tokens is said before anything is written.
func TestBadTokenOptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]string{
		"jwt":                                    "sign-method",
		"jwt,sign-method=none":                   "sign-method",
		"jwt,sign-method=RS256":                  "no key",
		"jwt,sign-method=RS256,ttl=x":            "ttl",
		"jwt,sign-method=RS256,priv-key=":        "no key",
		"jwt,sign-method=ES256,pub-key=/no":      "pub-key",
		"jwt,sign-method=RS256,sign-method=":     "given twice",
		"jwt,sign-method=RS256,x":                "NAME=VALUE",
		"jwt,sign-method=EdDSA,priv-key=" + file: "priv-key",
		"other":                                  "neither",
	} {
		dir := filepath.Join(t.TempDir(), "m.etcd")
		m, err := Start(Config{DataDir: dir, ListenClientURLs: []string{"http://127.0.0.1:0"},
			ListenPeerURLs:      []string{"http://127.0.0.1:0"},
			AdvertiseClientURLs: []string{DefaultClientURL}, Auth: Auth{Token: token}})
		if err == nil {
			stop(t, m)
		}
		if err == nil || !strings.Contains(fmt.Sprint(err), "--auth-token") ||
			!strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: %v", token, err)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s: the data directory was made", token)
		}
	}
}

// Requests of a member to itself need no user. Pages with keys over HTTP need root.
func TestAuthBesideTheAPI(t *testing.T) {
	v := newVault(t, Config{})
	if err := v.m.Alive(timeout(t)); err != nil {
		t.Errorf("the member does not count as alive: %v", err)
	}
	w := v.watch(v.as("alice"))
	w.create(createKey("a1", "", 1))
	w.made(1)
	for path, want := range map[string]string{"/health": `"true"`,
		"/readyz?verbose": "[+]linearizable_read ok", "/metrics": "etcd_debugging_auth_revision"} {
		if code, body := get(t, "http://"+v.addr+path); code != 200 ||
			!strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	for token, want := range map[string]string{"": noUser, v.token("alice", "alice"): denied,
		"x": invalidToken, v.token("root", "root"): `"user":"alice"`} {
		req, err := http.NewRequestWithContext(timeout(t), http.MethodGet,
			"http://"+v.addr+"/debug/watch?format=json", nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || !strings.Contains(string(body), want) ||
			(res.StatusCode == 200) != (want[0] == '"') {
			t.Errorf("/debug/watch with %q: %d %s, %v", token, res.StatusCode, body, err)
		}
	}
}

// TestTimesNeedAUser: with auth enabled, only users learn when revisions were made.
func TestTimesNeedAUser(t *testing.T) {
	v := newVault(t, Config{})
	kvc := pb.NewKVClient(v.cc)
	asked := &pb.RangeRequest{Key: []byte("a")}
	at := func(ctx context.Context) context.Context {
		return metadata.AppendToOutgoingContext(ctx, "vigil-at", "1")
	}
	spans := func(ctx context.Context) error {
		return v.cc.Invoke(ctx, "/vigil.Times/Spans", &emptypb.Empty{}, &emptypb.Empty{})
	}
	fails(t, "spans without a token", spans(timeout(t)), noUser)
	_, err := kvc.Range(at(timeout(t)), asked)
	fails(t, "a range by time without a token", err, noUser)
	if err := spans(v.as("alice")); err != nil {
		t.Errorf("spans as alice: %v", err)
	}
	if _, err := kvc.Range(at(v.as("alice")), asked); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a range by time before any write, as alice: %v", err)
	}
}
