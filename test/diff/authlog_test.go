package diff

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"vigil/test/proc"
)

// authLines are the lines about users, roles and tokens that operators and auditors look for. A
// line of etcd's package auth that is not here fails the test, unless it is one of those that etcd
// logs about itself.
var authLines = []string{
	"authentication is already enabled; ignored auth enable request", "enabled authentication",
	"disabled authentication",
	"added a user", "cannot delete 'root' user", "deleted a user", "changed a password of a user",
	"ignored grant role request to a user", "granted a role to a user",
	"'root' user cannot revoke 'root' role", "revoked a role from a user",
	"revoked a permission on range", "cannot delete 'root' role", "deleted a role",
	"created a role", "granted/updated a permission to a user",
	"invalid auth token",
}

// otherLines are lines of etcd's package auth that have no counterpart, with the reason.
var otherLines = map[string]string{
	"simple token is not cryptographically signed": "a warning at each start about the default",
	"invalid password": "the line \"invalid authentication was requested\" of both says so",
	"request auth revision is less than current node auth revision": "the client gets the error, and asks again",
	"cannot find a user for permission check":                       "the client gets the error",
}

// authLog returns the lines about users, roles and tokens of a server, in order: without time and
// place, and for tokens without the fingerprint, which is another one on each side.
func authLog(t *testing.T, s *proc.Server, stock bool) (out []string) {
	t.Helper()
	for line := range strings.Lines(s.Log().String()) {
		var fields map[string]any
		if json.Unmarshal([]byte(line), &fields) != nil {
			continue
		}
		msg, _ := fields["msg"].(string)
		caller, _ := fields["caller"].(string)
		if !slices.Contains(authLines, msg) {
			if stock && strings.HasPrefix(caller, "auth/") && otherLines[msg] == "" {
				t.Errorf("a line of etcd that is not compared: %s", line)
			}
			continue
		}
		for _, name := range []string{"ts", "caller", "stacktrace"} {
			delete(fields, name)
		}
		if print, ok := fields["token-fingerprint"].(string); ok {
			if len(print) != 12 {
				t.Errorf("a fingerprint: %s", line)
			}
			fields["token-fingerprint"] = "…"
		}
		var text []string
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			v, err := json.Marshal(fields[name])
			if err != nil {
				t.Fatal(err)
			}
			text = append(text, name+"="+string(v))
		}
		out = append(out, strings.Join(text, " "))
	}
	return out
}

// TestAuthLog compares what both log about users, roles, permissions and rejected tokens, line by
// line. No line has a password or a token.
func TestAuthLog(t *testing.T) {
	t.Parallel()
	p := NewPair(t, "--bcrypt-cost", "4", "--log-format", "json")
	const password, other = "a-secret-word", "another-secret-word"
	do := func(user string, r proto.Message) { p.DoAs(user, r) }
	for _, r := range []proto.Message{
		&pb.AuthDisableRequest{}, &pb.AuthEnableRequest{},
		&pb.AuthUserAddRequest{Name: "root", Password: password},
		&pb.AuthUserAddRequest{Name: "root", Password: password},
		&pb.AuthUserAddRequest{Name: "cert", Options: &authpb.UserAddOptions{NoPassword: true}},
		&pb.AuthUserGrantRoleRequest{User: "root", Role: "root"},
		&pb.AuthUserGrantRoleRequest{User: "root", Role: "root"},
		&pb.AuthRoleAddRequest{Name: "r"}, &pb.AuthRoleAddRequest{Name: "r"},
		&pb.AuthRoleAddRequest{Name: "q"},
		&pb.AuthRoleGrantPermissionRequest{Name: "r", Perm: permission(0, "a", "c")},
		&pb.AuthRoleGrantPermissionRequest{Name: "r", Perm: permission(1, "a", "c")},
		&pb.AuthRoleGrantPermissionRequest{Name: "r", Perm: permission(2, "x", "\x00")},
		&pb.AuthRoleGrantPermissionRequest{Name: "r", Perm: permission(2, "\xff\n", "")},
		&pb.AuthRoleGrantPermissionRequest{Name: "r", Perm: permission(7, "odd", "")},
		&pb.AuthRoleGrantPermissionRequest{Name: "r", Perm: permission(0, "b", "a")},
		&pb.AuthRoleRevokePermissionRequest{Role: "r", Key: []byte("x"), RangeEnd: []byte{0}},
		&pb.AuthRoleRevokePermissionRequest{Role: "r", Key: []byte("none")},
		&pb.AuthUserAddRequest{Name: "alice", Password: password},
		&pb.AuthUserGrantRoleRequest{User: "alice", Role: "r"},
		&pb.AuthUserGrantRoleRequest{User: "alice", Role: "q"},
		&pb.AuthUserGrantRoleRequest{User: "alice", Role: "none"},
		&pb.AuthUserChangePasswordRequest{Name: "alice", Password: other},
		&pb.AuthUserChangePasswordRequest{Name: "nobody", Password: other},
		&pb.AuthEnableRequest{},
	} {
		do("", r)
	}
	p.Login("root", password)
	p.Login("alice", other)
	bad := NewCall(get("a"))
	bad.Metadata = []string{"token", "no-such-token.1"}
	p.Call(bad)
	for _, r := range []proto.Message{
		&pb.AuthEnableRequest{},
		&pb.AuthUserDeleteRequest{Name: "root"}, &pb.AuthRoleDeleteRequest{Role: "root"},
		&pb.AuthUserRevokeRoleRequest{Name: "root", Role: "root"},
		&pb.AuthUserRevokeRoleRequest{Name: "alice", Role: "q"},
		&pb.AuthUserRevokeRoleRequest{Name: "alice", Role: "q"},
		&pb.AuthRoleDeleteRequest{Role: "r"}, &pb.AuthRoleDeleteRequest{Role: "r"},
		&pb.AuthUserDeleteRequest{Name: "alice"}, &pb.AuthUserDeleteRequest{Name: "alice"},
		&pb.AuthDisableRequest{},
	} {
		do("root", r)
	}
	p.Finish(t, &tally)
	// The last change is in both logs: what is before it is, too.
	for _, s := range []*Side{p.Etcd, p.Subject} {
		select {
		case <-s.Server.Log().Wait("disabled authentication"):
		case <-time.After(callTimeout):
			t.Fatalf("%s has not logged the last change:\n%s", s.Server.Addr(),
				s.Server.Log().Tail(5))
		}
		for _, secret := range []string{password, other, s.tokens["root"], s.tokens["alice"],
			"no-such-token"} {
			if strings.Contains(s.Server.Log().String(), secret) {
				t.Errorf("%s logs the secret %s", s.Server.Addr(), secret)
			}
		}
	}
	want, got := authLog(t, p.Etcd.Server, true), authLog(t, p.Subject.Server, false)
	// A call with an invalid token may ask for the identity more than once.
	want, got = slices.Compact(want), slices.Compact(got)
	if len(want) < 25 {
		t.Fatalf("etcd has logged %d lines only", len(want))
	}
	if !slices.Equal(want, got) {
		t.Errorf("etcd:\n%s\nhere:\n%s", strings.Join(want, "\n"), strings.Join(got, "\n"))
	}
}
