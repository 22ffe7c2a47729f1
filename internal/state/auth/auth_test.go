package auth

import (
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"vigil/internal/kv"
)

func mustChange(t testing.TB, s *State, reqs ...kv.AuthRequest) *State {
	t.Helper()
	for _, r := range reqs {
		next, _, err := s.Change(&r)
		if err != nil {
			t.Fatalf("%+v: %v", r, err)
		}
		s = next
	}
	return s
}

func role(name string, perms ...kv.Permission) []kv.AuthRequest {
	out := []kv.AuthRequest{{Op: kv.RoleAdd, Role: name}}
	for _, p := range perms {
		out = append(out, kv.AuthRequest{Op: kv.RoleGrantPermission, Role: name, Permission: p})
	}
	return out
}

func user(name string, roles ...string) []kv.AuthRequest {
	out := []kv.AuthRequest{{Op: kv.UserAdd, User: name}}
	for _, r := range roles {
		out = append(out, kv.AuthRequest{Op: kv.UserGrantRole, User: name, Role: r})
	}
	return out
}

func perm(typ kv.PermissionType, key, end string) kv.Permission {
	return kv.Permission{Type: typ, Key: []byte(key), End: []byte(end)}
}

var enable = kv.AuthRequest{Op: kv.AuthEnable}

// What is refused, and with which of several errors.
func TestRefusedChanges(t *testing.T) {
	off := mustChange(t, New(), slices.Concat(user("root", "root"), role("r", perm(kv.PermitRead, "k", "")), role("root"), user("u", "r"))...)
	on := mustChange(t, off, enable)
	p := perm(kv.PermitRead, "k", "")
	for _, c := range []struct {
		s    *State
		r    kv.AuthRequest
		want error
	}{
		{New(), enable, kv.ErrRootUserNotExist},
		{mustChange(t, New(), user("root")...), enable, kv.ErrRootRoleNotExist},
		{off, kv.AuthRequest{Op: kv.UserAdd}, kv.ErrUserEmpty},
		{off, kv.AuthRequest{Op: kv.UserAdd, User: "u", Hash: "?"}, kv.ErrUserExists},
		{off, kv.AuthRequest{Op: kv.UserAdd, User: "v", Hash: "?"}, kv.ErrNoPasswordUser},
		{off, kv.AuthRequest{Op: kv.UserDelete, User: "x"}, kv.ErrUserNotFound},
		{on, kv.AuthRequest{Op: kv.UserDelete, User: "root"}, kv.ErrInvalidAuthMgmt},
		{off, kv.AuthRequest{Op: kv.UserChangePassword, User: "x"}, kv.ErrUserNotFound},
		{off, kv.AuthRequest{Op: kv.UserChangePassword, User: "u", Hash: "?"}, kv.ErrNoPasswordUser},
		{off, kv.AuthRequest{Op: kv.UserGrantRole, User: "x", Role: "y"}, kv.ErrUserNotFound},
		{off, kv.AuthRequest{Op: kv.UserGrantRole, User: "u", Role: "y"}, kv.ErrRoleNotFound},
		{off, kv.AuthRequest{Op: kv.UserRevokeRole, User: "x", Role: "r"}, kv.ErrUserNotFound},
		{off, kv.AuthRequest{Op: kv.UserRevokeRole, User: "u", Role: "root"}, kv.ErrRoleNotGranted},
		{on, kv.AuthRequest{Op: kv.UserRevokeRole, User: "root", Role: "root"}, kv.ErrInvalidAuthMgmt},
		{off, kv.AuthRequest{Op: kv.RoleAdd}, kv.ErrRoleEmpty},
		{off, kv.AuthRequest{Op: kv.RoleAdd, Role: "r"}, kv.ErrRoleExists},
		{off, kv.AuthRequest{Op: kv.RoleDelete, Role: "x"}, kv.ErrRoleNotFound},
		{on, kv.AuthRequest{Op: kv.RoleDelete, Role: "root"}, kv.ErrInvalidAuthMgmt},
		{off, kv.AuthRequest{Op: kv.RoleGrantPermission, Role: "x", Permission: p}, kv.ErrRoleNotFound},
		{off, kv.AuthRequest{Op: kv.RoleGrantPermission, Role: "x"}, kv.ErrInvalidAuthMgmt},
		{off, kv.AuthRequest{Op: kv.RoleGrantPermission, Role: "r", Permission: perm(0, "b", "a")}, kv.ErrInvalidAuthMgmt},
		{off, kv.AuthRequest{Op: kv.RoleRevokePermission, Role: "x", Permission: p}, kv.ErrRoleNotFound},
		{off, kv.AuthRequest{Op: kv.RoleRevokePermission, Role: "r", Permission: perm(0, "k", "l")}, kv.ErrPermissionNotGranted},
		{off, kv.AuthRequest{Op: kv.RoleRevokePermission + 1}, errUnknownOp},
	} {
		next, records, err := c.s.Change(&c.r)
		if !errors.Is(err, c.want) || next != c.s || records != nil {
			t.Errorf("%+v: %v, want %v; state changed: %v", c.r, err, c.want, next != c.s)
		}
	}
}

func TestChangesWithoutEffect(t *testing.T) {
	s := mustChange(t, New(), slices.Concat(user("root", "root"))...)
	for _, r := range []kv.AuthRequest{{Op: kv.AuthDisable}, {Op: kv.UserGrantRole, User: "root", Role: "root"}} {
		if next, records, err := s.Change(&r); next != s || records != nil || err != nil {
			t.Errorf("%+v: %v, %d records", r, err, len(records))
		}
	}
	on := mustChange(t, s, enable)
	if next, _, err := on.Change(&enable); next != on || err != nil {
		t.Errorf("enabled twice: %v", err)
	}
	if on.Revision() != s.Revision() {
		t.Errorf("enabling moved the revision from %d to %d", s.Revision(), on.Revision())
	}
	if off := mustChange(t, on, kv.AuthRequest{Op: kv.AuthDisable}); off.Revision() != on.Revision()+1 || off.Enabled() {
		t.Errorf("disabling left the revision at %d", off.Revision())
	}
}

// Deleting a role takes it from its users; the root role keeps its meaning without a record.
func TestRoles(t *testing.T) {
	s := mustChange(t, New(), slices.Concat(user("root", "root"), role("a", perm(kv.PermitRead, "k", "")), role("b"), user("u", "b", "a"), []kv.AuthRequest{enable})...)
	id := Identity{User: "u", Revision: s.Revision()}
	if err := s.CheckRead(id, []byte("k"), nil); err != nil {
		t.Fatal(err)
	}
	s = mustChange(t, s, kv.AuthRequest{Op: kv.RoleDelete, Role: "a"})
	if u, _ := s.User("u"); !slices.Equal(u.Roles, []string{"b"}) {
		t.Fatalf("roles %q", u.Roles)
	}
	if err := s.CheckRead(id, []byte("k"), nil); !errors.Is(err, kv.ErrAuthOldRevision) {
		t.Fatalf("an old identity: %v", err)
	}
	id.Revision = s.Revision()
	if err := s.CheckRead(id, []byte("k"), nil); !errors.Is(err, kv.ErrPermissionDenied) {
		t.Fatalf("without the role: %v", err)
	}
	root := Identity{User: "root", Revision: s.Revision()}
	if err := s.CheckWrite(root, []byte("k"), []byte{0}); err != nil {
		t.Fatal(err)
	}
	if r, ok := s.Role("root"); ok {
		t.Fatalf("a role root that was not added: %+v", r)
	}
	s = mustChange(t, s, role("root")...)
	if r, _ := s.Role("root"); len(r.Permissions) != 1 || r.Permissions[0].Type != kv.PermitReadWrite || !openEnded(r.Permissions[0].End) {
		t.Fatalf("the role root has %+v", r.Permissions)
	}
}

// keysOf is a Keys over a map.
func keysOf(m map[int64][]string) Keys {
	return func(id int64) iter.Seq[string] { return slices.Values(m[id]) }
}

// Every part of a transaction counts, at any depth and on both branches.
func TestTxnIsCheckedWhole(t *testing.T) {
	s := mustChange(t, New(), slices.Concat(user("root", "root"),
		role("r", perm(kv.PermitReadWrite, "a", "b"), perm(kv.PermitWrite, "w", ""), perm(kv.PermitRead, "r", "")),
		user("u", "r"), []kv.AuthRequest{enable})...)
	id := Identity{User: "u", Revision: s.Revision()}
	keys := keysOf(map[int64][]string{1: {"a1", "w"}, 2: {"a1", "x"}})
	put := func(key string, lease int64, prev bool) kv.Op {
		return kv.Op{Put: &kv.PutRequest{Key: []byte(key), Lease: lease, PrevKV: prev}}
	}
	get := func(key, end string) kv.Op {
		return kv.Op{Range: &kv.RangeRequest{Key: []byte(key), End: []byte(end)}}
	}
	del := func(key, end string, prev bool) kv.Op {
		return kv.Op{Delete: &kv.DeleteRangeRequest{Key: []byte(key), End: []byte(end), PrevKV: prev}}
	}
	for name, c := range map[string]struct {
		op kv.Op
		ok bool
	}{
		"put":                          {put("a1", 0, false), true},
		"put elsewhere":                {put("x", 0, false), false},
		"put of what may be read":      {put("r", 0, false), false},
		"put with prev_kv":             {put("a1", 0, true), true},
		"put with prev_kv, write only": {put("w", 0, true), false},
		"put with lease":               {put("a1", 1, false), true},
		"put with another's lease":     {put("a1", 2, false), false},
		"put with no such lease":       {put("a1", 3, false), true},
		"range":                        {get("a", "b"), true},
		"range beyond":                 {get("a", "c"), false},
		"range from key":               {get("a", "\x00"), false},
		"range, write only":            {get("w", ""), false},
		"delete":                       {del("a", "b", true), true},
		"delete with prev_kv":          {del("w", "", true), false},
		"delete of what may be read":   {del("r", "", false), false},
		"nothing":                      {kv.Op{}, true},
	} {
		for depth := range 4 {
			for branch := range 2 {
				op := c.op
				for range depth {
					op = kv.Op{Txn: wrap(op, branch)}
				}
				err := s.CheckTxn(id, wrap(op, 1-branch), keys)
				if c.ok && err != nil || !c.ok && !errors.Is(err, kv.ErrPermissionDenied) {
					t.Errorf("%s at depth %d: %v", name, depth, err)
				}
				// A request without user is allowed only if it touches no keys.
				if err := s.CheckTxn(Identity{}, wrap(op, 1-branch), keys); name != "nothing" && !errors.Is(err, kv.ErrUserEmpty) {
					t.Errorf("%s without user: %v", name, err)
				}
			}
		}
	}
	for _, c := range []struct {
		key, end string
		ok       bool
	}{{"a1", "", true}, {"a", "b", true}, {"w", "", false}, {"a", "\x00", false}} {
		cmp := &kv.TxnRequest{Compare: []kv.Compare{{Key: []byte(c.key), End: []byte(c.end)}}}
		for range 3 {
			if err := s.CheckTxn(id, cmp, keys); (err == nil) != c.ok {
				t.Errorf("compare %q %q: %v", c.key, c.end, err)
			}
			cmp = &kv.TxnRequest{Success: []kv.Op{{Txn: cmp}}}
		}
	}
}

func wrap(op kv.Op, branch int) *kv.TxnRequest {
	ok := kv.Op{Put: &kv.PutRequest{Key: []byte("a")}}
	if branch == 0 {
		return &kv.TxnRequest{Success: []kv.Op{ok, op}}
	}
	return &kv.TxnRequest{Failure: []kv.Op{ok, op}}
}

func TestWhoIsAsked(t *testing.T) {
	s := mustChange(t, New(), slices.Concat(user("root", "root"), role("r"), role("q"), user("u", "r"), user("admin", "root"))...)
	for _, id := range []Identity{{}, {User: "u"}, {User: "unknown", Revision: 99}} {
		for _, err := range []error{s.CheckAdmin(id), s.CheckRead(id, []byte("k"), nil), s.CheckReadUser(id, "root"), s.CheckReadRole(id, "q")} {
			if err != nil {
				t.Errorf("auth is not enabled: %v", err)
			}
		}
	}
	s = mustChange(t, s, enable)
	rev := s.Revision()
	for _, c := range []struct {
		err, want error
	}{
		{s.CheckAdmin(Identity{}), kv.ErrUserEmpty},
		{s.CheckAdmin(Identity{User: "", Revision: rev}), kv.ErrUserEmpty},
		{s.CheckAdmin(Identity{User: "unknown", Revision: rev}), kv.ErrUserNotFound},
		{s.CheckAdmin(Identity{User: "u", Revision: rev}), kv.ErrPermissionDenied},
		{s.CheckAdmin(Identity{User: "admin"}), kv.ErrAuthOldRevision},
		{s.CheckAdmin(Identity{User: "admin", Revision: rev - 1}), nil},
		{s.CheckRead(Identity{User: "admin"}, []byte("k"), nil), kv.ErrUserEmpty},
		{s.CheckRead(Identity{User: "admin", Revision: rev - 1}, []byte("k"), nil), kv.ErrAuthOldRevision},
		{s.CheckRead(Identity{User: "unknown", Revision: rev}, []byte("k"), nil), kv.ErrPermissionDenied},
		{s.CheckRead(Identity{User: "", Revision: rev}, []byte("k"), nil), kv.ErrPermissionDenied},
		{s.CheckRead(Identity{User: "admin", Revision: rev}, []byte("k"), nil), nil},
		{s.CheckReadUser(Identity{User: "u", Revision: rev}, "u"), nil},
		{s.CheckReadUser(Identity{User: "u", Revision: rev}, "root"), kv.ErrPermissionDenied},
		{s.CheckReadRole(Identity{User: "u", Revision: rev}, "r"), nil},
		{s.CheckReadRole(Identity{User: "u", Revision: rev}, "q"), kv.ErrPermissionDenied},
		{s.CheckReadRole(Identity{}, "q"), kv.ErrUserEmpty},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%v, want %v", c.err, c.want)
		}
	}
}

func TestIssue(t *testing.T) {
	s := mustChange(t, New(), slices.Concat(user("root", "root"), []kv.AuthRequest{{Op: kv.UserAdd, User: "cert", NoPassword: true}})...)
	ask := func(s *State, user string, rev uint64) error {
		return s.CheckAuthenticate(&kv.AuthRequest{Op: kv.Authenticate, User: user, Revision: rev})
	}
	if err := ask(s, "root", s.Revision()); !errors.Is(err, kv.ErrAuthNotEnabled) {
		t.Error(err)
	}
	s = mustChange(t, s, enable)
	for user, want := range map[string]error{"root": nil, "cert": kv.ErrAuthFailed, "x": kv.ErrAuthFailed} {
		if err := ask(s, user, s.Revision()); !errors.Is(err, want) {
			t.Errorf("%s: %v", user, err)
		}
	}
	if err := ask(s, "root", s.Revision()-1); !errors.Is(err, kv.ErrAuthOldRevision) {
		t.Error(err)
	}
}

// Random changes: what is permitted agrees with a model that looks at every permission of every role of
// the user, one key at a time, and what was stored loads as the same state, record by record.
func TestRandomChanges(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 3))
	keys := []string{"a", "b", "c", "d"}
	names := []string{"root", "u", "v"}
	roles := []string{"root", "r", "s"}
	pick := func(list []string) string { return list[rnd.IntN(len(list))] }
	for range 60 {
		s := New()
		stored := map[string]Record{}
		for range 120 {
			r := kv.AuthRequest{Op: kv.AuthOp(1 + rnd.IntN(int(kv.RoleRevokePermission))), User: pick(names), Role: pick(roles),
				Hash: base64.StdEncoding.EncodeToString([]byte(pick(keys))), NoPassword: rnd.IntN(8) == 0,
				Permission: kv.Permission{Type: kv.PermissionType(rnd.IntN(3)), Key: []byte(pick(keys))}}
			switch rnd.IntN(4) {
			case 0:
				r.Permission.End = []byte{0}
			case 1:
				r.Permission.End = []byte(pick(keys))
			}
			if r.Op == kv.Authenticate {
				continue
			}
			before := s.Revision()
			next, records, err := s.Change(&r)
			if err != nil && next != s || err == nil && len(records) == 0 && next != s {
				t.Fatalf("seed %d: %+v changed the state without a record: %v", seed, r, err)
			}
			if len(records) > 0 && r.Op != kv.AuthEnable && next.Revision() != before+1 {
				t.Fatalf("seed %d: %+v: revision %d after %d", seed, r, next.Revision(), before)
			}
			s = next
			if err := s.valid(); err != nil {
				t.Fatalf("seed %d: %+v: %v", seed, r, err)
			}
			for _, rec := range records {
				at := fmt.Sprint(rec.Table, string(rec.Key))
				if delete(stored, at); !rec.Deleted {
					stored[at] = rec
				}
			}
		}
		back, err := Load(func(yield func(Record) bool) {
			for _, rec := range stored {
				if !yield(rec) {
					return
				}
			}
		})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !reflect.DeepEqual(back.Records(), s.Records()) {
			t.Fatalf("seed %d: stored %+v, loaded %+v", seed, s.Records(), back.Records())
		}
		moved, err := Restore(s.Enabled(), s.Revision(), s.Users(), s.Roles())
		if err != nil || !reflect.DeepEqual(moved.Records()[1:], s.Records()[1:]) || moved.Status() != s.Status() {
			t.Fatalf("seed %d: restored %+v of %+v: %v", seed, moved, s, err)
		}
		if !s.Enabled() {
			continue
		}
		for _, name := range names {
			id := Identity{User: name, Revision: s.Revision()}
			for _, k := range keys {
				read, write := model(s, name, k)
				if got := s.CheckRead(id, []byte(k), nil) == nil; got != read {
					t.Fatalf("seed %d: %s reads %s: %v, want %v", seed, name, k, got, read)
				}
				if got := s.CheckWrite(id, []byte(k), nil) == nil; got != write {
					t.Fatalf("seed %d: %s writes %s: %v, want %v", seed, name, k, got, write)
				}
			}
		}
	}
}

// model says what a user may do with one key.
func model(s *State, name, key string) (read, write bool) {
	u, ok := s.User(name)
	if !ok {
		return false, false
	}
	for _, r := range s.Roles() {
		if !slices.Contains(u.Roles, r.Name) {
			continue
		}
		for _, p := range r.Permissions {
			if inRange(key, string(p.Key), string(p.End)) {
				read = read || p.Type != kv.PermitWrite
				write = write || p.Type != kv.PermitRead
			}
		}
	}
	if slices.Contains(u.Roles, RootRole) {
		return true, true
	}
	return read, write
}

// What is loaded, is stored as the same bytes; damage is an error.
func FuzzLoad(f *testing.F) {
	s := mustChange(f, New(), slices.Concat(user("root", "root"), role("r", perm(kv.PermitReadWrite, "a", "b")), user("u", "r"), []kv.AuthRequest{enable})...)
	for _, r := range s.Records() {
		f.Add(uint8(r.Table), r.Key, r.Value)
	}
	f.Fuzz(func(t *testing.T, table uint8, key, value []byte) {
		in := Record{Table: Table(table), Key: key, Value: value}
		s, err := Load(slices.Values([]Record{in}))
		if err != nil {
			if !errors.Is(err, kv.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		for _, out := range s.Records() {
			if out.Table == in.Table && string(out.Key) == string(in.Key) && string(out.Value) != string(in.Value) {
				t.Fatalf("%x became %x", in.Value, out.Value)
			}
		}
	})
}
