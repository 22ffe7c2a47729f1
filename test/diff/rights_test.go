package diff

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/protobuf/proto"
)

// TestInvertedRanges compares what a user may do with ranges, the inverted and the empty ones among
// them, under random permissions. A range that is not inverted is decided alike. An inverted one
// has no keys: here it is allowed if its first key is, while etcd, which looks for it in a tree
// that is ordered for other ranges, denies some of these, by the shape of the tree. It never allows
// one that is denied here.
func TestInvertedRanges(t *testing.T) {
	t.Parallel()
	s := seed(t)
	t.Logf("seed %d", s)
	rnd := rand.New(rand.NewPCG(s, 7))
	p := NewPair(t, "--bcrypt-cost", "4")
	keys := []string{"a", "b", "c", "d", "e", "f", "g"}
	for _, r := range []proto.Message{
		&pb.AuthUserAddRequest{Name: "root", Password: "root"},
		&pb.AuthUserGrantRoleRequest{User: "root", Role: "root"},
		&pb.AuthUserAddRequest{Name: "u", Password: "u"}, &pb.AuthEnableRequest{},
	} {
		p.Do(r)
	}
	p.Login("root", "root")
	for _, k := range keys {
		p.DoAs("root", &pb.PutRequest{Key: []byte(k), Value: []byte("v")})
	}
	denied := rpctypes.ErrorDesc(rpctypes.ErrGRPCPermissionDenied)
	inverted, stricter := 0, 0
	for range 12 {
		p.DoAs("root", &pb.AuthRoleDeleteRequest{Role: "r"})
		p.DoAs("root", &pb.AuthRoleAddRequest{Name: "r"})
		p.DoAs("root", &pb.AuthUserGrantRoleRequest{User: "u", Role: "r"})
		for range 1 + rnd.IntN(5) {
			i := rnd.IntN(len(keys) - 1)
			end := keys[i+1+rnd.IntN(len(keys)-1-i)]
			if rnd.IntN(5) == 0 {
				end = []string{"", "\x00"}[rnd.IntN(2)]
			}
			p.DoAs("root", &pb.AuthRoleGrantPermissionRequest{Name: "r",
				Perm: permission(authpb.READWRITE, keys[i], end)})
		}
		p.Login("u", "u")
		for _, key := range keys {
			for _, end := range append(keys, "\x00") {
				isInverted := end != "\x00" && end <= key
				for _, r := range []proto.Message{
					&pb.RangeRequest{Key: []byte(key), RangeEnd: []byte(end)},
					&pb.TxnRequest{Compare: []*pb.Compare{{Key: []byte(key), RangeEnd: []byte(end),
						Target: pb.Compare_VERSION, TargetUnion: &pb.Compare_Version{Version: 1},
						Result: pb.Compare_EQUAL}}},
					&pb.DeleteRangeRequest{Key: []byte(key), RangeEnd: []byte(end), PrevKv: true},
				} {
					if _, deletes := r.(*pb.DeleteRangeRequest); deletes && !isInverted {
						continue
					}
					c := NewCall(r)
					c.User = "u"
					if !isInverted {
						p.Call(c)
						continue
					}
					inverted++
					want, got := invoke(t.Context(), p.Etcd.Conn, p.Etcd.as(c)),
						invoke(t.Context(), p.Subject.Conn, p.Subject.as(c))
					if want.Resp == nil && got.Resp != nil && want.Status.Message() == denied {
						stricter++
						continue
					}
					if fields := compare(want, p.Etcd.ids, got, p.Subject.ids); len(fields) > 0 {
						t.Errorf("%s: %v", c.String(), fields)
					}
				}
			}
		}
	}
	p.Finish(t, &tally)
	// Nothing was deleted.
	if o := p.DoAs("root",
		&pb.RangeRequest{Key: []byte("a"),
			RangeEnd: []byte("z")}); len(o.Resp.(*pb.RangeResponse).Kvs) != len(keys) {
		t.Errorf("of %d keys: %v", len(keys), o.Resp)
	}
	t.Logf("%d calls with inverted ranges, %d of which etcd alone denies", inverted, stricter)
}

// TestTokensOfAnOldRevision compares all calls with a signed token that was issued before the last
// change of users and roles.
func TestTokensOfAnOldRevision(t *testing.T) {
	t.Parallel()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, bytes.Repeat([]byte("k"), 64), 0o600); err != nil {
		t.Fatal(err)
	}
	p := NewPair(t, "--bcrypt-cost", "4", "--auth-token",
		"jwt,sign-method=HS256,priv-key="+key+",ttl=1h")
	for _, r := range []proto.Message{
		&pb.AuthUserAddRequest{Name: "root", Password: "root"},
		&pb.AuthUserGrantRoleRequest{User: "root", Role: "root"},
		&pb.AuthUserAddRequest{Name: "u", Password: "u"}, &pb.AuthRoleAddRequest{Name: "r"},
		&pb.AuthRoleGrantPermissionRequest{Name: "r", Perm: permission(authpb.READWRITE, "a", "c")},
		&pb.AuthUserGrantRoleRequest{User: "u", Role: "r"},
		&pb.AuthEnableRequest{},
	} {
		p.Do(r)
	}
	p.Login("root", "root")
	p.DoAs("root", &pb.LeaseGrantRequest{ID: 7, TTL: 1000})
	p.DoAs("root", &pb.LeaseGrantRequest{ID: 8, TTL: 1000})
	p.DoAs("root", &pb.PutRequest{Key: []byte("a"), Lease: 8})
	p.Login("u", "u")
	for i := range 2 {
		for _, user := range []string{"u", "root", ""} {
			for _, r := range []proto.Message{
				&pb.TxnRequest{},
				&pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("a"), Serializable: true}}}}},
				&pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{}}}}},
				&pb.TxnRequest{Success: []*pb.RequestOp{{}}},
				&pb.RangeRequest{Key: []byte("a")},
				&pb.RangeRequest{Key: []byte("a"), Serializable: true},
				&pb.PutRequest{Key: []byte("a"), Lease: 8},
				&pb.DeleteRangeRequest{Key: []byte("b")},
				&pb.LeaseGrantRequest{ID: int64(100 + i), TTL: 1000},
				&pb.LeaseRevokeRequest{ID: int64(100 + i)},
				&pb.LeaseTimeToLiveRequest{ID: 1}, &pb.LeaseLeasesRequest{},
				&pb.AuthStatusRequest{}, &pb.AuthUserGetRequest{Name: "u"},
				&pb.AuthRoleGetRequest{Role: "r"}, &pb.AuthUserListRequest{},
				&pb.MemberListRequest{Linearizable: true}, &pb.MemberListRequest{},
				&pb.AlarmRequest{},
				&pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, Alarm: pb.AlarmType_NOSPACE},
				&pb.CompactionRequest{Revision: 99}, &pb.MemberRemoveRequest{ID: 1},
				&pb.MoveLeaderRequest{TargetID: 1}, &pb.DefragmentRequest{},
			} {
				p.DoAs(user, r)
			}
		}
		if i == 0 {
			// With another token: those of the users stay those of before.
			kept := [2]map[string]string{p.Etcd.tokens, p.Subject.tokens}
			p.Etcd.tokens, p.Subject.tokens = nil, nil
			p.Login("root", "root")
			p.DoAs("root", &pb.AuthRoleAddRequest{Name: "another"})
			p.Etcd.tokens, p.Subject.tokens = kept[0], kept[1]
		}
	}
	p.Finish(t, &tally)
}
