package client

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"vigil/client/internal/randfield"
)

// The model of the decoders is the generated code: it encodes random messages, which are decoded
// here and compared.

// gen makes random messages.
type gen struct{ randfield.Gen }

func (g gen) header() (Header, *pb.ResponseHeader) {
	h := Header{ClusterID: g.Uint64(), MemberID: g.Uint64(), Revision: g.Number(),
		RaftTerm: g.Uint64()}
	return h, &pb.ResponseHeader{ClusterId: h.ClusterID, MemberId: h.MemberID, Revision: h.Revision,
		RaftTerm: h.RaftTerm}
}

func (g gen) kv() (KeyValue, *mvccpb.KeyValue) {
	m := &mvccpb.KeyValue{Key: g.Data(), Value: g.Data(), CreateRevision: g.Number(),
		ModRevision: g.Number(), Version: g.Number(), Lease: g.Number()}
	return KeyValue{Key: string(m.Key), Value: m.Value, CreateRevision: m.CreateRevision,
		ModRevision: m.ModRevision, Version: m.Version, Lease: LeaseID(m.Lease)}, m
}

func (g gen) kvs() (list []KeyValue, m []*mvccpb.KeyValue) {
	for range g.IntN(5) {
		kv, p := g.kv()
		list, m = append(list, kv), append(m, p)
	}
	return list, m
}

func (g gen) maybe() (*KeyValue, *mvccpb.KeyValue) {
	if g.Flag() {
		return nil, nil
	}
	kv, m := g.kv()
	return &kv, m
}

func (g gen) getResponse() (*GetResponse, *pb.RangeResponse) {
	r, m := &GetResponse{More: g.Flag(), Count: g.Number()}, &pb.RangeResponse{}
	m.More, m.Count = r.More, r.Count
	r.Header, m.Header = g.header()
	r.KVs, m.Kvs = g.kvs()
	return r, m
}

func (g gen) putResponse() (*PutResponse, *pb.PutResponse) {
	r, m := &PutResponse{}, &pb.PutResponse{}
	r.Header, m.Header = g.header()
	r.PrevKV, m.PrevKv = g.maybe()
	return r, m
}

func (g gen) txnResponse(depth int) (*TxnResponse, *pb.TxnResponse) {
	r, m := &TxnResponse{Succeeded: g.Flag()}, &pb.TxnResponse{}
	m.Succeeded = r.Succeeded
	r.Header, m.Header = g.header()
	for range g.IntN(4) {
		var x OpResponse
		p := &pb.ResponseOp{}
		switch k := g.IntN(4); {
		case k == 0:
			g, q := g.getResponse()
			x.Get, p.Response = g, &pb.ResponseOp_ResponseRange{ResponseRange: q}
		case k == 1:
			u, q := g.putResponse()
			x.Put, p.Response = u, &pb.ResponseOp_ResponsePut{ResponsePut: q}
		case k == 2 || depth == 0:
			d, q := &DeleteResponse{Deleted: g.Number()}, &pb.DeleteRangeResponse{}
			q.Deleted = d.Deleted
			d.Header, q.Header = g.header()
			d.PrevKVs, q.PrevKvs = g.kvs()
			x.Delete, p.Response = d, &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: q}
		default:
			in, q := g.txnResponse(depth - 1)
			x.Txn, p.Response = in, &pb.ResponseOp_ResponseTxn{ResponseTxn: q}
		}
		r.Responses, m.Responses = append(r.Responses, x), append(m.Responses, p)
	}
	return r, m
}

func (g gen) watchResponse() (*watchResponse, *pb.WatchResponse) {
	r, m := &watchResponse{id: g.Number(), created: g.Flag(), canceled: g.Flag(),
		compact: g.Number(), reason: "because", fragment: g.Flag()}, &pb.WatchResponse{}
	m.WatchId, m.Created, m.Canceled, m.CompactRevision, m.CancelReason, m.Fragment = r.id,
		r.created, r.canceled, r.compact, r.reason, r.fragment
	r.header, m.Header = g.header()
	for range g.IntN(5) {
		ev, p := Event{Type: EventType(g.IntN(2))}, &mvccpb.Event{}
		p.Type = mvccpb.Event_EventType(ev.Type)
		ev.KV, p.Kv = g.kv()
		ev.PrevKV, p.PrevKv = g.maybe()
		r.events, m.Events = append(r.events, ev), append(m.Events, p)
	}
	return r, m
}

// level makes nil and empty values alike, which encodings do not distinguish.
func level(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			level(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				level(v.Field(i))
			}
		}
	case reflect.Slice:
		if v.Len() == 0 {
			v.SetZero()
		}
		for i := range v.Len() {
			level(v.Index(i))
		}
	}
}

func TestDecode(t *testing.T) {
	seed := rand.Uint64()
	g := gen{randfield.Gen{Rand: rand.New(rand.NewPCG(seed, 2))}}
	for range 500 {
		var want any
		var m proto.Message
		switch g.IntN(5) {
		case 0:
			want, m = g.getResponse()
		case 1:
			want, m = g.putResponse()
		case 2:
			want, m = g.txnResponse(2)
		case 3:
			r, p := g.watchResponse()
			r.size = proto.Size(p)
			for i := range r.events {
				level(reflect.ValueOf(&r.events[i]))
			}
			want, m = r, p
		case 4:
			h, p := g.header()
			id, ttl := g.Number(), g.Number()
			want, m = &leaseResponse{header: h, id: LeaseID(id), ttl: ttl},
				&pb.LeaseKeepAliveResponse{Header: p, ID: id, TTL: ttl}
		}
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got := reflect.New(reflect.TypeOf(want).Elem()).Interface().(response)
		if err := got.decode(b); err != nil {
			t.Fatalf("seed %d: %v of %v", seed, err, m)
		}
		if w, ok := got.(*watchResponse); ok {
			for i := range w.events {
				level(reflect.ValueOf(&w.events[i]))
			}
		}
		level(reflect.ValueOf(got))
		level(reflect.ValueOf(want))
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d:\n%+v, want\n%+v", seed, got, want)
		}
	}
}

// FuzzDecode searches for bytes that make a decoder panic, or that it accepts and the generated
// code rejects.
func FuzzDecode(f *testing.F) {
	g := gen{randfield.Gen{Rand: rand.New(rand.NewPCG(1, 3))}}
	for seeds := 0; seeds < 20; {
		_, txn := g.txnResponse(1)
		_, watch := g.watchResponse()
		for _, m := range []proto.Message{txn, watch} {
			b, err := proto.Marshal(m)
			if err != nil {
				f.Fatal(err)
			}
			if len(b) < 1000 { // small ones are quick to vary
				f.Add(b)
				seeds++
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, pair := range []struct {
			mine response
			gen  proto.Message
		}{
			{new(GetResponse), new(pb.RangeResponse)},
			{new(rangeChunk), new(pb.RangeStreamResponse)},
			{new(PutResponse), new(pb.PutResponse)},
			{new(DeleteResponse), new(pb.DeleteRangeResponse)},
			{new(TxnResponse), new(pb.TxnResponse)},
			{new(watchResponse), new(pb.WatchResponse)},
			{new(leaseResponse), new(pb.LeaseKeepAliveResponse)},
		} {
			mine, gen := pair.mine.decode(b), proto.Unmarshal(b, pair.gen)
			// A reason of a cancellation may be any bytes: refusing it would hide it.
			if mine == nil && gen != nil && !strings.Contains(gen.Error(), "UTF-8") {
				t.Errorf("%T takes %x, the generated code says %v", pair.mine, b, gen)
			}
		}
	})
}
