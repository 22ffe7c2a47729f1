package api

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"vigil/client/pbfield"
)

// same fails unless enc decodes to want.
func same(t *testing.T, enc []byte, got, want proto.Message) {
	t.Helper()
	if err := proto.Unmarshal(enc, got); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got, want) {
		t.Fatalf("got  %v\nwant %v", got, want)
	}
}

func marshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRequestsDecode(t *testing.T) {
	k, v := []byte("key"), bytes.Repeat([]byte("v"), 300)
	r := RangeRequest{Key: k, End: []byte("l"), Limit: 500, Revision: 7, Serializable: true,
		KeysOnly: true, CountOnly: true}
	same(t, r.Append(nil), &pb.RangeRequest{},
		&pb.RangeRequest{Key: k, RangeEnd: []byte("l"), Limit: 500, Revision: 7, Serializable: true,
			KeysOnly: true, CountOnly: true})
	same(t, AppendPut(nil, k, v), &pb.PutRequest{}, &pb.PutRequest{Key: k, Value: v})
	same(t, AppendDelete(nil, k, []byte{0}), &pb.DeleteRangeRequest{},
		&pb.DeleteRangeRequest{Key: k, RangeEnd: []byte{0}})
	same(t, AppendCompact(nil, 9, true), &pb.CompactionRequest{},
		&pb.CompactionRequest{Revision: 9, Physical: true})
	same(t, AppendMemberAdd(nil, "http://a:1"), &pb.MemberAddRequest{},
		&pb.MemberAddRequest{PeerURLs: []string{"http://a:1"}})
	same(t, AppendMemberRemove(nil, 1<<63), &pb.MemberRemoveRequest{},
		&pb.MemberRemoveRequest{ID: 1 << 63})
	put := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: k,
		Value: v}}}
	for _, rev := range []int64{0, 12345} {
		same(t, AppendUpdateTxn([]byte{}, k, v, rev), &pb.TxnRequest{}, &pb.TxnRequest{
			Compare: []*pb.Compare{{Target: pb.Compare_MOD, Result: pb.Compare_EQUAL, Key: k,
				TargetUnion: &pb.Compare_ModRevision{ModRevision: rev}}},
			Success: []*pb.RequestOp{put},
			Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: k}}}},
		})
	}
	same(t, AppendTxnPut(AppendTxnPut(nil, k, v), k, v), &pb.TxnRequest{},
		&pb.TxnRequest{Success: []*pb.RequestOp{put, put}})
	w := WatchCreate{Key: k, End: v, StartRevision: 5, WatchID: 6, ProgressNotify: true,
		PrevKV: true, Fragment: true}
	same(t, w.Append(nil), &pb.WatchRequest{},
		&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
			Key: k, RangeEnd: v, StartRevision: 5, WatchId: 6, ProgressNotify: true, PrevKv: true,
			Fragment: true}}})
	same(t, AppendWatchCancel(nil, 3), &pb.WatchRequest{},
		&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: 3}}})
	same(t, AppendWatchProgress(nil), &pb.WatchRequest{},
		&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
}

func header(rev int64) *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: 1 << 63, MemberId: 3, Revision: rev, RaftTerm: 4}
}

func someKVs(n, size int) []*mvccpb.KeyValue {
	var kvs []*mvccpb.KeyValue
	for i := range n {
		kvs = append(kvs, &mvccpb.KeyValue{Key: []byte{'k', byte(i)},
			Value:          bytes.Repeat([]byte{byte(i)}, size),
			CreateRevision: 2, ModRevision: int64(100 + i), Version: 5, Lease: 77})
	}
	return kvs
}

func TestRangeAnswer(t *testing.T) {
	kvs := someKVs(20, 300)
	b := marshal(t, &pb.RangeResponse{Header: header(9), Kvs: kvs, More: true, Count: 1000})
	var a RangeAnswer
	i := 0
	err := a.Read(b, func(kv *KeyValue) error {
		w := kvs[i]
		if !bytes.Equal(kv.Key, w.Key) || !bytes.Equal(kv.Value, w.Value) ||
			kv.Create != w.CreateRevision ||
			kv.Mod != w.ModRevision || kv.Version != w.Version || kv.Lease != w.Lease {
			t.Fatalf("key %d is %+v", i, kv)
		}
		i++
		return nil
	})
	if err != nil || a.Keys != 20 || i != 20 || !a.More || a.Count != 1000 ||
		a.Header != (Header{1 << 63, 3, 9, 4}) {
		t.Fatalf("%+v %v", a, err)
	}

	// In parts of any size the counter sees the same.
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var c RangeCounter
		for p := b; len(p) > 0; {
			n := 1 + rng.IntN(min(len(p), 400))
			if err := c.Add(p[:n]); err != nil {
				t.Fatal(err)
			}
			p = p[n:]
		}
		if c.Whole() != nil || c.Keys != 20 || c.Count != 1000 {
			t.Fatalf("seed %d: %+v", seed, c)
		}
	}
	var c RangeCounter
	if err := c.Add(b[:len(b)/2]); err != nil || c.Whole() == nil {
		t.Fatal("half an answer is whole")
	}
}

func TestOtherAnswers(t *testing.T) {
	var txn TxnAnswer
	b := marshal(t, &pb.TxnResponse{Header: header(8), Succeeded: true, Responses: []*pb.ResponseOp{
		{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{Header: header(8)}}}}})
	if err := txn.Read(b); err != nil || !txn.Succeeded || txn.Responses != 1 ||
		txn.Header.Revision != 8 {
		t.Fatalf("%+v %v", txn, err)
	}
	if h, err := ReadHeader(marshal(t, &pb.PutResponse{Header: header(6)})); err != nil ||
		h.Revision != 6 {
		t.Fatalf("%+v %v", h, err)
	}
	var st StatusAnswer
	if err := st.Read(marshal(t,
		&pb.StatusResponse{Header: header(6), Version: "3.7.3", DbSize: 10, DbSizeInUse: 9,
			Leader: 7})); err != nil ||
		st.Version != "3.7.3" || st.DBSize != 10 || st.DBSizeInUse != 9 || st.Leader != 7 {
		t.Fatalf("%+v %v", st, err)
	}
	kvs := someKVs(3, 10)
	m := &pb.WatchResponse{Header: header(5), WatchId: 4, Created: true, Canceled: true,
		CompactRevision: 3, CancelReason: "why", Fragment: true,
		Events: []*mvccpb.Event{{Kv: kvs[0]},
			{Type: mvccpb.Event_DELETE, Kv: kvs[1], PrevKv: kvs[2]}}}
	var w WatchAnswer
	var evs []Event
	if err := w.Read(marshal(t, m),
		func(ev *Event) error { evs = append(evs, *ev); return nil }); err != nil {
		t.Fatal(err)
	}
	if w != (WatchAnswer{5, 4, 3, true, true, true, "why", 2}) {
		t.Fatalf("%+v", w)
	}
	if len(evs) != 2 || evs[0].Delete || evs[0].Prev != 0 || evs[0].KV.Mod != 100 ||
		!evs[1].Delete || evs[1].Prev != proto.Size(kvs[2]) {
		t.Fatalf("%+v", evs)
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add([]byte{0x0a, 2, 8, 1, 0x12, 3, 1, 2, 3})
	f.Add([]byte{0x5a, 4, 0x12, 2, 0x18, 9})
	f.Fuzz(func(t *testing.T, b []byte) {
		var r RangeAnswer
		var c RangeCounter
		var w WatchAnswer
		var x TxnAnswer
		var s StatusAnswer
		for _, err := range []error{
			r.Read(b, func(*KeyValue) error { return nil }),
			w.Read(b, func(*Event) error { return nil }), x.Read(b), s.Read(b), c.Add(b),
		} {
			if err != nil && !errors.Is(err, pbfield.ErrInvalid) {
				t.Fatal(err)
			}
		}
	})
}
