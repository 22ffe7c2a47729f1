package wire

import (
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"vigil/internal/kv"
)

// The benchmarks run each message through this package and through the generated code. The shapes
// are those of the load: a put of 256 bytes, the conditional write of a Kubernetes API server, a
// page of 500 keys, a watch response of one event.

func mustMarshal(b *testing.B, m proto.Message) []byte {
	b.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		b.Fatal(err)
	}
	return data
}

func BenchmarkDecode(b *testing.B) {
	key, value := make([]byte, 32), make([]byte, 256)
	put := &etcdserverpb.PutRequest{Key: key, Value: value, Lease: 77}
	get := &etcdserverpb.RangeRequest{Key: key}
	txn := &etcdserverpb.TxnRequest{
		Compare: []*etcdserverpb.Compare{{Key: key, Target: etcdserverpb.Compare_MOD,
			TargetUnion: &etcdserverpb.Compare_ModRevision{ModRevision: 123456}}},
		Success: []*etcdserverpb.RequestOp{{Request: &etcdserverpb.RequestOp_RequestPut{RequestPut: put}}},
		Failure: []*etcdserverpb.RequestOp{{Request: &etcdserverpb.RequestOp_RequestRange{RequestRange: get}}},
	}
	for _, c := range []struct {
		name string
		pb   proto.Message
		own  func() Decoder
	}{
		{"put", put, func() Decoder { return new(PutRequest) }},
		{"range", get, func() Decoder { return new(RangeRequest) }},
		{"txn", txn, func() Decoder { return new(TxnRequest) }},
	} {
		data := mustMarshal(b, c.pb)
		b.Run(c.name+"/own", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := c.own().Decode(data); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(c.name+"/generated", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := proto.Unmarshal(data, c.pb.ProtoReflect().New().Interface()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	h := kv.Header{ClusterID: 0xcdf818194e3a8c32, MemberID: 0x8e9e05c52164694d,
		Revision: 1234567, Term: 3}
	record := mustMarshal(b,
		&mvccpb.KeyValue{Key: make([]byte, 32), Value: make([]byte, 256), CreateRevision: 1000000,
			ModRevision: 1234567, Version: 5})
	event := mustMarshal(b, &mvccpb.Event{Kv: recordPB(record)})
	var page kv.Records
	for range 500 {
		page.Buf = append(page.Buf, record...)
		page.Close()
	}
	one := kv.Records{Buf: record, Ends: []int{len(record)}}
	put := &kv.PutResult{}
	get := &kv.RangeResult{KVs: one, Count: 1}
	list := &kv.RangeResult{KVs: page, Count: 2000, More: true}
	txn := &kv.TxnResult{Succeeded: true, Responses: []kv.OpResult{{Put: put}}}
	ev := &WatchResponse{Header: h, WatchID: 7, Events: [][]byte{event}}
	for _, c := range []struct {
		name string
		own  Encoder
		pb   proto.Message
	}{
		{"put", &PutResponse{h, put}, putPB(h, put)},
		{"range", &RangeResponse{h, get}, rangePB(h, get)},
		{"range500", &RangeResponse{h, list}, rangePB(h, list)},
		{"txn", &TxnResponse{h, txn}, txnPB(h, txn)},
		{"event", ev, watchPB(ev)},
	} {
		b.Run(c.name+"/own", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.own.AppendTo(make([]byte, 0, c.own.Size()))
			}
		})
		b.Run(c.name+"/generated", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := proto.Marshal(c.pb); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
