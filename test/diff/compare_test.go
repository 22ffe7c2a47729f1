package diff

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestCompare shows that a difference of each kind is seen and that only the named fields are
// exempt.
func TestCompare(t *testing.T) {
	base := func() *pb.RangeResponse {
		return &pb.RangeResponse{
			Header: &pb.ResponseHeader{ClusterId: 1, MemberId: 2, Revision: 3, RaftTerm: 4},
			Kvs:    []*mvccpb.KeyValue{{Key: []byte("k"), Value: []byte("v"), Lease: 1}},
			Count:  1,
		}
	}
	ok := func(m *pb.RangeResponse) Outcome {
		return Outcome{Resp: m,
			Status: status.New(codes.OK, "")}
	}
	mine, theirs := ids{1, 2}, ids{11, 12}
	for _, c := range []struct {
		change func(*pb.RangeResponse)
		path   string
	}{
		{func(*pb.RangeResponse) {}, ""},
		{func(m *pb.RangeResponse) { m.Header.RaftTerm = 9 }, ""},
		{func(m *pb.RangeResponse) { m.Header.RaftTerm = 0 }, "header.raft_term"},
		{func(m *pb.RangeResponse) { m.Header.ClusterId = 1 }, "header.cluster_id"},
		{func(m *pb.RangeResponse) { m.Header.MemberId = 0 }, "header.member_id"},
		{func(m *pb.RangeResponse) { m.Header.Revision = 4 }, "header.revision"},
		{func(m *pb.RangeResponse) { m.Header = nil }, "header"},
		{func(m *pb.RangeResponse) { m.Kvs = nil }, "kvs.len"},
		{func(m *pb.RangeResponse) { m.Kvs[0].Value = nil }, "kvs[0].value"},
		{func(m *pb.RangeResponse) { m.Kvs[0].Lease = 2 }, "kvs[0].lease"},
		{func(m *pb.RangeResponse) { m.More = true }, "more"},
		{func(m *pb.RangeResponse) { m.ProtoReflect().SetUnknown([]byte{0x78, 1}) }, ".unknown"},
	} {
		got := base()
		got.Header.ClusterId, got.Header.MemberId = theirs.cluster, theirs.member
		c.change(got)
		fields := compare(ok(base()), mine, ok(got), theirs)
		switch {
		case c.path == "" && len(fields) == 0:
		case len(fields) == 1 && (fields[0].Path == c.path || "."+fields[0].Path == c.path):
		default:
			t.Errorf("want a difference in %q, have %v", c.path, fields)
		}
	}
	bad := func(c codes.Code, m string) Outcome { return Outcome{Status: status.New(c, m)} }
	if f := compare(bad(codes.NotFound, "x"), mine, bad(codes.NotFound, "x"), theirs); len(f) != 0 {
		t.Errorf("equal errors differ: %v", f)
	}
	if f := compare(bad(codes.NotFound, "x"), mine, bad(codes.Internal, "x"), theirs); len(f) != 1 {
		t.Errorf("codes: %v", f)
	}
	if f := compare(bad(codes.NotFound, "x"), mine, bad(codes.NotFound, "y"), theirs); len(f) != 1 {
		t.Errorf("messages: %v", f)
	}
	if f := compare(ok(base()), mine, bad(codes.NotFound, "x"), theirs); len(f) != 2 {
		t.Errorf("an answer and an error: %v", f)
	}
}
