package wire

import (
	"math/rand/v2"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"vigil/client/pbfield"
	"vigil/internal/kv"
)

// The model of this package is the generated code. What follows turns generated messages into what
// Decode should have made of the same bytes, and results into the messages that their encodings
// should be.

func none(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

func rangeFrom(m *etcdserverpb.RangeRequest) kv.RangeRequest {
	return kv.RangeRequest{
		Key: none(m.Key), End: none(m.RangeEnd), Limit: m.Limit, Revision: m.Revision,
		Sort: kv.SortTarget(m.SortTarget), Order: kv.SortOrder(m.SortOrder),
		KeysOnly: m.KeysOnly, CountOnly: m.CountOnly, Serializable: m.Serializable,
		MinModRevision: m.MinModRevision, MaxModRevision: m.MaxModRevision,
		MinCreateRevision: m.MinCreateRevision, MaxCreateRevision: m.MaxCreateRevision,
	}
}

func putFrom(m *etcdserverpb.PutRequest) kv.PutRequest {
	return kv.PutRequest{Key: none(m.Key), Value: none(m.Value), Lease: m.Lease, PrevKV: m.PrevKv,
		IgnoreValue: m.IgnoreValue, IgnoreLease: m.IgnoreLease}
}

func deleteFrom(m *etcdserverpb.DeleteRangeRequest) kv.DeleteRangeRequest {
	return kv.DeleteRangeRequest{Key: none(m.Key), End: none(m.RangeEnd), PrevKV: m.PrevKv}
}

func txnFrom(m *etcdserverpb.TxnRequest) kv.TxnRequest {
	var t kv.TxnRequest
	for _, c := range m.Compare {
		k := kv.Compare{Key: none(c.Key), End: none(c.RangeEnd), Target: kv.CompareTarget(c.Target),
			Result: kv.CompareResult(c.Result)}
		switch c.Target {
		case etcdserverpb.Compare_VERSION:
			k.Number = c.GetVersion()
		case etcdserverpb.Compare_CREATE:
			k.Number = c.GetCreateRevision()
		case etcdserverpb.Compare_MOD:
			k.Number = c.GetModRevision()
		case etcdserverpb.Compare_LEASE:
			k.Number = c.GetLease()
		case etcdserverpb.Compare_VALUE:
			k.Value = none(c.GetValue())
		}
		t.Compare = append(t.Compare, k)
	}
	t.Success, t.Failure = opsFrom(m.Success), opsFrom(m.Failure)
	return t
}

func opsFrom(list []*etcdserverpb.RequestOp) []kv.Op {
	var ops []kv.Op
	for _, m := range list {
		var op kv.Op
		switch u := m.Request.(type) {
		case *etcdserverpb.RequestOp_RequestRange:
			r := rangeFrom(u.RequestRange)
			op.Range = &r
		case *etcdserverpb.RequestOp_RequestPut:
			r := putFrom(u.RequestPut)
			op.Put = &r
		case *etcdserverpb.RequestOp_RequestDeleteRange:
			r := deleteFrom(u.RequestDeleteRange)
			op.Delete = &r
		case *etcdserverpb.RequestOp_RequestTxn:
			r := txnFrom(u.RequestTxn)
			op.Txn = &r
		}
		ops = append(ops, op)
	}
	return ops
}

func watchFrom(m *etcdserverpb.WatchRequest) WatchRequest {
	switch u := m.RequestUnion.(type) {
	case *etcdserverpb.WatchRequest_CreateRequest:
		c := u.CreateRequest
		w := WatchCreateRequest{Key: none(c.Key), End: none(c.RangeEnd),
			StartRevision: c.StartRevision, WatchID: c.WatchId,
			ProgressNotify: c.ProgressNotify, PrevKV: c.PrevKv, Fragment: c.Fragment}
		for _, f := range c.Filters {
			w.NoPut = w.NoPut || f == etcdserverpb.WatchCreateRequest_NOPUT
			w.NoDelete = w.NoDelete || f == etcdserverpb.WatchCreateRequest_NODELETE
		}
		return WatchRequest{Kind: WatchCreate, Create: w}
	case *etcdserverpb.WatchRequest_CancelRequest:
		return WatchRequest{Kind: WatchCancel, CancelID: u.CancelRequest.WatchId}
	case *etcdserverpb.WatchRequest_ProgressRequest:
		return WatchRequest{Kind: WatchProgress}
	}
	return WatchRequest{}
}

func headerPB(h kv.Header) *etcdserverpb.ResponseHeader {
	return &etcdserverpb.ResponseHeader{ClusterId: h.ClusterID, MemberId: h.MemberID,
		Revision: h.Revision, RaftTerm: h.Term}
}

func recordPB(b []byte) *mvccpb.KeyValue {
	m := &mvccpb.KeyValue{}
	if err := proto.Unmarshal(b, m); err != nil {
		panic(err)
	}
	return m
}

func recordsPB(r *kv.Records) []*mvccpb.KeyValue {
	var list []*mvccpb.KeyValue
	for _, b := range listed(r) {
		list = append(list, recordPB(b))
	}
	return list
}

func rangePB(h kv.Header, r *kv.RangeResult) *etcdserverpb.RangeResponse {
	return &etcdserverpb.RangeResponse{Header: headerPB(h), Kvs: recordsPB(&r.KVs), More: r.More,
		Count: r.Count}
}

func putPB(h kv.Header, r *kv.PutResult) *etcdserverpb.PutResponse {
	m := &etcdserverpb.PutResponse{Header: headerPB(h)}
	if r.PrevKV != nil {
		m.PrevKv = recordPB(r.PrevKV)
	}
	return m
}

func deletePB(h kv.Header, r *kv.DeleteRangeResult) *etcdserverpb.DeleteRangeResponse {
	return &etcdserverpb.DeleteRangeResponse{Header: headerPB(h), Deleted: r.Deleted,
		PrevKvs: recordsPB(&r.PrevKVs)}
}

func txnPB(h kv.Header, r *kv.TxnResult) *etcdserverpb.TxnResponse {
	m := &etcdserverpb.TxnResponse{Header: headerPB(h), Succeeded: r.Succeeded}
	for _, op := range r.Responses {
		o := &etcdserverpb.ResponseOp{}
		switch {
		case op.Range != nil:
			o.Response = &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: rangePB(kv.Header{Revision: op.Range.Revision}, op.Range)}
		case op.Put != nil:
			o.Response = &etcdserverpb.ResponseOp_ResponsePut{ResponsePut: putPB(kv.Header{Revision: op.Put.Revision}, op.Put)}
		case op.Delete != nil:
			o.Response = &etcdserverpb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: deletePB(kv.Header{Revision: op.Delete.Revision}, op.Delete)}
		case op.Txn != nil:
			o.Response = &etcdserverpb.ResponseOp_ResponseTxn{ResponseTxn: txnPB(kv.Header{},
				op.Txn)}
		}
		m.Responses = append(m.Responses, o)
	}
	return m
}

func watchPB(r *WatchResponse) *etcdserverpb.WatchResponse {
	m := &etcdserverpb.WatchResponse{Header: headerPB(r.Header), WatchId: r.WatchID,
		Created: r.Created, Canceled: r.Canceled,
		CompactRevision: r.CompactRevision, CancelReason: r.Reason, Fragment: r.Fragment}
	for _, b := range r.Events {
		ev := &mvccpb.Event{}
		if err := proto.Unmarshal(b, ev); err != nil {
			panic(err)
		}
		m.Events = append(m.Events, ev)
	}
	return m
}

// gen makes random messages.
type gen struct{ *rand.Rand }

func newGen(seed uint64) gen { return gen{rand.New(rand.NewPCG(seed, 0))} }

func (g gen) flag() bool { return g.IntN(2) == 0 }

func (g gen) number() int64 {
	switch g.IntN(5) {
	case 0:
		return 0
	case 1:
		return int64(g.IntN(3))
	case 2:
		return -int64(g.Uint64() >> (1 + g.IntN(63)))
	}
	return int64(g.Uint64() >> g.IntN(64))
}

func (g gen) bytes() []byte {
	n := g.IntN(6)
	if g.IntN(20) == 0 {
		n = 100 + g.IntN(200)
	}
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(g.Uint32())
	}
	return b
}

func (g gen) header() kv.Header {
	return kv.Header{ClusterID: uint64(g.number()), MemberID: uint64(g.number()),
		Revision: g.number(), Term: uint64(g.number())}
}

func (g gen) rangeRequest() *etcdserverpb.RangeRequest {
	return &etcdserverpb.RangeRequest{Key: g.bytes(), RangeEnd: g.bytes(), Limit: g.number(),
		Revision:     g.number(),
		SortOrder:    etcdserverpb.RangeRequest_SortOrder(g.number()),
		SortTarget:   etcdserverpb.RangeRequest_SortTarget(g.number()),
		Serializable: g.flag(), KeysOnly: g.flag(), CountOnly: g.flag(), MinModRevision: g.number(),
		MaxModRevision:    g.number(),
		MinCreateRevision: g.number(), MaxCreateRevision: g.number()}
}

func (g gen) putRequest() *etcdserverpb.PutRequest {
	return &etcdserverpb.PutRequest{Key: g.bytes(), Value: g.bytes(), Lease: g.number(),
		PrevKv: g.flag(), IgnoreValue: g.flag(), IgnoreLease: g.flag()}
}

func (g gen) deleteRequest() *etcdserverpb.DeleteRangeRequest {
	return &etcdserverpb.DeleteRangeRequest{Key: g.bytes(), RangeEnd: g.bytes(), PrevKv: g.flag()}
}

func (g gen) compare() *etcdserverpb.Compare {
	c := &etcdserverpb.Compare{Key: g.bytes(), RangeEnd: g.bytes(),
		Result: etcdserverpb.Compare_CompareResult(g.IntN(5)),
		Target: etcdserverpb.Compare_CompareTarget(g.IntN(6))}
	switch g.IntN(6) {
	case 0:
		c.TargetUnion = &etcdserverpb.Compare_Version{Version: g.number()}
	case 1:
		c.TargetUnion = &etcdserverpb.Compare_CreateRevision{CreateRevision: g.number()}
	case 2:
		c.TargetUnion = &etcdserverpb.Compare_ModRevision{ModRevision: g.number()}
	case 3:
		c.TargetUnion = &etcdserverpb.Compare_Value{Value: g.bytes()}
	case 4:
		c.TargetUnion = &etcdserverpb.Compare_Lease{Lease: g.number()}
	}
	return c
}

func (g gen) txnRequest(depth int) *etcdserverpb.TxnRequest {
	m := &etcdserverpb.TxnRequest{}
	for range g.IntN(3) {
		m.Compare = append(m.Compare, g.compare())
	}
	for range g.IntN(4) {
		m.Success = append(m.Success, g.op(depth))
	}
	for range g.IntN(4) {
		m.Failure = append(m.Failure, g.op(depth))
	}
	return m
}

func (g gen) op(depth int) *etcdserverpb.RequestOp {
	switch n := g.IntN(5); {
	case n == 0:
		return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestRange{RequestRange: g.rangeRequest()}}
	case n == 1:
		return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestPut{RequestPut: g.putRequest()}}
	case n == 2:
		return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestDeleteRange{RequestDeleteRange: g.deleteRequest()}}
	case n == 3 && depth > 0:
		return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestTxn{RequestTxn: g.txnRequest(depth - 1)}}
	}
	return &etcdserverpb.RequestOp{}
}

func (g gen) watchRequest() *etcdserverpb.WatchRequest {
	m := &etcdserverpb.WatchRequest{}
	switch g.IntN(5) {
	case 0, 1:
		c := &etcdserverpb.WatchCreateRequest{Key: g.bytes(), RangeEnd: g.bytes(),
			StartRevision: g.number(), ProgressNotify: g.flag(),
			PrevKv: g.flag(), WatchId: g.number(), Fragment: g.flag()}
		for range g.IntN(3) {
			c.Filters = append(c.Filters, etcdserverpb.WatchCreateRequest_FilterType(g.IntN(4)-1))
		}
		m.RequestUnion = &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: c}
	case 2:
		m.RequestUnion = &etcdserverpb.WatchRequest_CancelRequest{CancelRequest: &etcdserverpb.WatchCancelRequest{WatchId: g.number()}}
	case 3:
		m.RequestUnion = &etcdserverpb.WatchRequest_ProgressRequest{ProgressRequest: &etcdserverpb.WatchProgressRequest{}}
	}
	return m
}

func (g gen) record() []byte {
	b, err := proto.Marshal(&mvccpb.KeyValue{Key: g.bytes(), Value: g.bytes(),
		CreateRevision: g.number(), ModRevision: g.number(),
		Version: g.number(), Lease: g.number()})
	if err != nil {
		panic(err)
	}
	return b
}

func (g gen) records() kv.Records {
	var r kv.Records
	for range g.IntN(4) {
		r.Buf = append(r.Buf, g.record()...)
		r.Close()
	}
	return r
}

func (g gen) rangeResult() *kv.RangeResult {
	r := &kv.RangeResult{Revision: g.number(), KVs: g.records(), Count: g.number(), More: g.flag()}
	if g.IntN(3) == 0 && r.KVs.Len() > 0 {
		r.KVs = g.lengthen(&r.KVs)
	}
	return r
}

// lengthen makes a long list of a short one, in pieces of any size.
func (g gen) lengthen(r *kv.Records) kv.Records {
	var all []byte
	for i := range r.Len() {
		all = pbfield.AppendPresent(all, 2, r.At(i))
	}
	l := &kv.LongRecords{Bytes: len(all), N: r.Len()}
	for len(all) > 0 {
		p := all[:1+g.IntN(len(all))]
		l.Pieces, all = append(l.Pieces, &p), all[len(p):]
	}
	return kv.Records{Long: l}
}

// listed returns the records of a list, long or not.
func listed(r *kv.Records) (list [][]byte) {
	if r.Long == nil {
		for i := range r.Len() {
			list = append(list, r.At(i))
		}
		return list
	}
	var all []byte
	for _, p := range r.Long.Pieces {
		all = append(all, *p...)
	}
	var one []byte
	for r := pbfield.Read(all); r.Next(); {
		for r.Message(2, &one) {
			list = append(list, one)
		}
	}
	return list
}

func (g gen) putResult() *kv.PutResult {
	r := &kv.PutResult{Revision: g.number()}
	switch g.IntN(4) {
	case 0:
		r.PrevKV = g.record()
	case 1:
		r.PrevKV = []byte{} // a pair of which every field is zero is still there
	}
	return r
}

func (g gen) deleteResult() *kv.DeleteRangeResult {
	return &kv.DeleteRangeResult{Revision: g.number(), Deleted: g.number(), PrevKVs: g.records()}
}

func (g gen) txnResult(depth int) *kv.TxnResult {
	r := &kv.TxnResult{Revision: g.number(), Succeeded: g.flag()}
	for range g.IntN(5) {
		var op kv.OpResult
		switch n := g.IntN(5); {
		case n == 0:
			op.Range = g.rangeResult()
		case n == 1:
			op.Put = g.putResult()
		case n == 2:
			op.Delete = g.deleteResult()
		case n == 3 && depth > 0:
			op.Txn = g.txnResult(depth - 1)
		}
		r.Responses = append(r.Responses, op)
	}
	return r
}

func (g gen) watchResponse() *WatchResponse {
	r := &WatchResponse{Header: g.header(), WatchID: g.number(), Created: g.flag(),
		Canceled: g.flag(), CompactRevision: g.number(), Fragment: g.flag()}
	if g.IntN(3) == 0 {
		r.Reason = "etcdserver: mvcc: required revision has been compacted"
	}
	for range g.IntN(4) {
		ev := &mvccpb.Event{Type: mvccpb.Event_EventType(g.IntN(2)), Kv: recordPB(g.record())}
		if g.flag() {
			ev.PrevKv = recordPB(g.record())
		}
		b, err := proto.Marshal(ev)
		if err != nil {
			panic(err)
		}
		r.Events = append(r.Events, b)
	}
	return r
}
