package fsm

import (
	"errors"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/state/auth"
	"vigil/internal/store/history"
)

func by(user string, rev uint64, r *Request) *Request {
	r.Identity = auth.Identity{User: user, Revision: rev}
	return r
}

func change(r kv.AuthRequest) *Request { return &Request{Auth: &r} }

// secured is a machine with auth enabled: root, and alice who may read and write a to b and write w.
func secured(t testing.TB) *box {
	b := newBox(t)
	for i, r := range b.entry(raftpb.EntryNormal, group(t, GroupHeader{},
		change(kv.AuthRequest{Op: kv.UserAdd, User: "root"}),
		change(kv.AuthRequest{Op: kv.UserGrantRole, User: "root", Role: "root"}),
		change(kv.AuthRequest{Op: kv.RoleAdd, Role: "r"}),
		change(kv.AuthRequest{Op: kv.RoleGrantPermission, Role: "r", Permission: kv.Permission{Type: kv.PermitReadWrite, Key: []byte("a"), End: []byte("b")}}),
		change(kv.AuthRequest{Op: kv.RoleGrantPermission, Role: "r", Permission: kv.Permission{Type: kv.PermitWrite, Key: []byte("w")}}),
		change(kv.AuthRequest{Op: kv.UserAdd, User: "alice"}),
		change(kv.AuthRequest{Op: kv.UserGrantRole, User: "alice", Role: "r"}),
		change(kv.AuthRequest{Op: kv.AuthEnable}),
	), true).Results {
		if r.Err != nil {
			t.Fatalf("request %d: %v", i, r.Err)
		}
	}
	return b
}

// Requests that apply rejects, in one group with requests that it accepts, and the state after them.
func TestAuthorize(t *testing.T) {
	b := secured(t)
	rev := b.m.Auth().Revision()
	alice := func(r *Request) *Request { return by("alice", rev, r) }
	txn := func(ops ...kv.Op) *Request { return &Request{Txn: &kv.TxnRequest{Success: ops}} }
	cases := []struct {
		r    *Request
		want error
	}{
		{put("a1", "v"), kv.ErrUserEmpty},
		{alice(put("a1", "v")), nil},
		{alice(put("x", "v")), kv.ErrPermissionDenied},
		{by("alice", rev-1, put("a1", "v")), kv.ErrAuthOldRevision},
		{by("bob", rev, put("a1", "v")), kv.ErrPermissionDenied},
		{by("root", rev, put("x", "v")), nil},
		{alice(&Request{Put: &kv.PutRequest{Key: []byte("w"), PrevKV: true}}), kv.ErrPermissionDenied},
		{alice(&Request{DeleteRange: &kv.DeleteRangeRequest{Key: []byte("a"), End: []byte{0}}}), kv.ErrPermissionDenied},
		{alice(txn(kv.Op{Txn: &kv.TxnRequest{Failure: []kv.Op{{Put: &kv.PutRequest{Key: []byte("x")}}}}})), kv.ErrPermissionDenied},
		{alice(txn(kv.Op{Txn: &kv.TxnRequest{Compare: []kv.Compare{{Key: []byte("w")}}}})), kv.ErrPermissionDenied},
		{grant(1, 60), kv.ErrUserEmpty},
		{alice(grant(1, 60)), nil},
		{by("root", rev, attach("x", 1)), nil},
		{alice(attach("a1", 1)), kv.ErrPermissionDenied},
		{alice(revoke(1)), kv.ErrPermissionDenied},
		{revoke(1), kv.ErrUserEmpty},
		{alice(grant(2, 60)), nil},
		{alice(attach("a1", 2)), nil},
		{alice(revoke(2)), nil},
		{change(kv.AuthRequest{Op: kv.AuthDisable}), kv.ErrUserEmpty},
		{alice(change(kv.AuthRequest{Op: kv.UserAdd, User: "eve"})), kv.ErrPermissionDenied},
		{alice(change(kv.AuthRequest{Op: kv.AuthDisable})), kv.ErrPermissionDenied},
		{by("root", 1, change(kv.AuthRequest{Op: kv.UserDelete, User: "alice"})), kv.ErrAuthOldRevision}, // before root was added
		{by("root", 2, change(kv.AuthRequest{Op: kv.UserDelete, User: "root"})), kv.ErrInvalidAuthMgmt},
		{by("root", 2, change(kv.AuthRequest{Op: kv.RoleDelete, Role: "r"})), nil},
		{alice(put("a2", "v")), kv.ErrAuthOldRevision},
		{by("alice", rev+1, put("a2", "v")), kv.ErrPermissionDenied},
		{by("root", rev+1, change(kv.AuthRequest{Op: kv.AuthDisable})), nil},
		{put("a2", "v"), nil},
	}
	var reqs []*Request
	for _, c := range cases {
		reqs = append(reqs, c.r)
	}
	for i, got := range b.entry(raftpb.EntryNormal, group(t, GroupHeader{}, reqs...), true).Results {
		if want := cases[i].want; !errors.Is(got.Err, want) || want == nil && got.Err != nil {
			t.Errorf("request %d: %v, want %v", i, got.Err, want)
		}
	}
	b.commit()
	before := b.dump()
	b.reopen()
	if after := b.dump(); after != before {
		t.Errorf("before reopening\n%s\nand after\n%s", before, after)
	}
	if s := b.m.Auth(); s.Enabled() || s.Revision() != rev+2 || len(s.Users()) != 2 || len(s.Roles()) != 0 {
		t.Errorf("after reopening: %+v", s.Records())
	}
}

// What was asked for as a user is refused once that user was replaced, also when it was proposed before.
func TestAuthorizeReplacedUser(t *testing.T) {
	for name, replace := range map[string][]kv.AuthRequest{
		"deleted and added": {{Op: kv.UserDelete, User: "alice"}, {Op: kv.UserAdd, User: "alice"}, {Op: kv.UserGrantRole, User: "alice", Role: "root"}},
		"another password":  {{Op: kv.UserChangePassword, User: "alice"}},
		"auth disabled":     {{Op: kv.AuthDisable}, {Op: kv.AuthEnable}},
	} {
		b := secured(t)
		rev := b.m.Auth().Revision()
		as := func(user string, rev uint64, r kv.AuthRequest) *Request { return by(user, rev, change(r)) }
		reqs := []*Request{as("root", rev, kv.AuthRequest{Op: kv.UserGrantRole, User: "alice", Role: "root"})}
		for _, r := range replace {
			reqs = append(reqs, as("root", rev, r))
		}
		reqs = append(reqs, as("alice", rev+1, kv.AuthRequest{Op: kv.UserAdd, User: "eve"}))
		results := b.entry(raftpb.EntryNormal, group(t, GroupHeader{}, reqs...), true).Results
		if err := results[len(results)-1].Err; !errors.Is(err, kv.ErrAuthOldRevision) {
			t.Errorf("%s: a request of the former user: %v", name, err)
		}
		if _, ok := b.m.Auth().User("eve"); ok {
			t.Errorf("%s: the request of the former user had an effect", name)
		}
	}
}

// A token is issued on every member, whether anyone waits for it or not, and only for the revision at which
// the password was checked.
func TestTokensAreIssued(t *testing.T) {
	b := secured(t)
	rev := b.m.Auth().Revision()
	ask := func(user string, rev uint64) *Request {
		return change(kv.AuthRequest{Op: kv.Authenticate, User: user, TokenHash: "abc", Revision: rev})
	}
	out := b.entry(raftpb.EntryNormal, group(t, GroupHeader{}, ask("alice", rev), ask("alice", rev-1), ask("bob", rev)), false)
	if len(out.Tokens) != 1 || out.Tokens[0].Hash != "abc" || out.Tokens[0].Index != 3 || !b.m.Auth().SameUser(out.Tokens[0].Seen) || out.Results[0].Auth.Index != 3 {
		t.Errorf("tokens %+v", out.Tokens)
	}
	if !errors.Is(out.Results[1].Err, kv.ErrAuthOldRevision) || !errors.Is(out.Results[2].Err, kv.ErrAuthFailed) {
		t.Errorf("%v, %v", out.Results[1].Err, out.Results[2].Err)
	}
	if out := b.entry(raftpb.EntryNormal, group(t, GroupHeader{}, put("k", "v")), true); len(out.Tokens) != 0 {
		t.Errorf("tokens of another entry: %+v", out.Tokens)
	}
	end := change(kv.AuthRequest{Op: kv.TokensEnd, Index: 3})
	if out := b.entry(raftpb.EntryNormal, group(t, GroupHeader{}, end), true); out.TokensEnd != 3 || out.Results[0].Err != nil {
		t.Errorf("the end of tokens, which the leader proposes without an identity: %+v", out)
	}
}

// Users and roles go where the meta records of a store go.
func TestAuthInMeta(t *testing.T) {
	b := secured(t)
	b.commit()
	var meta []history.Meta
	for _, bucket := range []byte{memberBucket, raftBucket, authBucket, userBucket, roleBucket} {
		for k, v := range b.log.Meta(bucket) {
			meta = append(meta, history.Meta{Bucket: bucket, Key: k, Value: v})
		}
	}
	s, err := ReadAuth(meta)
	if err != nil || s.Status() != b.m.Auth().Status() || len(s.Users()) != 2 {
		t.Fatalf("%+v, %v", s, err)
	}
	if made := AuthMeta(s); len(made) != 4 {
		t.Errorf("records %+v", made)
	}
	if _, err := ReadContents(meta); err != nil {
		t.Error(err)
	}
	for i := range meta {
		if meta[i].Bucket == userBucket {
			meta[i].Value = meta[i].Value[:1]
		}
	}
	if _, err := ReadContents(meta); !errors.Is(err, kv.ErrCorrupt) {
		t.Errorf("a damaged user: %v", err)
	}
}
