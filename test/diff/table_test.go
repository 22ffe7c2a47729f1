package diff

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	epb "go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// services are those of a stock etcd.
var services = []protoreflect.FullName{
	"etcdserverpb.KV", "etcdserverpb.Watch", "etcdserverpb.Lease", "etcdserverpb.Cluster",
	"etcdserverpb.Maintenance", "etcdserverpb.Auth",
	"v3lockpb.Lock", "v3electionpb.Election", "grpc.health.v1.Health",
}

// TestEveryMethod calls every method of every service once on both sides, and prints a table of the
// answers.
func TestEveryMethod(t *testing.T) {
	t.Parallel()
	p := NewPair(t)
	p.Do(grant(0x100, 600))
	p.Do(put("k", "v"))
	perm := &authpb.Permission{PermType: authpb.Permission_READWRITE, Key: []byte("k")}
	health := &grpc_health_v1.HealthCheckRequest{}
	table := []struct {
		method string
		req    proto.Message
		// responses is how many are waited for on a stream.
		responses int
		// token says that the call is made by root.
		token bool
		// shape leaves out of the comparison what is not the same by its nature: texts and sizes.
		shape bool
	}{
		{"etcdserverpb.KV/Range", get("k"), 0, false, false},
		{"etcdserverpb.KV/RangeStream", get("k"), 1, false, false},
		{"etcdserverpb.KV/Put", put("k", "w"), 0, false, false},
		{"etcdserverpb.KV/Txn",
			&pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: get("k")}}}}, 0, false, false},
		{"etcdserverpb.KV/DeleteRange", del("k", ""), 0, false, false},
		{"etcdserverpb.KV/Compact", &pb.CompactionRequest{Revision: 2}, 0, false, false},
		{"etcdserverpb.Watch/Watch",
			&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("k"), StartRevision: 3}}}, 2, false, false},
		{"etcdserverpb.Lease/LeaseGrant", grant(0x101, 600), 0, false, false},
		{"etcdserverpb.Lease/LeaseRevoke", revoke(0x101), 0, false, false},
		{"etcdserverpb.Lease/LeaseKeepAlive", &pb.LeaseKeepAliveRequest{ID: 0x100},
			1, false, false},
		{"etcdserverpb.Lease/LeaseTimeToLive", left(0x101), 0, false, false},
		{"etcdserverpb.Lease/LeaseLeases", &pb.LeaseLeasesRequest{}, 0, false, false},
		{"etcdserverpb.Cluster/MemberList", &pb.MemberListRequest{}, 0, false, false},
		{"etcdserverpb.Cluster/MemberAdd", &pb.MemberAddRequest{PeerURLs: []string{"bad"}},
			0, false, false},
		{"etcdserverpb.Cluster/MemberUpdate",
			&pb.MemberUpdateRequest{ID: 1, PeerURLs: []string{"http://127.0.0.1:1"}},
			0, false, false},
		{"etcdserverpb.Cluster/MemberPromote", &pb.MemberPromoteRequest{ID: 1}, 0, false, false},
		{"etcdserverpb.Cluster/MemberRemove", &pb.MemberRemoveRequest{ID: 1}, 0, false, false},
		{"etcdserverpb.Maintenance/Alarm", &pb.AlarmRequest{}, 0, false, false},
		{"etcdserverpb.Maintenance/Status", &pb.StatusRequest{}, 0, false, false},
		{"etcdserverpb.Maintenance/Defragment", &pb.DefragmentRequest{}, 0, false, false},
		{"etcdserverpb.Maintenance/Hash", &pb.HashRequest{}, 0, false, true},
		{"etcdserverpb.Maintenance/HashKV", &pb.HashKVRequest{}, 0, false, false},
		{"etcdserverpb.Maintenance/Snapshot", &pb.SnapshotRequest{}, 1, false, true},
		{"etcdserverpb.Maintenance/MoveLeader", &pb.MoveLeaderRequest{TargetID: 1},
			0, false, false},
		{"etcdserverpb.Maintenance/Downgrade", &pb.DowngradeRequest{Version: "3.6"},
			0, false, false},
		{"v3lockpb.Lock/Lock", lock("l", 0x100), 0, false, false},
		{"v3lockpb.Lock/Unlock", unlock("l/100"), 0, false, false},
		{"v3electionpb.Election/Campaign", campaign("e", "v", 0x100), 0, false, false},
		{"v3electionpb.Election/Leader", &epb.LeaderRequest{Name: []byte("e")}, 0, false, false},
		{"v3electionpb.Election/Observe", &epb.LeaderRequest{Name: []byte("e")}, 1, false, false},
		{"v3electionpb.Election/Proclaim",
			&epb.ProclaimRequest{Leader: &epb.LeaderKey{Name: []byte("e"), Key: []byte("e/100"),
				Rev: 1, Lease: 0x100}}, 0, false, false},
		{"v3electionpb.Election/Resign",
			&epb.ResignRequest{Leader: &epb.LeaderKey{Name: []byte("e"), Key: []byte("e/100"),
				Rev: 1, Lease: 0x100}}, 0, false, false},
		{"grpc.health.v1.Health/Check", health, 0, false, false},
		{"grpc.health.v1.Health/Check",
			&grpc_health_v1.HealthCheckRequest{Service: "etcdserverpb.KV"}, 0, false, false},
		{"grpc.health.v1.Health/List", &grpc_health_v1.HealthListRequest{}, 0, false, true},
		{"grpc.health.v1.Health/Watch", health, 1, false, false},
		{"etcdserverpb.Auth/AuthStatus", &pb.AuthStatusRequest{}, 0, false, false},
		{"etcdserverpb.Auth/AuthEnable", &pb.AuthEnableRequest{}, 0, false, false},
		{"etcdserverpb.Auth/UserAdd", &pb.AuthUserAddRequest{Name: "root", Password: "secret"},
			0, false, false},
		{"etcdserverpb.Auth/UserGet", &pb.AuthUserGetRequest{Name: "root"}, 0, false, false},
		{"etcdserverpb.Auth/UserList", &pb.AuthUserListRequest{}, 0, false, false},
		{"etcdserverpb.Auth/UserChangePassword",
			&pb.AuthUserChangePasswordRequest{Name: "root", Password: "other"}, 0, false, false},
		{"etcdserverpb.Auth/RoleAdd", &pb.AuthRoleAddRequest{Name: "root"}, 0, false, false},
		{"etcdserverpb.Auth/RoleAdd", &pb.AuthRoleAddRequest{Name: "r"}, 0, false, false},
		{"etcdserverpb.Auth/RoleGrantPermission",
			&pb.AuthRoleGrantPermissionRequest{Name: "r", Perm: perm}, 0, false, false},
		{"etcdserverpb.Auth/RoleGet", &pb.AuthRoleGetRequest{Role: "r"}, 0, false, false},
		{"etcdserverpb.Auth/RoleList", &pb.AuthRoleListRequest{}, 0, false, false},
		{"etcdserverpb.Auth/RoleRevokePermission",
			&pb.AuthRoleRevokePermissionRequest{Role: "r", Key: []byte("k")}, 0, false, false},
		{"etcdserverpb.Auth/RoleDelete", &pb.AuthRoleDeleteRequest{Role: "r"}, 0, false, false},
		{"etcdserverpb.Auth/UserGrantRole",
			&pb.AuthUserGrantRoleRequest{User: "root", Role: "root"}, 0, false, false},
		{"etcdserverpb.Auth/UserRevokeRole",
			&pb.AuthUserRevokeRoleRequest{Name: "root", Role: "none"}, 0, false, false},
		{"etcdserverpb.Auth/UserDelete", &pb.AuthUserDeleteRequest{Name: "none"}, 0, false, false},
		{"etcdserverpb.Auth/AuthEnable", &pb.AuthEnableRequest{}, 0, false, false},
		{"etcdserverpb.Auth/Authenticate",
			&pb.AuthenticateRequest{Name: "root", Password: "secret"}, 0, false, false},
		{"etcdserverpb.Auth/Authenticate", &pb.AuthenticateRequest{Name: "root", Password: "other"},
			0, false, true},
		{"etcdserverpb.KV/Range", get("k"), 0, false, false},
		{"etcdserverpb.KV/Range", get("k"), 0, true, false},
		{"v3lockpb.Lock/Lock", lock("l", 0x100), 0, false, false},
		{"v3lockpb.Lock/Lock", lock("l", 0x100), 0, true, false},
		{"v3electionpb.Election/Leader", &epb.LeaderRequest{Name: []byte("e")}, 0, false, false},
		{"v3electionpb.Election/Observe", &epb.LeaderRequest{Name: []byte("e")}, 1, false, false},
		{"etcdserverpb.Auth/AuthDisable", &pb.AuthDisableRequest{}, 0, true, false},
	}
	called := map[string]bool{}
	tokens := map[*Side]string{}
	for _, c := range table {
		called[c.method] = true
		var out [2][]Outcome
		for i, s := range []*Side{p.Etcd, p.Subject} {
			ctx := t.Context()
			if c.token {
				ctx = metadata.AppendToOutgoingContext(ctx, "token", tokens[s])
			}
			if c.responses > 0 {
				out[i] = converse(ctx, s.Conn, c.method, c.req, c.responses)
			} else {
				out[i] = []Outcome{invoke(ctx, s.Conn, Call{Method: c.method, Req: c.req})}
			}
			if r, ok := out[i][0].Resp.(*pb.AuthenticateResponse); ok {
				tokens[s] = r.Token
			}
		}
		p.Calls++
		call := Call{Method: c.method, Req: c.req}.String()
		if want, got := len(out[0]), len(out[1]); want != got {
			t.Errorf("%s: %d responses, etcd has %d: %v", call, got, want, out)
			continue
		}
		for i, want := range out[0] {
			if !c.shape || want.Status.Code() != codes.OK || out[1][i].Status.Code() != codes.OK {
				p.note(call, compare(want, p.Etcd.ids, out[1][i], p.Subject.ids))
			}
			t.Logf("%-90s | %s", call, text(out[1][i]))
		}
	}
	for _, name := range services {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
		if err != nil {
			t.Fatal(err)
		}
		methods := d.(protoreflect.ServiceDescriptor).Methods()
		for i := range methods.Len() {
			if m := fmt.Sprintf("%s/%s", name, methods.Get(i).Name()); !called[m] {
				t.Errorf("%s is not called", m)
			}
		}
	}
	p.Finish(t, &tally)
}

// text is an answer as the table shows it.
func text(o Outcome) string {
	if o.Resp == nil {
		return fmt.Sprintf("%v: %s", o.Status.Code(), o.Status.Message())
	}
	s := strings.Join(strings.Fields(prototext.MarshalOptions{}.Format(o.Resp)), " ")
	if len(s) > 160 {
		s = fmt.Sprintf("%s...(%d bytes)", s[:160], o.Bytes)
	}
	return "OK: " + s
}

// converse sends a request on a stream and returns the first responses, and how the stream ended if
// there are fewer.
func converse(ctx context.Context, conn *grpc.ClientConn, method string, req proto.Message,
	responses int) (out []Outcome) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	end := func(err error) []Outcome {
		if err == io.EOF {
			return append(out, Outcome{Status: status.New(codes.OK, "end of stream")})
		}
		return append(out, Outcome{Status: status.Convert(err)})
	}
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(strings.ReplaceAll(method, "/", ".")))
	if err != nil {
		return end(err)
	}
	many := d.(protoreflect.MethodDescriptor).IsStreamingClient()
	st, err := conn.NewStream(ctx,
		&grpc.StreamDesc{ClientStreams: many, ServerStreams: true}, "/"+method)
	if err != nil {
		return end(err)
	}
	if err := st.SendMsg(req); err != nil && err != io.EOF {
		return end(err)
	}
	if !many {
		if err := st.CloseSend(); err != nil {
			return end(err)
		}
	}
	for range responses {
		resp, err := newResponse(method)
		if err != nil {
			return end(err)
		}
		if err := st.RecvMsg(resp); err != nil {
			return end(err)
		}
		out = append(out, Outcome{Resp: resp, Bytes: proto.Size(resp),
			Status: status.New(codes.OK, "")})
	}
	return out
}

// TestGatewayAuth calls the paths of users and roles, and others with a token and without.
func TestGatewayAuth(t *testing.T) {
	t.Parallel()
	p := NewPair(t)
	k := b64("k")
	all := func(list ...Request) {
		for _, r := range list {
			show(t, r, p.HTTP(r))
		}
	}
	all(post("/v3/auth/status", `{}`), post("/v3/auth/enable", `{}`),
		post("/v3/auth/user/add", `{"name":"root","password":"secret"}`),
		post("/v3/auth/user/add", `{"name":""}`),
		post("/v3/auth/user/add", `{"name":"alice","password":"a"}`),
		post("/v3/auth/user/add", `{"name":"alice","password":"a"}`),
		post("/v3/auth/user/get", `{"name":"alice"}`),
		post("/v3/auth/user/get", `{"name":"nobody"}`), post("/v3/auth/user/list", `{}`),
		post("/v3/auth/user/changepw", `{"name":"alice","password":"b"}`),
		post("/v3/auth/role/add", `{"name":"root"}`), post("/v3/auth/role/add", `{"name":"r"}`),
		post("/v3/auth/role/grant", `{"name":"r","perm":{"permType":"READ","key":"`+k+`"}}`),
		post("/v3/auth/role/get", `{"role":"r"}`), post("/v3/auth/role/list", `{}`),
		post("/v3/auth/user/grant", `{"user":"alice","role":"r"}`),
		post("/v3/auth/user/grant", `{"user":"root","role":"root"}`), post("/v3/auth/enable", `{}`),
		post("/v3/kv/range", `{"key":"`+k+`"}`),
		post("/v3/auth/authenticate", `{"name":"root","password":"wrong"}`),
		post("/v3/auth/authenticate", `{"name":"nobody","password":"x"}`),
		post("/v3/kv/range", `{"key":"`+k+`"}`, "Authorization", "nonsense"),
		Request{Path: "/v3/watch", Body: `{"create_request":{"key":"` + k + `"}}`, Lines: 1},
		post("/v3/maintenance/status", `{}`), post("/v3/cluster/member/list", `{}`),
		post("/v3/lease/leases", `{}`))
	// What has a token has another one on each side.
	tokens := func(user, password string) map[*Side]string {
		out := map[*Side]string{}
		for _, s := range []*Side{p.Etcd, p.Subject} {
			a, err := s.Ask(t.Context(), s.Server.Addr(),
				post("/v3/auth/authenticate",
					fmt.Sprintf(`{"name":%q,"password":%q}`, user, password)))
			var m struct{ Token string }
			if err == nil {
				err = json.Unmarshal([]byte(a.Body), &m)
			}
			if err != nil || m.Token == "" {
				t.Fatalf("%s: %v, %v", s.Server.Addr(), a, err)
			}
			out[s] = m.Token
		}
		return out
	}
	with := func(tokens map[*Side]string, list ...Request) {
		for _, r := range list {
			var a [2]Answer
			for i, s := range []*Side{p.Etcd, p.Subject} {
				r := r
				r.Header = []string{"Authorization", tokens[s]}
				var err error
				if a[i], err = s.Ask(t.Context(), s.Server.Addr(), r); err != nil {
					t.Fatal(err)
				}
			}
			p.Calls++
			p.note("HTTP (token) "+r.String(), a[0].compare(a[1]))
			show(t, r, a[1])
		}
	}
	alice, root := tokens("alice", "b"), tokens("root", "secret")
	with(alice, post("/v3/kv/range", `{"key":"`+k+`"}`), post("/v3/kv/put", `{"key":"`+k+`"}`),
		post("/v3/kv/range", `{"key":"AA==","range_end":"AA=="}`),
		Request{Path: "/v3/watch", Body: `{"create_request":{"key":"` + k + `"}}`, Lines: 1},
		Request{Path: "/v3/watch", Body: `{"create_request":{"key":"` + k +
			`","range_end":"AA=="}}`, Lines: 1},
		post("/v3/lock/lock", `{"name":"`+k+`"}`), post("/v3/election/leader", `{"name":"`+k+`"}`),
		post("/v3/auth/user/list", `{}`), post("/v3/auth/disable", `{}`),
		post("/v3/maintenance/defragment", `{}`), post("/v3/maintenance/status", `{}`),
		post("/v3/maintenance/downgrade", `{"version":"3.6"}`))
	with(root, post("/v3/kv/put", `{"key":"`+k+`"}`),
		post("/v3/auth/user/revoke", `{"name":"alice","role":"r"}`),
		post("/v3/auth/role/revoke", `{"role":"r","key":"`+k+`"}`),
		post("/v3/auth/role/delete", `{"role":"r"}`),
		post("/v3/auth/user/delete", `{"name":"alice"}`), post("/v3/auth/user/list", `{}`),
		post("/v3/auth/status", `{}`),
		post("/v3/auth/disable", `{}`))
	all(post("/v3/auth/status", `{}`), post("/v3/auth/disable", `{}`))
	p.Finish(t, &tally)
}
