package wire

import (
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"vigil/internal/allocs"
	"vigil/internal/kv"
)

func hot() map[string]func() {
	marshal := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			panic(err)
		}
		return b
	}
	key, value := make([]byte, 32), make([]byte, 256)
	put := &etcdserverpb.PutRequest{Key: key, Value: value, Lease: 77}
	get := &etcdserverpb.RangeRequest{Key: key}
	txn := &etcdserverpb.TxnRequest{
		Compare: []*etcdserverpb.Compare{{Key: key, Target: etcdserverpb.Compare_MOD,
			TargetUnion: &etcdserverpb.Compare_ModRevision{ModRevision: 123456}}},
		Success: []*etcdserverpb.RequestOp{{Request: &etcdserverpb.RequestOp_RequestPut{RequestPut: put}}},
		Failure: []*etcdserverpb.RequestOp{{Request: &etcdserverpb.RequestOp_RequestRange{RequestRange: get}}},
	}
	decode := func(m proto.Message, into func() Decoder) func() {
		data := marshal(m)
		return func() {
			if err := into().Decode(data); err != nil {
				panic(err)
			}
		}
	}
	record := marshal(&mvccpb.KeyValue{Key: key, Value: value, CreateRevision: 1000000,
		ModRevision: 1234567, Version: 5})
	var page kv.Records
	for range 500 {
		page.Buf = append(page.Buf, record...)
		page.Close()
	}
	list := &RangeResponse{kv.Header{ClusterID: 1 << 60, MemberID: 1 << 61, Revision: 1234567,
		Term: 3}, &kv.RangeResult{KVs: page, Count: 2000, More: true}}
	buf := make([]byte, 0, list.Size())
	return map[string]func(){
		"decode a put":         decode(put, func() Decoder { return new(PutRequest) }),
		"decode a range":       decode(get, func() Decoder { return new(RangeRequest) }),
		"decode a transaction": decode(txn, func() Decoder { return new(TxnRequest) }),
		"encode an answer of 500 keys": func() {
			if n := list.Size(); n != cap(buf) || len(list.AppendTo(buf)) != n {
				panic(n)
			}
		},
	}
}

func BenchmarkHot(b *testing.B) { allocs.Benchmark(b, hot()) }

//vigil:norace
func TestAllocations(t *testing.T) { allocs.Test(t, "wire", hot()) }
