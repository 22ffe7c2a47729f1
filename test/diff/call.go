package diff

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// callTimeout bounds one call; it is far above the servers' own request timeout.
const callTimeout = 30 * time.Second

// Call is one unary call: a method, and its request as a message or as raw bytes.
type Call struct {
	// Method is the full name without the leading slash, such as etcdserverpb.KV/Put.
	Method string
	Req    proto.Message
	// Raw is sent as it is if Req is nil.
	Raw []byte
	// Metadata holds keys and values in turn.
	Metadata []string
	// User makes the call with the token that Pair.Login got.
	User string
	// Options go with the call.
	Options []grpc.CallOption
}

// methods names the method that each request message belongs to.
var methods = map[protoreflect.FullName]string{
	"etcdserverpb.RangeRequest":                    "etcdserverpb.KV/Range",
	"etcdserverpb.PutRequest":                      "etcdserverpb.KV/Put",
	"etcdserverpb.DeleteRangeRequest":              "etcdserverpb.KV/DeleteRange",
	"etcdserverpb.TxnRequest":                      "etcdserverpb.KV/Txn",
	"etcdserverpb.CompactionRequest":               "etcdserverpb.KV/Compact",
	"etcdserverpb.LeaseGrantRequest":               "etcdserverpb.Lease/LeaseGrant",
	"etcdserverpb.LeaseRevokeRequest":              "etcdserverpb.Lease/LeaseRevoke",
	"etcdserverpb.LeaseTimeToLiveRequest":          "etcdserverpb.Lease/LeaseTimeToLive",
	"etcdserverpb.LeaseLeasesRequest":              "etcdserverpb.Lease/LeaseLeases",
	"etcdserverpb.StatusRequest":                   "etcdserverpb.Maintenance/Status",
	"etcdserverpb.AlarmRequest":                    "etcdserverpb.Maintenance/Alarm",
	"etcdserverpb.HashKVRequest":                   "etcdserverpb.Maintenance/HashKV",
	"etcdserverpb.MemberListRequest":               "etcdserverpb.Cluster/MemberList",
	"etcdserverpb.AuthEnableRequest":               "etcdserverpb.Auth/AuthEnable",
	"etcdserverpb.AuthDisableRequest":              "etcdserverpb.Auth/AuthDisable",
	"etcdserverpb.AuthStatusRequest":               "etcdserverpb.Auth/AuthStatus",
	"etcdserverpb.AuthenticateRequest":             "etcdserverpb.Auth/Authenticate",
	"etcdserverpb.AuthUserAddRequest":              "etcdserverpb.Auth/UserAdd",
	"etcdserverpb.AuthUserGetRequest":              "etcdserverpb.Auth/UserGet",
	"etcdserverpb.AuthUserListRequest":             "etcdserverpb.Auth/UserList",
	"etcdserverpb.AuthUserDeleteRequest":           "etcdserverpb.Auth/UserDelete",
	"etcdserverpb.AuthUserChangePasswordRequest":   "etcdserverpb.Auth/UserChangePassword",
	"etcdserverpb.AuthUserGrantRoleRequest":        "etcdserverpb.Auth/UserGrantRole",
	"etcdserverpb.AuthUserRevokeRoleRequest":       "etcdserverpb.Auth/UserRevokeRole",
	"etcdserverpb.AuthRoleAddRequest":              "etcdserverpb.Auth/RoleAdd",
	"etcdserverpb.AuthRoleGetRequest":              "etcdserverpb.Auth/RoleGet",
	"etcdserverpb.AuthRoleListRequest":             "etcdserverpb.Auth/RoleList",
	"etcdserverpb.AuthRoleDeleteRequest":           "etcdserverpb.Auth/RoleDelete",
	"etcdserverpb.AuthRoleGrantPermissionRequest":  "etcdserverpb.Auth/RoleGrantPermission",
	"etcdserverpb.AuthRoleRevokePermissionRequest": "etcdserverpb.Auth/RoleRevokePermission",
	"grpc.health.v1.HealthCheckRequest":            "grpc.health.v1.Health/Check",
}

// NewCall makes the call of a request message.
func NewCall(req proto.Message) Call {
	return Call{Method: methods[req.ProtoReflect().Descriptor().FullName()], Req: req}
}

// textLimit bounds a request's text in reports.
const textLimit = 600

func (c Call) String() string {
	s := strings.TrimPrefix(c.Method, "etcdserverpb.") + " " + c.text()
	if len(s) > textLimit {
		s = fmt.Sprintf("%s...(%d bytes)", s[:textLimit], len(s))
	}
	if len(c.Metadata) > 0 {
		s += fmt.Sprintf(" metadata %q", c.Metadata)
	}
	if c.User != "" {
		s += " by " + c.User
	}
	return s
}

func (c Call) text() string {
	if c.Req == nil {
		return "hex:" + hex.EncodeToString(c.Raw)
	}
	return "{" + prototext.MarshalOptions{}.Format(c.Req) + "}"
}

// Outcome is what a call came to: a message, or an error.
type Outcome struct {
	// Resp is nil after an error.
	Resp proto.Message
	// Bytes is the length of the encoded response.
	Bytes  int
	Status *status.Status
}

// bytesCodec hands messages through as they are, under the name of the usual codec.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(v any) ([]byte, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("cannot send a %T", v)
	}
	return *b, nil
}

func (bytesCodec) Unmarshal(data []byte, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("cannot receive a %T", v)
	}
	*b = append([]byte{}, data...)
	return nil
}

// invoke does a call on a connection.
func invoke(ctx context.Context, conn *grpc.ClientConn, c Call) Outcome {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if len(c.Metadata) > 0 {
		ctx = metadata.AppendToOutgoingContext(ctx, c.Metadata...)
	}
	in := c.Raw
	if c.Req != nil {
		var err error
		if in, err = proto.Marshal(c.Req); err != nil {
			return Outcome{Status: status.Newf(codes.Internal, "test: encode request: %v", err)}
		}
	}
	var out []byte
	opts := append([]grpc.CallOption{grpc.ForceCodec(bytesCodec{}),
		grpc.WaitForReady(true)}, c.Options...)
	if err := conn.Invoke(ctx, "/"+c.Method, &in, &out, opts...); err != nil {
		return Outcome{Status: status.Convert(err)}
	}
	resp, err := newResponse(c.Method)
	if err == nil {
		err = proto.Unmarshal(out, resp)
	}
	if err != nil {
		return Outcome{Status: status.Newf(codes.Internal, "test: decode response: %v", err)}
	}
	return Outcome{Resp: resp, Bytes: len(out), Status: status.New(codes.OK, "")}
}

// newResponse makes the empty response message of a method.
func newResponse(method string) (proto.Message, error) {
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(strings.ReplaceAll(method, "/", ".")))
	if err != nil {
		return nil, err
	}
	m, ok := d.(protoreflect.MethodDescriptor)
	if !ok {
		return nil, fmt.Errorf("%s is no method", method)
	}
	t, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
	if err != nil {
		return nil, err
	}
	return t.New().Interface(), nil
}

// headerOf returns the header of a response, nil if it has none.
func headerOf(m proto.Message) *pb.ResponseHeader {
	if h, ok := m.(interface{ GetHeader() *pb.ResponseHeader }); ok {
		return h.GetHeader()
	}
	return nil
}
