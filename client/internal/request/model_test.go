package request

import (
	"math/rand/v2"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"vigil/client/internal/randfield"
)

// The model of the encodings is the generated code: it decodes what is encoded here.

// gen makes random messages.
type gen struct{ randfield.Gen }

func (g gen) get() (*Range, *pb.RangeRequest) {
	m := &pb.RangeRequest{Key: g.Data(), RangeEnd: g.Data(), Limit: g.Number(),
		Revision:     g.Number(),
		SortOrder:    pb.RangeRequest_SortOrder(g.IntN(3)),
		SortTarget:   pb.RangeRequest_SortTarget(g.IntN(5)),
		Serializable: g.Flag(), KeysOnly: g.Flag(), CountOnly: g.Flag(),
		MinModRevision: g.Number(), MaxModRevision: g.Number(), MinCreateRevision: g.Number(),
		MaxCreateRevision: g.Number()}
	return &Range{Key: string(m.Key), End: string(m.RangeEnd), Limit: m.Limit, Revision: m.Revision,
		Order: uint8(m.SortOrder), Target: uint8(m.SortTarget), Serializable: m.Serializable,
		KeysOnly: m.KeysOnly, CountOnly: m.CountOnly,
		MinModRevision: m.MinModRevision, MaxModRevision: m.MaxModRevision,
		MinCreateRevision: m.MinCreateRevision, MaxCreateRevision: m.MaxCreateRevision}, m
}

func (g gen) put() (*Put, *pb.PutRequest) {
	m := &pb.PutRequest{Key: g.Data(), Value: g.Data(), Lease: g.Number(), PrevKv: g.Flag(),
		IgnoreValue: g.Flag(), IgnoreLease: g.Flag()}
	return &Put{Key: string(m.Key), Value: m.Value, Lease: m.Lease, PrevKV: m.PrevKv,
		IgnoreValue: m.IgnoreValue, IgnoreLease: m.IgnoreLease}, m
}

func (g gen) del() (*Delete, *pb.DeleteRangeRequest) {
	m := &pb.DeleteRangeRequest{Key: g.Data(), RangeEnd: g.Data(), PrevKv: g.Flag()}
	return &Delete{Key: string(m.Key), End: string(m.RangeEnd), PrevKV: m.PrevKv}, m
}

func (g gen) cmp() (Compare, *pb.Compare) {
	m := &pb.Compare{Result: pb.Compare_CompareResult(g.IntN(4)),
		Target: pb.Compare_CompareTarget(g.IntN(5)), Key: g.Data(), RangeEnd: g.Data()}
	c := Compare{Key: string(m.Key), End: string(m.RangeEnd), Result: uint8(m.Result),
		Target: uint8(m.Target)}
	if c.Target == CompareValue {
		c.Value = g.Data()
		m.TargetUnion = &pb.Compare_Value{Value: c.Value}
		return c, m
	}
	c.Number = g.Number()
	m.TargetUnion = map[uint8]func() *pb.Compare{
		0: func() *pb.Compare { return &pb.Compare{TargetUnion: &pb.Compare_Version{Version: c.Number}} },
		1: func() *pb.Compare {
			return &pb.Compare{TargetUnion: &pb.Compare_CreateRevision{CreateRevision: c.Number}}
		},
		2: func() *pb.Compare { return &pb.Compare{TargetUnion: &pb.Compare_ModRevision{ModRevision: c.Number}} },
		4: func() *pb.Compare { return &pb.Compare{TargetUnion: &pb.Compare_Lease{Lease: c.Number}} },
	}[c.Target]().TargetUnion
	return c, m
}

func (g gen) ops(depth int) (list []Op, m []*pb.RequestOp) {
	for range g.IntN(4) {
		switch k := g.IntN(4); {
		case k == 0:
			r, p := g.get()
			list, m = append(list, Op{Get: r}),
				append(m, &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: p}})
		case k == 1:
			r, p := g.put()
			list, m = append(list, Op{Put: r}),
				append(m, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: p}})
		case k == 2:
			r, p := g.del()
			list, m = append(list, Op{Delete: r}),
				append(m, &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: p}})
		case depth > 0:
			r, p := g.txn(depth - 1)
			list, m = append(list, Op{Txn: r}),
				append(m, &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: p}})
		}
	}
	return list, m
}

func (g gen) txn(depth int) (*Txn, *pb.TxnRequest) {
	r, m := &Txn{}, &pb.TxnRequest{}
	for range g.IntN(3) {
		c, p := g.cmp()
		r.Compare, m.Compare = append(r.Compare, c), append(m.Compare, p)
	}
	r.Success, m.Success = g.ops(depth)
	r.Failure, m.Failure = g.ops(depth)
	return r, m
}

func (g gen) watch() (*Watch, *pb.WatchRequest) {
	switch g.IntN(3) {
	case 0:
		id := g.Int64N(1000)
		return &Watch{Cancel: &id},
			&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: id}}}
	case 1:
		return &Watch{}, &pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}
	}
	m := &pb.WatchCreateRequest{Key: g.Data(), RangeEnd: g.Data(), StartRevision: g.Number(),
		ProgressNotify: g.Flag(), PrevKv: g.Flag(), WatchId: g.Number(), Fragment: true}
	r := &WatchCreate{Key: string(m.Key), End: string(m.RangeEnd), Start: m.StartRevision,
		Progress: m.ProgressNotify, PrevKV: m.PrevKv, ID: m.WatchId}
	if r.NoPut = g.Flag(); r.NoPut {
		m.Filters = append(m.Filters, pb.WatchCreateRequest_NOPUT)
	}
	if r.NoDelete = g.Flag(); r.NoDelete {
		m.Filters = append(m.Filters, pb.WatchCreateRequest_NODELETE)
	}
	return &Watch{Create: r},
		&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: m}}
}

func TestEncode(t *testing.T) {
	seed := rand.Uint64()
	g := gen{randfield.Gen{Rand: rand.New(rand.NewPCG(seed, 1))}}
	for range 500 {
		var r Encoder
		var want proto.Message
		switch g.IntN(6) {
		case 0:
			r, want = g.get()
		case 1:
			r, want = g.put()
		case 2:
			r, want = g.del()
		case 3:
			r, want = g.txn(2)
		case 4:
			r, want = g.watch()
		case 5:
			id := g.Number()
			r, want = &KeepAlive{ID: id}, &pb.LeaseKeepAliveRequest{ID: id}
		}
		data, err := r.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		got := want.ProtoReflect().New().Interface()
		if err := proto.Unmarshal(data.Materialize(), got); err != nil {
			t.Fatalf("seed %d: %v of %v", seed, err, want)
		}
		if !proto.Equal(got, want) {
			t.Fatalf("seed %d:\n%v, want\n%v", seed, got, want)
		}
	}
}
