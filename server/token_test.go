package server

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"vigil/internal/edge/rpc/lockpb"
)

// openMethods need no user.
var openMethods = []string{
	"/etcdserverpb.Auth/Authenticate",
	"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/List", "/grpc.health.v1.Health/Watch",
	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
}

// observe ends without an error when it may not read, as in etcd.
const observe = "/v3electionpb.Election/Observe"

// validRequests are requests of methods that reject an empty request of every user.
var validRequests = map[string]string{
	"/etcdserverpb.KV/Range":                 `{"key":"YQ=="}`,
	"/etcdserverpb.KV/RangeStream":           `{"key":"YQ=="}`,
	"/etcdserverpb.KV/Put":                   `{"key":"YQ=="}`,
	"/etcdserverpb.KV/DeleteRange":           `{"key":"YQ=="}`,
	"/etcdserverpb.KV/Txn":                   `{"success":[{"requestPut":{"key":"YQ=="}}]}`,
	"/etcdserverpb.KV/Compact":               `{"revision":"1"}`,
	"/etcdserverpb.Watch/Watch":              `{"createRequest":{"key":"YQ=="}}`,
	"/etcdserverpb.Lease/LeaseGrant":         `{"TTL":"60"}`,
	"/etcdserverpb.Cluster/MemberAdd":        `{"peerURLs":["http://127.0.0.1:1"]}`,
	"/etcdserverpb.Cluster/MemberUpdate":     `{"ID":"1","peerURLs":["http://127.0.0.1:1"]}`,
	"/etcdserverpb.Maintenance/Downgrade":    `{"action":"ENABLE","version":"3.6"}`,
	"/etcdserverpb.Auth/UserAdd":             `{"name":"u","password":"u"}`,
	"/etcdserverpb.Auth/RoleAdd":             `{"name":"new"}`,
	"/etcdserverpb.Auth/RoleGrantPermission": `{"name":"r","perm":{"key":"YQ=="}}`,
	"/v3lockpb.Lock/Lock":                    `{"name":"YQ==","lease":"7"}`,
	"/v3lockpb.Lock/Unlock":                  `{"key":"YQ=="}`,
	"/v3electionpb.Election/Campaign":        `{"name":"YQ==","lease":"7","value":"YQ=="}`,
	"/v3electionpb.Election/Proclaim":        `{"leader":{"name":"YQ==","key":"YQ==","rev":"1","lease":"7"}}`,
	"/v3electionpb.Election/Leader":          `{"name":"YQ=="}`,
	"/v3electionpb.Election/Observe":         `{"name":"YQ=="}`,
	"/v3electionpb.Election/Resign":          `{"leader":{"name":"YQ==","key":"YQ==","rev":"1","lease":"7"}}`,
}

// methods asks the server for what it serves.
func (v *vault) methods() []protoreflect.MethodDescriptor {
	v.t.Helper()
	s, err := grpc_reflection_v1.NewServerReflectionClient(v.cc).ServerReflectionInfo(timeout(v.t))
	if err == nil {
		err = s.Send(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}})
	}
	if err != nil {
		v.t.Fatal(err)
	}
	res, err := s.Recv()
	if err != nil {
		v.t.Fatal(err)
	}
	var out []protoreflect.MethodDescriptor
	for _, service := range res.GetListServicesResponse().Service {
		d, err := lockpb.Files.FindDescriptorByName(protoreflect.FullName(service.Name))
		if err != nil {
			v.t.Fatalf("%s: %v", service.Name, err)
		}
		list := d.(protoreflect.ServiceDescriptor).Methods()
		for i := range list.Len() {
			out = append(out, list.Get(i))
		}
	}
	if len(out) < 50 {
		v.t.Fatalf("only %d methods are served", len(out))
	}
	return out
}

// call calls a method and returns its error, or why it ended the watcher that was asked for.
func (v *vault) call(ctx context.Context, m protoreflect.MethodDescriptor) error {
	full := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
	in := dynamicpb.NewMessage(m.Input())
	if body := validRequests[full]; body != "" {
		if err := protojson.Unmarshal([]byte(body), in); err != nil {
			v.t.Fatalf("%s: %v", full, err)
		}
	}
	return v.callWith(ctx, m, in)
}

// callWith is call with a request.
func (v *vault) callWith(ctx context.Context, m protoreflect.MethodDescriptor,
	in proto.Message) error {
	full := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
	out := dynamicpb.NewMessage(m.Output())
	s, err := v.cc.NewStream(ctx,
		&grpc.StreamDesc{ServerStreams: m.IsStreamingServer(),
			ClientStreams: m.IsStreamingClient()}, full)
	if err == nil {
		err = s.SendMsg(in)
	}
	if err == nil && !m.IsStreamingClient() {
		err = s.CloseSend()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := s.RecvMsg(out); err != nil {
		return err
	}
	if reason := out.Descriptor().Fields().ByName("cancel_reason"); reason != nil &&
		out.Get(reason).String() != "" {
		_, text, _ := strings.Cut(out.Get(reason).String(), "desc = ")
		return errors.New(text)
	}
	return nil
}

// Tokens end with what they were given for, on every method and for tokens of every kind: with the
// user, with its password, and with auth being disabled; a user or auth that is there again is
// another one.
func TestTokensThatEnded(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("a secret that is long enough for this"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for kind, token := range map[string]string{"simple": "simple",
		"jwt": "jwt,sign-method=HS256,priv-key=" + secret + ",ttl=10m"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			v := newVault(t, Config{Auth: Auth{Token: token}})
			admin := pb.NewAuthClient(v.cc)
			must := func(_ any, err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			add := func(root context.Context) {
				t.Helper()
				must(admin.UserAdd(root, &pb.AuthUserAddRequest{Name: "bob", Password: "bob"}))
				must(admin.UserGrantRole(root,
					&pb.AuthUserGrantRoleRequest{User: "bob", Role: "root"}))
			}
			add(v.as("root"))
			methods := v.methods()
			for _, c := range []struct {
				name  string
				after func(root context.Context)
			}{
				{"auth was disabled and enabled", func(root context.Context) {
					must(admin.AuthDisable(root, &pb.AuthDisableRequest{}))
					must(admin.AuthEnable(timeout(t), &pb.AuthEnableRequest{}))
				}},
				{"its password was changed", func(root context.Context) {
					must(admin.UserChangePassword(root,
						&pb.AuthUserChangePasswordRequest{Name: "bob", Password: "bob"}))
				}},
				{"its user was deleted and added again", func(root context.Context) {
					must(admin.UserDelete(root, &pb.AuthUserDeleteRequest{Name: "bob"}))
					add(root)
				}},
				{"its user was deleted", func(root context.Context) {
					must(admin.UserDelete(root, &pb.AuthUserDeleteRequest{Name: "bob"}))
				}},
			} {
				old := metadata.AppendToOutgoingContext(timeout(t), "token", v.token("bob", "bob"))
				must(pb.NewKVClient(v.cc).Range(old, &pb.RangeRequest{Key: []byte("a")}))
				c.after(v.as("root"))
				before, err := admin.AuthStatus(v.as("root"), &pb.AuthStatusRequest{})
				must(before, err)
				for _, m := range methods {
					full := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
					if slices.Contains(openMethods, full) {
						continue
					}
					err := v.call(old, m)
					if full == observe && errors.Is(err, io.EOF) {
						continue
					}
					if err == nil || !strings.HasSuffix(status.Convert(err).Message(),
						invalidToken) {
						t.Errorf("%s: a token of before %s: %v, want %s", full, c.name,
							err, invalidToken)
					}
				}
				after, err := admin.AuthStatus(v.as("root"), &pb.AuthStatusRequest{})
				must(after, err)
				if before.AuthRevision != after.AuthRevision ||
					before.Header.Revision != after.Header.Revision || !after.Enabled {
					t.Errorf("a token of before %s changed something: %v, before %v",
						c.name, after, before)
				}
			}
		})
	}
}
