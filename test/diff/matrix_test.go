package diff

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	_ "go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	_ "go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
)

// asks are the callers: no user, a user without a role, one who may read and write the keys from
// a to b, one who may read and write all keys, and one with the role root.
var asks = []string{"", "none", "part", "full", "root"}

// The letters of a row say what comes of a call by each of them.
var verdicts = map[byte]string{
	'e': "etcdserver: user name is empty",
	'd': "etcdserver: permission denied",
	'x': "EOF", // the stream ends, as those of elections do for whatever reason
	'k': "",    // whatever it is, it is not auth that refuses
}

// row is a method, a request in the text form, and what comes of it.
type row struct{ method, request, want string }

// matrix has at least one row for each method of each service that is served. Lease 7 is attached
// to z, 8 to nothing.
var matrix = []row{
	{"etcdserverpb.KV/Range", `key:"a" range_end:"b"`, "edkkk"},
	{"etcdserverpb.KV/Range", `key:"a" range_end:"b" serializable:true`, "edkkk"},
	{"etcdserverpb.KV/Range", `key:"a" range_end:"c"`, "eddkk"},
	{"etcdserverpb.KV/Range", `key:"a" range_end:"\x00"`, "eddkk"},
	{"etcdserverpb.KV/Range", `key:"z" count_only:true serializable:true`, "eddkk"},
	{"etcdserverpb.KV/Range", ``, "kkkkk"}, // an empty key goes first
	{"etcdserverpb.KV/RangeStream", `key:"a" range_end:"b"`, "edkkk"},
	{"etcdserverpb.KV/RangeStream", `key:"a" range_end:"\x00"`, "eddkk"},
	{"etcdserverpb.KV/Put", `key:"a1"`, "edkkk"},
	{"etcdserverpb.KV/Put", `key:"a1" prev_kv:true`, "edkkk"},
	{"etcdserverpb.KV/Put", `key:"a1" lease:8`, "edkkk"},
	{"etcdserverpb.KV/Put", `key:"a1" lease:7`, "eddkk"},
	{"etcdserverpb.KV/Put", `key:"a1" lease:9`, "edkkk"}, // no such lease
	{"etcdserverpb.KV/Put", `key:"z1"`, "eddkk"},
	{"etcdserverpb.KV/DeleteRange", `key:"a1"`, "edkkk"},
	{"etcdserverpb.KV/DeleteRange", `key:"y"`, "eddkk"},
	{"etcdserverpb.KV/DeleteRange", `key:"a" range_end:"\x00" prev_kv:true`, "eddkk"},
	{"etcdserverpb.KV/Txn", `success:{request_put:{key:"a1"}}`, "edkkk"},
	{"etcdserverpb.KV/Txn", `success:{request_range:{key:"a1"}}`, "edkkk"},
	{"etcdserverpb.KV/Txn", `success:{request_range:{key:"z"}}`, "eddkk"},
	{"etcdserverpb.KV/Txn",
		`compare:{key:"z" target:VERSION} success:{request_put:{key:"a1"}}`, "eddkk"},
	{"etcdserverpb.KV/Txn",
		`success:{request_put:{key:"a1"}} failure:{request_put:{key:"z1"}}`, "eddkk"},
	{"etcdserverpb.KV/Txn", `success:{request_put:{key:"a1" lease:7}}`, "eddkk"},
	{"etcdserverpb.KV/Txn", `success:{request_delete_range:{key:"a1" range_end:"\x00"}}`, "eddkk"},
	{"etcdserverpb.KV/Txn",
		`success:{request_txn:{success:{request_txn:{failure:{request_put:{key:"z1"}}}}}}`,
		"eddkk"},
	{"etcdserverpb.KV/Txn",
		`success:{request_txn:{compare:{key:"a" range_end:"\x00" target:MOD}}}`, "eddkk"},
	{"etcdserverpb.KV/Txn",
		`success:{request_txn:{success:{request_put:{key:"a1" prev_kv:true}}}}`, "edkkk"},
	{"etcdserverpb.KV/Compact", `revision:1`, "edddk"},

	{"etcdserverpb.Watch/Watch", `create_request:{key:"a" range_end:"b"}`, "edkkk"},
	{"etcdserverpb.Watch/Watch", `create_request:{key:"a" range_end:"\x00"}`, "eddkk"},
	{"etcdserverpb.Watch/Watch", `create_request:{key:"z" prev_kv:true}`, "eddkk"},
	{"etcdserverpb.Watch/Watch", `create_request:{}`, "eddkk"},
	{"etcdserverpb.Watch/Watch", `create_request:{key:"z" start_revision:-1}`, "kkkkk"},

	{"etcdserverpb.Lease/LeaseGrant", `TTL:60`, "ekkkk"},
	{"etcdserverpb.Lease/LeaseRevoke", `ID:7`, "eddkk"},
	{"etcdserverpb.Lease/LeaseRevoke", `ID:8`, "ekkkk"},
	{"etcdserverpb.Lease/LeaseRevoke", `ID:9`, "ekkkk"},
	{"etcdserverpb.Lease/LeaseKeepAlive", `ID:7`, "eddkk"},
	{"etcdserverpb.Lease/LeaseKeepAlive", `ID:8`, "ekkkk"},
	{"etcdserverpb.Lease/LeaseTimeToLive", `ID:7`, "ekkkk"},
	{"etcdserverpb.Lease/LeaseTimeToLive", `ID:7 keys:true`, "eddkk"},
	{"etcdserverpb.Lease/LeaseTimeToLive", `ID:8 keys:true`, "ekkkk"},
	{"etcdserverpb.Lease/LeaseLeases", ``, "eddkk"},

	{"etcdserverpb.Cluster/MemberAdd", ``, "kkkkk"}, // no URLs at all goes first
	{"etcdserverpb.Cluster/MemberAdd", `peerURLs:"http://127.0.0.1:1" isLearner:true`, "edddk"},
	{"etcdserverpb.Cluster/MemberRemove", `ID:1`, "edddk"},
	{"etcdserverpb.Cluster/MemberUpdate", `ID:1 peerURLs:"http://127.0.0.1:1"`, "edddk"},
	{"etcdserverpb.Cluster/MemberList", ``, "ekkkk"},
	{"etcdserverpb.Cluster/MemberPromote", `ID:1`, "edddk"},

	{"etcdserverpb.Maintenance/Alarm", ``, "ekkkk"},
	{"etcdserverpb.Maintenance/Alarm", `action:DEACTIVATE`, "edddk"},
	{"etcdserverpb.Maintenance/Alarm", `action:ACTIVATE`, "edddk"},
	{"etcdserverpb.Maintenance/Status", ``, "ekkkk"},
	{"etcdserverpb.Maintenance/Defragment", ``, "edddk"},
	{"etcdserverpb.Maintenance/Hash", ``, "edddk"},
	{"etcdserverpb.Maintenance/HashKV", ``, "edddk"},
	{"etcdserverpb.Maintenance/Snapshot", ``, "edddk"},
	{"etcdserverpb.Maintenance/MoveLeader", `targetID:1`, "edddk"},
	{"etcdserverpb.Maintenance/Downgrade", `version:"3.5.0"`, "edddk"},

	{"etcdserverpb.Auth/AuthEnable", ``, "edddk"},
	{"etcdserverpb.Auth/AuthStatus", ``, "kkkkk"},
	{"etcdserverpb.Auth/Authenticate", `name:"part" password:"part"`, "kkkkk"},
	{"etcdserverpb.Auth/Authenticate", `name:"part" password:"wrong"`, "kkkkk"},
	{"etcdserverpb.Auth/UserAdd", `name:"part" options:{no_password:true}`, "edddk"},
	{"etcdserverpb.Auth/UserAdd", `name:"part" password:"x"`, "edddk"},
	{"etcdserverpb.Auth/UserGet", `name:"part"`, "edkdk"},
	{"etcdserverpb.Auth/UserGet", `name:"nobody"`, "edddk"},
	{"etcdserverpb.Auth/UserList", ``, "edddk"},
	{"etcdserverpb.Auth/UserDelete", `name:"nobody"`, "edddk"},
	{"etcdserverpb.Auth/UserDelete", `name:"root"`, "edddk"},
	{"etcdserverpb.Auth/UserChangePassword", `name:"nobody" password:"x"`, "edddk"},
	{"etcdserverpb.Auth/UserGrantRole", `user:"part" role:"root2"`, "edddk"},
	{"etcdserverpb.Auth/UserRevokeRole", `name:"root" role:"root"`, "edddk"},
	{"etcdserverpb.Auth/RoleAdd", `name:"part"`, "edddk"},
	{"etcdserverpb.Auth/RoleGet", `role:"part"`, "edkdk"},
	{"etcdserverpb.Auth/RoleGet", `role:"root"`, "edddk"},
	{"etcdserverpb.Auth/RoleList", ``, "edddk"},
	{"etcdserverpb.Auth/RoleDelete", `role:"nothing"`, "edddk"},
	{"etcdserverpb.Auth/RoleGrantPermission", `name:"part"`, "edddk"}, // without a permission
	{"etcdserverpb.Auth/RoleGrantPermission", `name:"part" perm:{key:"b" range_end:"a"}`, "edddk"},
	{"etcdserverpb.Auth/RoleRevokePermission", `role:"part" key:"x"`, "edddk"},

	{"v3lockpb.Lock/Lock", `name:"z" lease:7`, "eddkk"},
	{"v3lockpb.Lock/Lock", `name:"a" lease:7`, "eddkk"},
	{"v3lockpb.Lock/Lock", `name:"ab" lease:8`, "edkkk"},
	{"v3lockpb.Lock/Unlock", `key:"z1"`, "eddkk"},
	{"v3electionpb.Election/Campaign", `name:"z" lease:7`, "eddkk"},
	{"v3electionpb.Election/Proclaim", `leader:{name:"z" key:"z/9" rev:1 lease:7}`, "eddkk"},
	{"v3electionpb.Election/Leader", `name:"z"`, "eddkk"},
	{"v3electionpb.Election/Observe", `name:"z"`, "xxxkk"},
	{"v3electionpb.Election/Resign", `leader:{name:"z" key:"z/9" rev:1 lease:7}`, "eddkk"},

	{"grpc.health.v1.Health/Check", ``, "kkkkk"},
	{"grpc.health.v1.Health/List", ``, "kkkkk"},
	{"grpc.health.v1.Health/Watch", ``, "kkkkk"},

	// The last one, since it changes everything.
	{"etcdserverpb.Auth/AuthDisable", ``, "edddk"},
}

// secure sets up users on both sides, enables auth and logs everyone in.
func secure(p *Pair) {
	perm := func(key, end string) *pb.AuthRoleGrantPermissionRequest {
		return &pb.AuthRoleGrantPermissionRequest{Name: "part", Perm: permission(2, key, end)}
	}
	p.Do(&pb.AuthRoleAddRequest{Name: "part"})
	p.Do(perm("a", "b"))
	p.Do(&pb.AuthRoleAddRequest{Name: "full"})
	full := perm("\x00", "\x00")
	full.Name = "full"
	p.Do(full)
	for _, u := range asks[1:] {
		p.Do(&pb.AuthUserAddRequest{Name: u, Password: u})
		if u != "none" {
			p.Do(&pb.AuthUserGrantRoleRequest{User: u, Role: u})
		}
	}
	p.Do(put("z", "v"))
	p.Do(put("a1", "v"))
	p.Do(&pb.AuthEnableRequest{})
	for _, u := range asks[1:] {
		if !p.Login(u, u) {
			p.t.Fatalf("%s cannot log in", u)
		}
	}
}

// TestMatrix makes every call of every service as everyone, walking the descriptors of what the
// subject says that it serves, and compares what comes of it with the matrix and with the stock
// server.
func TestMatrix(t *testing.T) {
	t.Parallel()
	p := NewPair(t, "--bcrypt-cost", "4")
	secure(p)
	missing := served(t, p.Subject.Conn)
	for _, r := range matrix {
		delete(missing, r.method)
		m, err := method(r.method)
		if err != nil {
			t.Fatal(err)
		}
		for i, user := range asks {
			p.DoAs("root", grant(8, 600))
			p.DoAs("root", grant(7, 600))
			p.DoAs("root", leased("z", 7))
			var answers [2]Outcome
			var both sync.WaitGroup
			for k, s := range []*Side{p.Etcd, p.Subject} {
				both.Go(func() { answers[k] = once(t, s, m, r, user) })
			}
			both.Wait()
			want, got := verdicts[r.want[i]], answers[1].Status.Message()
			if want != "" && !strings.HasSuffix(got, want) {
				t.Errorf("%s {%s} by %q: %v, want %q", r.method, r.request, user,
					answers[1].Status, want)
			}
			for _, refusal := range []string{verdicts['e'], verdicts['d'],
				"etcdserver: invalid auth token", "etcdserver: revision of auth store is old"} {
				if want == "" && strings.HasSuffix(got, refusal) {
					t.Errorf("%s {%s} by %q: %v", r.method, r.request, user, answers[1].Status)
				}
			}
			if w, g := answers[0].Status, answers[1].Status; (want != "" || w.Code() == codes.OK) &&
				(w.Code() != g.Code() || w.Message() != g.Message()) {
				t.Errorf("%s {%s} by %q: etcd answers %v, got %v", r.method, r.request, user, w, g)
			}
		}
	}
	for m := range missing {
		t.Errorf("%s is served and has no row", m)
	}
	p.Finish(t, &tally)
}

// served returns the methods of all services that a server lists.
func served(t *testing.T, conn *grpc.ClientConn) map[string]bool {
	stream, err := reflectpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflectpb.ServerReflectionRequest{MessageRequest: &reflectpb.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	res, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, s := range res.GetListServicesResponse().GetService() {
		if strings.HasPrefix(s.Name, "grpc.reflection.") {
			continue // which this is
		}
		if s.Name == "vigil.Times" {
			continue // etcd does not have it; package server tests who may ask
		}
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(s.Name))
		if err != nil {
			t.Fatalf("%s: %v", s.Name, err)
		}
		methods := d.(protoreflect.ServiceDescriptor).Methods()
		for i := range methods.Len() {
			out[s.Name+"/"+string(methods.Get(i).Name())] = true
		}
	}
	if len(out) < 50 {
		t.Fatalf("only %d methods are served", len(out))
	}
	return out
}

func method(name string) (protoreflect.MethodDescriptor, error) {
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(strings.ReplaceAll(name, "/", ".")))
	if err != nil {
		return nil, err
	}
	return d.(protoreflect.MethodDescriptor), nil
}

// once makes a call, a stream with one request, and returns its first answer. A watcher that is
// refused is one too.
func once(t *testing.T, s *Side, m protoreflect.MethodDescriptor, r row, user string) Outcome {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if user != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "token", s.tokens[user])
	}
	in, out := dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output())
	if err := prototext.Unmarshal([]byte(r.request), in); err != nil {
		t.Fatalf("%s {%s}: %v", r.method, r.request, err)
	}
	if !m.IsStreamingClient() && !m.IsStreamingServer() {
		err := s.Conn.Invoke(ctx, "/"+r.method, in, out)
		return Outcome{Status: status.Convert(err)}
	}
	stream, err := s.Conn.NewStream(ctx,
		&grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/"+r.method)
	if err == nil {
		err = stream.SendMsg(in)
	}
	if err == nil && !m.IsStreamingClient() {
		err = stream.CloseSend()
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = stream.RecvMsg(out)
	}
	if err == nil && r.method == "etcdserverpb.Watch/Watch" {
		if reason := out.Get(m.Output().Fields().ByName("cancel_reason")).String(); reason != "" {
			return Outcome{Status: status.New(codes.Unknown, reason)}
		}
	}
	return Outcome{Status: status.Convert(err)}
}
