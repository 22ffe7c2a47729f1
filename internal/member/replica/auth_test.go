package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/member/replica/access"
	"vigil/internal/state/auth"
	"vigil/internal/store/ration"
	"vigil/internal/vfs/memfs"
)

// withToken is the context of a call with a token.
func withToken(t testing.TB, token string) context.Context {
	return kv.WithCredentials(t.Context(), &kv.Credentials{Token: token, HasToken: true})
}

// login issues a token.
func login(t testing.TB, r *Replica, user string) string {
	t.Helper()
	res, err := r.Access.Authenticate(t.Context(), user, user)
	if err != nil {
		t.Fatal(err)
	}
	return res.Token
}

func changeAuth(t testing.TB, r *Replica, ctx context.Context, req kv.AuthRequest) {
	t.Helper()
	if _, err := r.Access.ChangeAuth(ctx, &req); err != nil {
		t.Fatalf("%+v: %v", req, err)
	}
}

// secure makes the users root, and alice with the role r, and enables auth.
func secure(t testing.TB, r *Replica) {
	t.Helper()
	for _, user := range []string{"root", "alice"} {
		hash, err := r.Access.HashPassword(t.Context(), user)
		if err != nil {
			t.Fatal(err)
		}
		changeAuth(t, r, t.Context(), kv.AuthRequest{Op: kv.UserAdd, User: user, Hash: hash})
	}
	for _, req := range []kv.AuthRequest{
		{Op: kv.UserGrantRole, User: "root", Role: "root"}, {Op: kv.RoleAdd, Role: "r"},
		{Op: kv.UserGrantRole, User: "alice", Role: "r"},
		{Op: kv.RoleGrantPermission, Role: "r",
			Permission: kv.Permission{Type: kv.PermitRead, Key: []byte("k")}}, {Op: kv.AuthEnable},
	} {
		changeAuth(t, r, t.Context(), req)
	}
}

func secured(t testing.TB) *Replica {
	c := config(memfs.New())
	c.BcryptCost = 4
	r := start(t, c)
	secure(t, r)
	return r
}

// A change of the membership names its user, and the leader judges who may renew a lease.
func TestMembersAndLeasesNameTheirUser(t *testing.T) {
	c := config(memfs.New())
	c.BcryptCost, c.MaxLearners = 4, 9
	r := start(t, c)
	secure(t, r)
	root, alice := withToken(t, login(t, r, "root")), withToken(t, login(t, r, "alice"))
	if _, _, err := r.Members.AddMember(root, []string{"http://b:1"}, true); err != nil {
		t.Fatal(err)
	}
	last, err := r.raftLog.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := r.raftLog.Entries(last, last+1, 1<<20)
	if err != nil || entries[0].GetType() != raftpb.EntryConfChangeV2 ||
		!bytes.Contains(entries[0].GetData(), []byte("root")) {
		t.Fatalf("the last entry: %v, %v", entries, err)
	}
	if _, _, err := r.Members.AddMember(alice, []string{"http://c:1"}, true); !errors.Is(err,
		kv.ErrPermissionDenied) {
		t.Errorf("a change by a user without the right: %v", err)
	}
	lease, err := r.Leases.GrantLease(root, kv.LeaseGrantRequest{TTL: 60})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Put(root, &kv.PutRequest{Key: []byte("secret"), Lease: lease.ID}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		ctx  context.Context
		want [2]error // of a keep-alive, and of a question
	}{
		"root":   {root, [2]error{}},
		"alice":  {alice, [2]error{kv.ErrPermissionDenied, nil}},
		"nobody": {t.Context(), [2]error{kv.ErrUserEmpty, kv.ErrUserEmpty}},
	} {
		_, renew := r.Leases.KeepAlive(c.ctx, lease.ID)
		_, left := r.Leases.TimeToLive(c.ctx, lease.ID, false)
		if got := [2]error{renew, left}; got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestTokens(t *testing.T) {
	r := secured(t)
	get := func(ctx context.Context) error {
		_, err := r.Range(ctx, &kv.RangeRequest{Key: []byte("k")})
		return err
	}
	alice := login(t, r, "alice")
	if err := get(withToken(t, alice)); err != nil {
		t.Fatal(err)
	}
	prefix, _, _ := strings.Cut(alice, ".")
	for _, bad := range []string{"", "x", prefix, prefix + ".", prefix + ".1", prefix + ".99999999",
		prefix + ".-1", alice + "0", alice + ".1", "a.b.c"} {
		began := time.Now()
		if err := get(withToken(t, bad)); !errors.Is(err, kv.ErrInvalidAuthToken) {
			t.Errorf("token %q: %v", bad, err)
		}
		if took := time.Since(began); took > patience/2 {
			t.Errorf("token %q is looked for for %v", bad, took)
		}
	}
	if err := get(t.Context()); !errors.Is(err, kv.ErrUserEmpty) {
		t.Errorf("no user: %v", err)
	}
	if err := get(kv.WithCredentials(t.Context(), &kv.Credentials{Member: true})); err != nil {
		t.Errorf("the member itself: %v", err)
	}
	// It may read and nothing else.
	if _, err := r.Put(kv.WithCredentials(t.Context(), &kv.Credentials{Member: true}),
		&kv.PutRequest{Key: []byte("k")}); !errors.Is(err, kv.ErrUserEmpty) {
		t.Errorf("a put by the member itself: %v", err)
	}
	// What refuses a write without the log has not put it there.
	before := r.Status().RaftIndex
	for range 10 {
		if _, err := r.Put(t.Context(), &kv.PutRequest{Key: []byte("k")}); !errors.Is(err,
			kv.ErrUserEmpty) {
			t.Fatal(err)
		}
		if _, err := r.Put(withToken(t, alice), &kv.PutRequest{Key: []byte("k")}); !errors.Is(err,
			kv.ErrPermissionDenied) {
			t.Fatal(err)
		}
	}
	if after := r.Status().RaftIndex; after != before {
		t.Errorf("refused writes took the log from %d to %d", before, after)
	}
	stream := withToken(t, alice)
	if err := get(stream); err != nil {
		t.Fatal(err)
	}
	r.Access.Announce(&auth.State{}) // no simple token is valid any more
	if err := get(withToken(t, alice)); !errors.Is(err, kv.ErrInvalidAuthToken) {
		t.Errorf("a token that has ended: %v", err)
	}
	if err := get(stream); err != nil {
		t.Errorf("a stream whose token has ended: %v", err)
	}
	root := withToken(t, login(t, r, "root"))
	changeAuth(t, r, root, kv.AuthRequest{Op: kv.UserChangePassword, User: "alice"})
	if err := get(stream); !errors.Is(err, kv.ErrInvalidAuthToken) {
		t.Errorf("a stream whose user has another password: %v", err)
	}
}

// A user never reads data that are written while the user has no right to them, whenever the reads
// come.
func TestNoReadOfWhatCameAfterTheRight(t *testing.T) {
	r := secured(t)
	root, alice := withToken(t, login(t, r, "root")), withToken(t, login(t, r, "alice"))
	put := func(value string) {
		t.Helper()
		if _, err := r.Put(root,
			&kv.PutRequest{Key: []byte("k"), Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
	}
	put("public")
	stop := make(chan struct{})
	var readers sync.WaitGroup
	reads := make([]int, 4)
	for i := range reads {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				var got []kv.Records
				if i%2 == 0 {
					res, err := r.Range(alice,
						&kv.RangeRequest{Key: []byte("k"), Serializable: i == 0})
					if err == nil {
						got = append(got, res.KVs)
					}
				} else {
					res, err := r.Txn(alice,
						&kv.TxnRequest{Success: []kv.Op{{Range: &kv.RangeRequest{Key: []byte("k"),
							Serializable: i == 1}}}})
					if err == nil {
						got = append(got, res.Responses[0].Range.KVs)
					}
				}
				for _, records := range got {
					reads[i]++
					if strings.Contains(string(records.At(0)), "secret") {
						t.Error("alice has read what came after her right was gone")
						return
					}
				}
			}
		})
	}
	for range 150 {
		changeAuth(t, r, root, kv.AuthRequest{Op: kv.UserRevokeRole, User: "alice", Role: "r"})
		put("secret")
		put("public")
		changeAuth(t, r, root, kv.AuthRequest{Op: kv.UserGrantRole, User: "alice", Role: "r"})
	}
	close(stop)
	readers.Wait()
	if reads[0]+reads[1]+reads[2]+reads[3] == 0 {
		t.Error("nothing was read")
	}
}

// A client without credentials does not read data that are written after auth was enabled, even if
// its read began before.
func TestNoReadOfWhatCameAfterAuth(t *testing.T) {
	r := secured(t)
	root := withToken(t, login(t, r, "root"))
	key := &kv.RangeRequest{Key: []byte("k"), Serializable: true}
	enable := func() {
		t.Helper()
		changeAuth(t, r, t.Context(), kv.AuthRequest{Op: kv.AuthEnable})
		root = withToken(t, login(t, r, "root"))
		if _, err := r.Put(root,
			&kv.PutRequest{Key: key.Key, Value: []byte("secret")}); err != nil {
			t.Fatal(err)
		}
	}
	changeAuth(t, r, root, kv.AuthRequest{Op: kv.AuthDisable})
	reads := 0
	res, err := access.Read(t.Context(), r.Access,
		func(s *auth.State, id auth.Identity) error { return s.CheckRead(id, key.Key, nil) },
		func() (*kv.RangeResult, error) {
			if reads++; reads == 1 {
				enable()
			}
			var res kv.GetResult
			peek(r, key, &res)
			return &res.RangeResult, nil
		})
	if !errors.Is(err, kv.ErrUserEmpty) || res != nil || reads != 1 {
		t.Errorf("after %d reads: %v, %v", reads, res, err)
	}
	changeAuth(t, r, root, kv.AuthRequest{Op: kv.AuthDisable})
	var got kv.GetResult
	if r.getNow(t.Context(), key, &got, time.Now(),
		func(r *Replica, req *kv.RangeRequest, res *kv.GetResult) bool {
			enable()
			return peek(r, req, res)
		}) {
		t.Errorf("a get without a handler: %v", got)
	}
}

// The memory of a large answer that must not be given is free again.
func TestMemoryOfDroppedReads(t *testing.T) {
	budget, err := ration.New(64 << 20)
	if err != nil {
		t.Fatal(err)
	}
	c := config(memfs.New())
	c.BcryptCost = 4
	c.Store.Ranges = budget
	r := start(t, c)
	secure(t, r)
	root, alice := withToken(t, login(t, r, "root")), withToken(t, login(t, r, "alice"))
	if _, err := r.Put(root,
		&kv.PutRequest{Key: []byte("k"), Value: make([]byte, 1<<20)}); err != nil {
		t.Fatal(err)
	}
	allowed := func(s *auth.State,
		id auth.Identity) error {
		return s.CheckRead(id, []byte("k"), nil)
	}
	change := kv.AuthRequest{Op: kv.RoleAdd, Role: "another"}
	within := func() {
		t.Helper()
		if budget.Stats().Held == 0 {
			t.Fatal("the answer is not counted")
		}
		changeAuth(t, r, root, change)
	}
	_, err = access.Read(alice, r.Access, allowed, func() (*kv.RangeResult, error) {
		res, err := r.Store().Range(alice, &kv.RangeRequest{Key: []byte("k")})
		within()
		return res, err
	})
	if held := budget.Stats().Held; !errors.Is(err, kv.ErrAuthOldRevision) || held != 0 {
		t.Errorf("a range: %v, %d bytes are held", err, held)
	}
	change.Role = "third"
	get := []kv.Op{{Range: &kv.RangeRequest{Key: []byte("k")}}}
	_, err = access.Read(alice, r.Access, allowed, func() (*kv.TxnResult, error) {
		res, err := r.Store().ReadTxn(alice,
			&kv.TxnRequest{Success: []kv.Op{{Txn: &kv.TxnRequest{Success: get}}}})
		within()
		return res, err
	})
	if held := budget.Stats().Held; !errors.Is(err, kv.ErrAuthOldRevision) || held != 0 {
		t.Errorf("a transaction: %v, %d bytes are held", err, held)
	}
}

// signed believes tokens of the form USER.REVISION.
type signed struct{}

func (signed) Sign(id auth.Identity) (string, error) {
	return fmt.Sprintf("%s.%d", id.User, id.Revision), nil
}

func (signed) Verify(t string) (id auth.Identity, ok bool) {
	user, revision, _ := strings.Cut(t, ".")
	n, err := strconv.ParseUint(revision, 10, 64)
	return auth.Identity{User: user, Revision: n}, err == nil
}

// A signed token of a revision that the cluster has not reached is refused, and so is one of a user
// who does not exist or of before its password was set. One of an older revision names its user for
// what needs no key.
func TestSignedTokens(t *testing.T) {
	c := config(memfs.New())
	c.BcryptCost, c.JWT = 4, signed{}
	r := start(t, c)
	secure(t, r)
	now := r.Access.Revision()
	alice, _ := r.applier.Machine().Auth().User("alice") // no entry is being applied
	for token, want := range map[string]error{
		fmt.Sprintf("root.%d", now): nil, fmt.Sprintf("root.%d", now+1): kv.ErrInvalidAuthToken,
		"root.18446744073709551615": kv.ErrInvalidAuthToken,
		"root.1":                    kv.ErrInvalidAuthToken, "root.0": kv.ErrInvalidAuthToken,
		"bob.1000": kv.ErrInvalidAuthToken, fmt.Sprintf("bob.%d", now): kv.ErrInvalidAuthToken,
		fmt.Sprintf("alice.%d", alice.Since):   nil,
		fmt.Sprintf("alice.%d", alice.Since-1): kv.ErrInvalidAuthToken,
	} {
		if err := r.Access.RequireUser(withToken(t, token)); !errors.Is(err, want) {
			t.Errorf("token %s: %v, want %v", token, err, want)
		}
	}
	if _, err := r.Range(withToken(t, fmt.Sprintf("alice.%d", alice.Since)),
		&kv.RangeRequest{Key: []byte("k")}); !errors.Is(err, kv.ErrAuthOldRevision) {
		t.Errorf("a read with a token of an old revision: %v", err)
	}
	for token, want := range map[string]error{fmt.Sprintf("alice.%d", now): nil,
		fmt.Sprintf("alice.%d", alice.Since): kv.ErrAuthOldRevision} {
		if _, err := r.Txn(withToken(t, token), &kv.TxnRequest{}); !errors.Is(err, want) {
			t.Errorf("an empty transaction with token %s: %v, want %v", token, err, want)
		}
	}
}

// Logging in as a user who does not exist takes as long as with a wrong password.
func TestUnknownUserTakesAsLong(t *testing.T) {
	c := config(memfs.New())
	c.BcryptCost = 6
	r := start(t, c)
	secure(t, r)
	refused := func(user string) time.Duration {
		began := time.Now()
		if _, err := r.Access.Authenticate(t.Context(), user, "wrong"); !errors.Is(err,
			kv.ErrAuthFailed) {
			t.Fatal(err)
		}
		return time.Since(began)
	}
	// Without the work of a hash it would be hundreds of times as fast, at every turn. Other
	// programs can only disturb some of them.
	known, unknown := time.Hour, time.Hour
	for range 100 {
		known, unknown = min(known, refused("alice")), min(unknown, refused("bob"))
		if unknown >= known/10 {
			return
		}
	}
	t.Errorf("a user who exists is refused after %v, one who does not after %v", known, unknown)
}
