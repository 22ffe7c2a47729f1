package diff

import (
	"fmt"
	"os"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

var tally Tally

func TestMain(m *testing.M) {
	code := m.Run()
	fmt.Println(&tally)
	os.Exit(code)
}

// Short constructors, so that a list of calls reads as one.

func get(k string) *pb.RangeRequest { return &pb.RangeRequest{Key: []byte(k)} }

func scan(k, end string) *pb.RangeRequest {
	return &pb.RangeRequest{Key: []byte(k), RangeEnd: []byte(end)}
}

func del(k, end string) *pb.DeleteRangeRequest {
	return &pb.DeleteRangeRequest{Key: []byte(k), RangeEnd: []byte(end)}
}

// op wraps a request for a transaction; nil is the operation with no field set.
func op(req any) *pb.RequestOp {
	m, _ := req.(proto.Message)
	return wrap(m)
}

func ops(reqs ...any) []*pb.RequestOp {
	var out []*pb.RequestOp
	for _, r := range reqs {
		out = append(out, op(r))
	}
	return out
}

// then is a transaction without compares.
func then(reqs ...any) *pb.TxnRequest { return &pb.TxnRequest{Success: ops(reqs...)} }

// otherwise is a transaction whose compare fails: the key must not exist.
func otherwise(reqs ...any) *pb.TxnRequest {
	return &pb.TxnRequest{Compare: []*pb.Compare{cmpMod("no such key", pb.Compare_GREATER, 0)},
		Failure: ops(reqs...)}
}

func cmpMod(k string, r pb.Compare_CompareResult, rev int64) *pb.Compare {
	return &pb.Compare{Key: []byte(k), Target: pb.Compare_MOD, Result: r,
		TargetUnion: &pb.Compare_ModRevision{ModRevision: rev}}
}

func cmpNumber(k string, target pb.Compare_CompareTarget, r pb.Compare_CompareResult,
	n int64) *pb.Compare {
	c := &pb.Compare{Key: []byte(k), Target: target, Result: r}
	switch target {
	case pb.Compare_VERSION:
		c.TargetUnion = &pb.Compare_Version{Version: n}
	case pb.Compare_CREATE:
		c.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: n}
	case pb.Compare_MOD:
		c.TargetUnion = &pb.Compare_ModRevision{ModRevision: n}
	case pb.Compare_LEASE:
		c.TargetUnion = &pb.Compare_Lease{Lease: n}
	}
	return c
}

func cmpValue(k string, r pb.Compare_CompareResult, v string) *pb.Compare {
	return &pb.Compare{Key: []byte(k), Target: pb.Compare_VALUE, Result: r,
		TargetUnion: &pb.Compare_Value{Value: []byte(v)}}
}

// with changes a request in place and returns it.
func with[T any](r T, change func(T)) T {
	change(r)
	return r
}
