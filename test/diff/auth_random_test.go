package diff

import (
	"encoding/base64"
	"math/rand/v2"
	"testing"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/crypto/bcrypt"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// TestAuthManagementRandom creates, changes and deletes users and roles at random, with auth
// enabled and disabled in turn, by users whose rights and passwords change. VIGIL_DIFF_SEED repeats
// a run.
func TestAuthManagementRandom(t *testing.T) {
	t.Parallel()
	s := seed(t)
	t.Logf("seed %d", s)
	rnd := rand.New(rand.NewPCG(s, 7))
	p := NewPair(t, "--bcrypt-cost", "4")
	one := func(list ...string) string { return list[rnd.IntN(len(list))] }
	user := func() string { return one("root", "root", "u", "v", "w", "") }
	role := func() string { return one("root", "r", "s", "q", "") }
	password := func() string { return one("x", "y", "") }
	hash, err := bcrypt.GenerateFromPassword([]byte("x"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	hashed := func() string {
		return one("", "", "", base64.StdEncoding.EncodeToString(hash),
			base64.StdEncoding.EncodeToString([]byte("no hash")), "no base64!")
	}
	options := func() *authpb.UserAddOptions {
		if rnd.IntN(2) == 0 {
			return nil
		}
		return &authpb.UserAddOptions{NoPassword: rnd.IntN(2) == 0}
	}
	perm := func() *authpb.Permission {
		if rnd.IntN(8) == 0 {
			return nil
		}
		return permission(authpb.Permission_Type(rnd.IntN(4)), one("", "\x00", "a", "b", "c"),
			one("", "\x00", "a", "b", "c", "\x00\x00"))
	}
	request := func() proto.Message {
		switch rnd.IntN(20) {
		case 0, 1:
			name := user()
			if name == "root" {
				// With another password, or none, logins as root would fail once auth is enabled,
				// and the rest would be rejected.
				return &pb.AuthUserAddRequest{Name: name, Password: "x"}
			}
			return &pb.AuthUserAddRequest{Name: name, Password: password(),
				HashedPassword: hashed(), Options: options()}
		case 2:
			return &pb.AuthUserDeleteRequest{Name: user()}
		case 3:
			// Not root's: then no user could log in as root.
			return &pb.AuthUserChangePasswordRequest{Name: one("u", "v", "w", ""),
				Password: password(), HashedPassword: hashed()}
		case 4, 5:
			return &pb.AuthUserGrantRoleRequest{User: user(), Role: role()}
		case 6:
			return &pb.AuthUserRevokeRoleRequest{Name: user(), Role: role()}
		case 7:
			return &pb.AuthRoleAddRequest{Name: role()}
		case 8:
			return &pb.AuthRoleDeleteRequest{Role: role()}
		case 9, 10:
			return &pb.AuthRoleGrantPermissionRequest{Name: role(), Perm: perm()}
		case 11:
			return &pb.AuthRoleRevokePermissionRequest{Role: role(),
				Key:      []byte(one("", "\x00", "a", "b", "c")),
				RangeEnd: []byte(one("", "\x00", "b", "c"))}
		case 12:
			return &pb.AuthUserGetRequest{Name: user()}
		case 13:
			return &pb.AuthRoleGetRequest{Role: role()}
		case 14:
			return &pb.AuthUserListRequest{}
		case 15:
			return &pb.AuthRoleListRequest{}
		case 16:
			return &pb.AuthEnableRequest{}
		case 17:
			return put(one("a", "b"), "v")
		case 18:
			return scan(one("a", "b"), one("", "c", "\x00"))
		}
		return &pb.AuthStatusRequest{}
	}
	seen := map[codes.Code]int{}
	for i := range 1500 {
		switch by := one("root", "root", "root", "u", "v", "w", ""); {
		case rnd.IntN(12) == 0:
			p.Login(user(), password())
		case rnd.IntN(40) == 0:
			p.DoAs(by, &pb.AuthDisableRequest{})
		default:
			seen[p.DoAs(by, request()).Status.Code()]++
		}
		if i%100 > 0 {
			continue
		}
		// Begin again with auth enabled and tokens for all.
		p.DoAs("root", &pb.AuthDisableRequest{})
		p.Do(&pb.AuthRoleAddRequest{Name: "root"})
		for _, u := range []string{"root", "u", "v", "w"} {
			p.Do(&pb.AuthUserAddRequest{Name: u, Password: "x"})
			p.Do(&pb.AuthUserChangePasswordRequest{Name: u, Password: "x"})
		}
		p.Do(&pb.AuthUserGrantRoleRequest{User: "root", Role: "root"})
		p.Do(&pb.AuthUserListRequest{})
		p.Do(&pb.AuthRoleListRequest{})
		p.Do(&pb.AuthEnableRequest{})
		for _, u := range []string{"root", "u", "v", "w"} {
			p.Login(u, "x")
		}
	}
	// Neither must auth have been disabled all the time, nor everything have been rejected.
	if seen[codes.OK] < 100 || seen[codes.PermissionDenied] < 20 {
		t.Errorf("codes: %v", seen)
	}
	p.Finish(t, &tally)
}
