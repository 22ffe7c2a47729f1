package diff

import (
	"math/rand/v2"
	"testing"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

func permission(typ authpb.Permission_Type, key, end string) *authpb.Permission {
	return &authpb.Permission{PermType: typ, Key: []byte(key), RangeEnd: []byte(end)}
}

// TestAuthScript compares how users and roles are managed, with everything that can be wrong about
// it, with auth disabled and enabled.
func TestAuthScript(t *testing.T) {
	t.Parallel()
	p := NewPair(t, "--bcrypt-cost", "4")
	everything := func(user string) {
		do := func(r proto.Message) { p.DoAs(user, r) }
		do(&pb.AuthStatusRequest{})
		do(&pb.AuthUserListRequest{})
		do(&pb.AuthRoleListRequest{})
		for _, name := range []string{"", "root", "alice", "cert", "nobody"} {
			do(&pb.AuthUserGetRequest{Name: name})
		}
		for _, name := range []string{"", "root", "r", "nothing"} {
			do(&pb.AuthRoleGetRequest{Role: name})
		}
	}
	everything("")
	for _, r := range []proto.Message{
		&pb.AuthEnableRequest{}, &pb.AuthDisableRequest{},
		&pb.AuthenticateRequest{Name: "root", Password: "x"},
		&pb.AuthUserAddRequest{}, &pb.AuthUserAddRequest{Name: "root", Password: "root"},
		&pb.AuthUserAddRequest{Name: "root", Password: "again"},
		&pb.AuthEnableRequest{},
		&pb.AuthUserAddRequest{Name: "alice", Password: "alice"},
		&pb.AuthUserAddRequest{Name: "long", Password: string(make([]byte, 73))},
		&pb.AuthUserAddRequest{Name: "cert", Options: &authpb.UserAddOptions{NoPassword: true},
			Password: "dropped"},
		&pb.AuthUserAddRequest{Name: "empty"},
		&pb.AuthUserChangePasswordRequest{Name: "nobody", Password: "x"},
		&pb.AuthUserChangePasswordRequest{Name: "alice", Password: "alice2"},
		&pb.AuthUserChangePasswordRequest{Name: "alice", HashedPassword: "no base64"},
		&pb.AuthUserChangePasswordRequest{Name: "cert", Password: "x"},
		&pb.AuthUserChangePasswordRequest{Name: "empty"},
		&pb.AuthRoleAddRequest{}, &pb.AuthRoleAddRequest{Name: "r"},
		&pb.AuthRoleAddRequest{Name: "r"},
		&pb.AuthUserGrantRoleRequest{User: "alice", Role: "r"},
		&pb.AuthUserGrantRoleRequest{User: "alice", Role: "r"},
		&pb.AuthUserGrantRoleRequest{User: "alice", Role: "nothing"},
		&pb.AuthUserGrantRoleRequest{User: "nobody", Role: "nothing"},
		&pb.AuthUserGrantRoleRequest{User: "root", Role: "root"},
		&pb.AuthUserRevokeRoleRequest{Name: "alice", Role: "nothing"},
		&pb.AuthUserRevokeRoleRequest{Name: "nobody", Role: "r"},
		&pb.AuthRoleGrantPermissionRequest{Name: "r"},
		&pb.AuthRoleGrantPermissionRequest{Name: "nothing", Perm: permission(0, "a", "")},
		&pb.AuthRoleGrantPermissionRequest{Name: "r", Perm: permission(0, "", "")},
		&pb.AuthRoleGrantPermissionRequest{Name: "r", Perm: permission(0, "b", "a")},
		&pb.AuthRoleGrantPermissionRequest{Name: "r", Perm: permission(0, "a", "c")},
		&pb.AuthRoleGrantPermissionRequest{Name: "r", Perm: permission(2, "a", "b")},
		&pb.AuthRoleGrantPermissionRequest{Name: "r", Perm: permission(1, "a", "b")},
		&pb.AuthRoleGrantPermissionRequest{Name: "r", Perm: permission(1, "a", "c")},
		&pb.AuthRoleGrantPermissionRequest{Name: "r", Perm: permission(0, "x", "\x00")},
		&pb.AuthRoleRevokePermissionRequest{Role: "nothing", Key: []byte("a")},
		&pb.AuthRoleRevokePermissionRequest{Role: "r", Key: []byte("a")},
		&pb.AuthRoleRevokePermissionRequest{Role: "r", Key: []byte("x"), RangeEnd: []byte{0}},
		&pb.AuthEnableRequest{}, &pb.AuthEnableRequest{},
	} {
		p.Do(r)
		everything("")
	}
	for _, u := range [][2]string{{"root", "root"}, {"alice", "alice"}, {"alice", "alice2"},
		{"cert", ""}, {"cert", "x"}, {"empty", ""}, {"", ""}, {"nobody", "x"}} {
		p.Login(u[0], u[1])
	}
	everything("root")
	everything("alice")
	bad := NewCall(get("a"))
	for _, token := range []string{"", "x", "x.y", "x.1", "abcdefghabcdefgh.1", "a.b.c"} {
		bad.Metadata = []string{"token", token}
		p.Call(bad)
		bad.Metadata = []string{"authorization", "Bearer " + token}
		p.Call(bad)
	}
	for _, r := range []proto.Message{
		&pb.AuthUserDeleteRequest{Name: "root"}, &pb.AuthRoleDeleteRequest{Role: "root"},
		&pb.AuthUserRevokeRoleRequest{Name: "root", Role: "root"},
		&pb.AuthUserAddRequest{Name: "", Password: "x"}, &pb.AuthRoleDeleteRequest{Role: "nothing"},
		&pb.AuthRoleAddRequest{Name: "root"},
		&pb.AuthRoleGrantPermissionRequest{Name: "root", Perm: permission(0, "a", "")},
	} {
		p.DoAs("alice", r)
		p.DoAs("root", r)
		everything("root")
	}
	// A token goes with the password that it was given for, and with its user.
	p.DoAs("alice", get("a"))
	p.DoAs("root", &pb.AuthUserChangePasswordRequest{Name: "alice", Password: "alice3"})
	p.DoAs("alice", get("a"))
	p.Login("alice", "alice3")
	p.DoAs("alice", get("a"))
	p.DoAs("root", &pb.AuthUserDeleteRequest{Name: "alice"})
	p.DoAs("alice", get("a"))
	p.DoAs("root", &pb.AuthUserAddRequest{Name: "alice", Password: "alice3"})
	p.DoAs("alice", get("a"))
	p.DoAs("root", &pb.AuthRoleDeleteRequest{Role: "r"})
	everything("root")
	// Tokens do not outlive the process; users do.
	p.Restart()
	p.DoAs("root", get("a"))
	p.Do(&pb.AuthStatusRequest{})
	p.Login("root", "root")
	everything("root")
	p.DoAs("root", &pb.AuthDisableRequest{})
	everything("")
	p.DoAs("root", get("a"))
	p.DoAs("root", &pb.AuthEnableRequest{})
	p.DoAs("root", get("a"))
	p.Finish(t, &tally)
}

// TestAuthRandom lets users whose rights change all the time do random things. VIGIL_DIFF_SEED
// repeats a run.
func TestAuthRandom(t *testing.T) {
	t.Parallel()
	s := seed(t)
	t.Logf("seed %d", s)
	rnd := rand.New(rand.NewPCG(s, 5))
	p := NewPair(t, "--bcrypt-cost", "4")
	users, roles, keys := []string{"u", "v"}, []string{"r", "s"}, []string{"a", "b", "c", "\x00"}
	pick := func(list []string) string { return list[rnd.IntN(len(list))] }
	// after every key
	end := func() string { return []string{"", "", "d", "e", "\x00"}[rnd.IntN(5)] }
	p.Do(&pb.AuthUserAddRequest{Name: "root", Password: "root"})
	p.Do(&pb.AuthUserGrantRoleRequest{User: "root", Role: "root"})
	for i, u := range users {
		p.Do(&pb.AuthUserAddRequest{Name: u, Password: u})
		p.Do(&pb.AuthRoleAddRequest{Name: roles[i]})
	}
	p.Do(grant(7, 600))
	p.Do(&pb.AuthEnableRequest{})
	for _, u := range append(users, "root") {
		p.Login(u, u)
	}
	admin := func() proto.Message {
		typ := authpb.Permission_Type(rnd.IntN(3))
		switch rnd.IntN(6) {
		case 0, 1:
			return &pb.AuthRoleGrantPermissionRequest{Name: pick(roles),
				Perm: permission(typ, pick(keys), end())}
		case 2:
			return &pb.AuthRoleRevokePermissionRequest{Role: pick(roles), Key: []byte(pick(keys)),
				RangeEnd: []byte(end())}
		case 3, 4:
			return &pb.AuthUserGrantRoleRequest{User: pick(users), Role: pick(roles)}
		default:
			return &pb.AuthUserRevokeRoleRequest{Name: pick(users), Role: pick(roles)}
		}
	}
	var op func(depth int) *pb.RequestOp
	txn := func(depth int) *pb.TxnRequest {
		r := &pb.TxnRequest{}
		for range rnd.IntN(2) {
			r.Compare = append(r.Compare,
				&pb.Compare{Key: []byte(pick(keys)), RangeEnd: []byte(end()),
					Target: pb.Compare_VERSION, Result: pb.Compare_GREATER})
		}
		for range rnd.IntN(3) {
			r.Success = append(r.Success, op(depth-1))
			r.Failure = append(r.Failure, op(depth-1))
		}
		return r
	}
	thePut := func() *pb.PutRequest {
		return with(put(pick(keys), "v"),
			func(r *pb.PutRequest) { r.Lease, r.PrevKv = 7*int64(rnd.IntN(2)), rnd.IntN(2) == 0 })
	}
	theDelete := func() *pb.DeleteRangeRequest {
		return with(del(pick(keys), end()),
			func(r *pb.DeleteRangeRequest) { r.PrevKv = rnd.IntN(2) == 0 })
	}
	op = func(depth int) *pb.RequestOp {
		switch n := rnd.IntN(4); {
		case n == 0:
			return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: thePut()}}
		case n == 1:
			return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: theDelete()}}
		case n == 2 && depth > 0:
			return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: txn(depth)}}
		}
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: scan(pick(keys),
			end())}}
	}
	for i := range 1500 {
		if i%100 == 0 {
			// etcd sorts the permissions of a role with an algorithm that keeps the order of equal
			// keys up to twelve only, and which of equals comes first has an effect; here it is the
			// oldest.
			for _, r := range roles {
				p.DoAs("root", &pb.AuthRoleDeleteRequest{Role: r})
				p.DoAs("root", &pb.AuthRoleAddRequest{Name: r})
			}
		}
		if i%10 == 0 {
			p.DoAs("root", admin())
			p.DoAs("root", &pb.AuthRoleGetRequest{Role: pick(roles)})
		}
		var r proto.Message
		switch rnd.IntN(7) {
		case 0:
			r = thePut()
		case 1:
			r = theDelete()
		case 2:
			r = txn(3)
		case 3:
			r = left(7)
		case 4:
			r = &pb.LeaseLeasesRequest{}
		default:
			r = scan(pick(keys), end())
		}
		p.DoAs(pick([]string{"u", "v", "u", "v", "root", ""}), r)
	}
	p.Finish(t, &tally)
}
