package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	rpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/edge/rpc/gate"
	"vigil/internal/edge/rpc/transport"
	"vigil/internal/kv"
)

func wantStatus(t *testing.T, err, want error) {
	t.Helper()
	if status.Code(err) != status.Code(want) ||
		rpctypes.ErrorDesc(err) != rpctypes.ErrorDesc(want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

func wantEqual(t *testing.T, got, want proto.Message) {
	t.Helper()
	if !proto.Equal(got, want) {
		t.Errorf("\n got %v\nwant %v", got, want)
	}
}

func TestKV(t *testing.T) {
	f := start(t, nil)
	ctx := t.Context()
	head := func(rev int64) *etcdserverpb.ResponseHeader {
		return &etcdserverpb.ResponseHeader{ClusterId: 0xc1, MemberId: 0xa1,
			Revision: rev, RaftTerm: 7}
	}
	put, err := f.KV.Put(ctx,
		&etcdserverpb.PutRequest{Key: []byte("k"), Value: []byte("v1"), Lease: 5})
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, put, &etcdserverpb.PutResponse{Header: head(2)})
	put, err = f.KV.Put(ctx,
		&etcdserverpb.PutRequest{Key: []byte("k"),
			Value: bytes.Repeat([]byte("v"), 5000), PrevKv: true})
	if err != nil {
		t.Fatal(err)
	}
	if put.PrevKv == nil || string(put.PrevKv.Value) != "v1" || put.PrevKv.Lease != 5 {
		t.Errorf("prev_kv is %v", put.PrevKv)
	}
	get, err := f.KV.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte("k")})
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, get.Header, head(3))
	if get.Count != 1 || len(get.Kvs) != 1 || len(get.Kvs[0].Value) != 5000 ||
		get.Kvs[0].Version != 2 {
		t.Errorf("range is %v", get)
	}
	txn, err := f.KV.Txn(ctx, &etcdserverpb.TxnRequest{Success: []*etcdserverpb.RequestOp{
		{Request: &etcdserverpb.RequestOp_RequestPut{RequestPut: &etcdserverpb.PutRequest{Key: []byte("a")}}},
		{Request: &etcdserverpb.RequestOp_RequestRange{RequestRange: &etcdserverpb.RangeRequest{Key: []byte("a")}}},
		{Request: &etcdserverpb.RequestOp_RequestTxn{RequestTxn: &etcdserverpb.TxnRequest{}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, txn.Header, head(4))
	only := &etcdserverpb.ResponseHeader{Revision: 4}
	wantEqual(t, txn.Responses[0],
		&etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponsePut{ResponsePut: &etcdserverpb.PutResponse{Header: only}}})
	wantEqual(t, txn.Responses[1].GetResponseRange().Header, only)
	wantEqual(t, txn.Responses[2],
		&etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponseTxn{
			ResponseTxn: &etcdserverpb.TxnResponse{Header: &etcdserverpb.ResponseHeader{},
				Succeeded: true}}})
	del, err := f.KV.DeleteRange(ctx,
		&etcdserverpb.DeleteRangeRequest{Key: []byte("a"), RangeEnd: []byte{0}, PrevKv: true})
	if err != nil {
		t.Fatal(err)
	}
	if del.Deleted != 2 || len(del.PrevKvs) != 2 || del.Header.Revision != 5 {
		t.Errorf("delete is %v", del)
	}
	compact, err := f.KV.Compact(ctx, &etcdserverpb.CompactionRequest{Revision: 2, Physical: true})
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, compact, &etcdserverpb.CompactionResponse{Header: head(5)})
	got := f.kv.takeRequests()
	if r := got[len(got)-1].(*kv.CompactRequest); r.Revision != 2 || !r.Physical {
		t.Errorf("compacted with %+v", r)
	}
}

// TestRequestsAreKept: a request that the member keeps does not change when others are received.
func TestRequestsAreKept(t *testing.T) {
	f := start(t, nil)
	for i := range 200 {
		value := bytes.Repeat([]byte{byte(i)}, 10+i*100)
		if _, err := f.KV.Put(t.Context(),
			&etcdserverpb.PutRequest{Key: fmt.Append(nil, "key", i), Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	for i, got := range f.kv.takeRequests() {
		r := got.(*kv.PutRequest)
		if string(r.Key) != fmt.Sprint("key", i) ||
			!bytes.Equal(r.Value, bytes.Repeat([]byte{byte(i)}, 10+i*100)) {
			t.Fatalf("request %d has changed", i)
		}
	}
}

func TestErrorsReachTheClient(t *testing.T) {
	f := start(t, nil)
	for _, row := range []struct{ from, to error }{
		{kv.ErrNoSpace, rpctypes.ErrGRPCNoSpace},
		{kv.ErrTooManyRequests, rpctypes.ErrGRPCRequestTooManyRequests},
		{kv.ErrNoLeader, rpctypes.ErrGRPCNoLeader},
	} {
		f.kv.setFail(fmt.Errorf("put: %w", row.from))
		_, err := f.KV.Put(t.Context(), &etcdserverpb.PutRequest{Key: []byte("k")})
		wantStatus(t, err, row.to)
	}
	f.kv.setFail(&kv.CompactedError{CompactRevision: 5})
	_, err := f.KV.Range(t.Context(), &etcdserverpb.RangeRequest{Key: []byte("k")})
	wantStatus(t, err, rpctypes.ErrGRPCCompacted)
	f.kv.setFail(errors.New("something else"))
	_, err = f.KV.Txn(t.Context(), &etcdserverpb.TxnRequest{})
	wantStatus(t, err, status.Error(codes.Unknown, "something else"))
	f.kv.setFail(context.DeadlineExceeded)
	_, err = f.KV.Compact(t.Context(), &etcdserverpb.CompactionRequest{})
	wantStatus(t, err, status.Error(codes.DeadlineExceeded, "context deadline exceeded"))
	f.kv.setFail(kv.ErrTimeout)
	f.member.fail.Store(f.kv.fail.Load())
	_, err = f.Cluster.MemberList(t.Context(), &etcdserverpb.MemberListRequest{Linearizable: true})
	wantStatus(t, err, rpctypes.ErrGRPCTimeout)
	if got := apierror.Text(kv.ErrTimeout); got != "etcdserver: request timed out" {
		t.Errorf("text %q", got)
	}
	if err := apierror.Status(fmt.Errorf("reading: %w",
		&fs.PathError{Op: "read", Path: "/data/file",
			Err: errors.New("failed")})); strings.Contains(err.Error(), "/data") {
		t.Errorf("%v", err)
	}
	if apierror.Status(nil) != nil {
		t.Error("no error has a status")
	}
}

func TestRequestTooLarge(t *testing.T) {
	const limit = 100 << 10
	f := start(t, func(c *Config) { c.MaxRequestBytes = limit })
	put := func(size int) error {
		_, err := f.KV.Put(t.Context(),
			&etcdserverpb.PutRequest{Key: []byte("k"), Value: make([]byte, size)})
		return err
	}
	// The value has 1+1+1 bytes of key and 1+3 of its own length before it, the request 1+3 and the
	// header 14.
	const fits = limit - 7 - 4 - 14
	if err := put(fits); err != nil {
		t.Errorf("the largest value: %v", err)
	}
	wantStatus(t, put(fits+1), rpctypes.ErrGRPCRequestTooLarge)
	// The error of an invalid request comes before the error of its size.
	_, err := f.KV.Put(t.Context(), &etcdserverpb.PutRequest{Value: make([]byte, limit)})
	wantStatus(t, err, rpctypes.ErrGRPCEmptyKey)
	// A request that is not proposed has only the limit of the transport.
	key := make([]byte, limit)
	if _, err := f.KV.Range(t.Context(), &etcdserverpb.RangeRequest{Key: key}); err != nil {
		t.Error(err)
	}
	get := &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestRange{RequestRange: &etcdserverpb.RangeRequest{Key: key}}}
	if _, err := f.KV.Txn(t.Context(),
		&etcdserverpb.TxnRequest{Success: []*etcdserverpb.RequestOp{get}}); err != nil {
		t.Error(err)
	}
	put2 := &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestPut{RequestPut: &etcdserverpb.PutRequest{Key: []byte("p")}}}
	_, err = f.KV.Txn(t.Context(),
		&etcdserverpb.TxnRequest{Success: []*etcdserverpb.RequestOp{get, put2}})
	wantStatus(t, err, rpctypes.ErrGRPCRequestTooLarge)
	_, err = f.KV.DeleteRange(t.Context(), &etcdserverpb.DeleteRangeRequest{Key: key})
	wantStatus(t, err, rpctypes.ErrGRPCRequestTooLarge)
	err = put(limit + overhead)
	if status.Code(err) != codes.ResourceExhausted ||
		!strings.Contains(err.Error(), "received message larger than max") {
		t.Errorf("error %v", err)
	}
}

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Name() string                    { return "proto" }
func (rawCodec) Marshal(v any) ([]byte, error)   { return v.([]byte), nil }
func (rawCodec) Unmarshal(b []byte, v any) error { *v.(*[]byte) = bytes.Clone(b); return nil }

func TestMalformedRequests(t *testing.T) {
	f := start(t, nil)
	var reply []byte
	for _, method := range []string{"Range", "Put", "DeleteRange", "Txn", "Compact"} {
		err := f.conn.Invoke(t.Context(), "/etcdserverpb.KV/"+method, []byte{0x0a, 0xff}, &reply,
			grpc.ForceCodec(rawCodec{}))
		wantStatus(t, err, status.Error(codes.Internal,
			"grpc: failed to unmarshal the received message: proto: cannot parse invalid wire-format data"))
	}
	if err := f.conn.Invoke(t.Context(), "/etcdserverpb.KV/Nothing", []byte{}, &reply,
		grpc.ForceCodec(rawCodec{})); status.Code(err) != codes.Unimplemented {
		t.Errorf("error %v", err)
	}
	if got := f.kv.takeRequests(); len(got) != 0 {
		t.Errorf("the member was asked %v", got)
	}
}

func TestRangeStream(t *testing.T) {
	f := start(t, func(c *Config) { c.MaxRequestBytes = 8 << 10 })
	for i := range 500 {
		if _, err := f.KV.Put(t.Context(),
			&etcdserverpb.PutRequest{Key: fmt.Appendf(nil, "k%03d", i),
				Value: make([]byte, 100)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range []*etcdserverpb.RangeRequest{
		{Key: []byte("k"), RangeEnd: []byte("l")},
		{Key: []byte{0}, RangeEnd: []byte{0}, Limit: 333},
		{Key: []byte("k"), RangeEnd: []byte("l"), Limit: 500},
		{Key: []byte("k"), RangeEnd: []byte("l"), Limit: 3},
		{Key: []byte("k"), RangeEnd: []byte("l"), Limit: -1},
		{Key: []byte("k"), RangeEnd: []byte("l"), CountOnly: true},
		{Key: []byte("k007")},
		{Key: []byte("none")},
		{Key: []byte("k"), RangeEnd: []byte("l"), SortOrder: etcdserverpb.RangeRequest_ASCEND},
	} {
		want, err := f.KV.Range(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		f.kv.takeRequests()
		stream, err := f.KV.RangeStream(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		got, chunks := &etcdserverpb.RangeResponse{}, 0
		for {
			m, err := stream.Recv()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Header != nil {
				t.Fatal("a chunk behind the one with the header")
			}
			chunks++
			got.Header, got.More, got.Count = m.RangeResponse.Header, m.RangeResponse.More,
				m.RangeResponse.Count
			got.Kvs = append(got.Kvs, m.RangeResponse.Kvs...)
		}
		wantEqual(t, got, want)
		if len(want.Kvs) > 300 && chunks < 5 {
			t.Errorf("%v came in %d chunks", r, chunks)
		}
		for i, req := range f.kv.takeRequests() {
			if r := req.(*kv.RangeRequest); i > 0 && (r.Revision != 501 || !r.Serializable) {
				t.Errorf("chunk %d was read with %+v", i, r)
			}
		}
	}
	for _, c := range []struct {
		r    *etcdserverpb.RangeRequest
		want error
	}{
		{&etcdserverpb.RangeRequest{}, rpctypes.ErrGRPCEmptyKey},
		{&etcdserverpb.RangeRequest{Key: []byte("k"), SortOrder: etcdserverpb.RangeRequest_DESCEND},
			status.Error(codes.Unimplemented, "RangeStream does not support custom sort orders")},
		{&etcdserverpb.RangeRequest{Key: []byte("k"), SortOrder: 1,
			SortTarget: etcdserverpb.RangeRequest_MOD},
			status.Error(codes.Unimplemented, "RangeStream does not support custom sort orders")},
		{&etcdserverpb.RangeRequest{Key: []byte("k"), MinModRevision: 1},
			status.Error(codes.Unimplemented, "RangeStream does not support revision filters")},
	} {
		stream, err := f.KV.RangeStream(t.Context(), c.r)
		if err != nil {
			t.Fatal(err)
		}
		_, err = stream.Recv()
		wantStatus(t, err, c.want)
	}
	// Compaction may overtake the revision between two chunks.
	calls := 0
	hook := func(context.Context) error {
		if calls++; calls > 1 {
			return kv.ErrCompacted
		}
		return nil
	}
	f.kv.hook.Store(&hook)
	stream, err := f.KV.RangeStream(t.Context(),
		&etcdserverpb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	wantStatus(t, err, rpctypes.ErrGRPCCompacted)
}

func TestMaintenanceAndCluster(t *testing.T) {
	f := start(t, nil)
	f.member.alarms = []kv.Alarm{{MemberID: 161, Type: kv.AlarmNoSpace}}
	line := (&etcdserverpb.AlarmMember{MemberID: 161,
		Alarm: etcdserverpb.AlarmType_NOSPACE}).String()
	st, err := f.Maintenance.Status(t.Context(), &etcdserverpb.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want := &etcdserverpb.StatusResponse{
		Header: &etcdserverpb.ResponseHeader{ClusterId: 0xc1, MemberId: 0xa1,
			Revision: 1, RaftTerm: 7},
		Version: "3.7.3", StorageVersion: "3.7.0", DbSize: 4096, DbSizeInUse: 100,
		DbSizeQuota: 2 << 30, Leader: 0xa1,
		RaftIndex: 12, RaftAppliedIndex: 11, RaftTerm: 7, Errors: []string{line},
		DowngradeInfo: &etcdserverpb.DowngradeInfo{}}
	wantEqual(t, st, want)
	f.member.leader.Store(0)
	if st, err = f.Maintenance.Status(t.Context(), &etcdserverpb.StatusRequest{}); err != nil {
		t.Fatal(err)
	}
	want.Leader, want.Errors = 0, []string{"etcdserver: no leader", line}
	wantEqual(t, st, want)
	f.member.diskFull.Store(true)
	if st, err = f.Maintenance.Status(t.Context(), &etcdserverpb.StatusRequest{}); err != nil {
		t.Fatal(err)
	}
	want.Errors = append(want.Errors,
		"vigil: the disk is full: puts are rejected until it has free space")
	wantEqual(t, st, want)

	list, err := f.Cluster.MemberList(t.Context(),
		&etcdserverpb.MemberListRequest{Linearizable: true})
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, list, &etcdserverpb.MemberListResponse{
		Header: &etcdserverpb.ResponseHeader{ClusterId: 0xc1, MemberId: 0xa1, RaftTerm: 7},
		Members: []*etcdserverpb.Member{
			{ID: 0xa1, Name: "one", PeerURLs: []string{"http://a:2380"},
				ClientURLs: []string{"http://a:2379"}},
			{ID: 0xa2, PeerURLs: []string{"http://b:2380"}, IsLearner: true}}})

	defrag, err := f.Maintenance.Defragment(t.Context(), &etcdserverpb.DefragmentRequest{})
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, defrag, &etcdserverpb.DefragmentResponse{})
	if n := f.member.reclaimed.Load(); n != 1 {
		t.Errorf("reclaim was asked for %d times", n)
	}
	if _, err := f.Maintenance.MoveLeader(t.Context(),
		&etcdserverpb.MoveLeaderRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("error %v", err)
	}
	if _, err := f.Cluster.MemberAdd(t.Context(),
		&etcdserverpb.MemberAddRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("error %v", err)
	}
}

func TestMetadata(t *testing.T) {
	f := start(t, nil)
	put := func(pairs ...string) error {
		_, err := f.KV.Put(metadata.AppendToOutgoingContext(t.Context(), pairs...),
			&etcdserverpb.PutRequest{Key: []byte("k")})
		return err
	}
	if err := put("hasleader", "true", "client-api-version", "3.7", "token", "x", "authorization",
		"y"); err != nil {
		t.Error(err)
	}
	// The client of grpc-go sends only ASCII.
	bad := metadata.NewOutgoingContext(t.Context(), metadata.Pairs("client-api-version", "\xff"))
	err := f.InProcess().Call(bad, etcdserverpb.KV_Compact_FullMethodName, nil, nil)
	wantStatus(t, err, rpctypes.ErrGRPCInvalidClientAPIVersion)
	f.member.leader.Store(0)
	if err := put(); err != nil {
		t.Error(err)
	}
	if err := put("hasleader", "yes"); err != nil {
		t.Error(err)
	}
	wantStatus(t, put("hasleader", "true"), rpctypes.ErrGRPCNoLeader)
	_, err = f.Maintenance.Status(metadata.AppendToOutgoingContext(t.Context(), "hasleader",
		"true"), &etcdserverpb.StatusRequest{})
	wantStatus(t, err, rpctypes.ErrGRPCNoLeader)
	for i := range 2 * gate.MaxVersions {
		if err := put("client-api-version", fmt.Sprint("v", i)); err != nil {
			t.Fatal(err)
		}
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(f.metrics)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, fam := range families {
		for _, m := range fam.Metric {
			name := fam.GetName()
			for _, l := range m.Label {
				name += "," + l.GetValue()
			}
			counts[name] = m.Counter.GetValue()
		}
	}
	for name, want := range map[string]float64{
		"etcd_server_client_requests_total,3.7,unary":     1,
		"etcd_server_client_requests_total,unknown,unary": 4,
		"etcd_server_client_requests_total,other,unary": 2*gate.MaxVersions - gate.MaxVersions +
			2,
		"grpc_server_started_total,Put,etcdserverpb.KV,unary": 4 +
			2*gate.MaxVersions,
		"grpc_server_handled_total,OK,Put,etcdserverpb.KV,unary": 3 +
			2*gate.MaxVersions,
		"grpc_server_handled_total,Unavailable,Put,etcdserverpb.KV,unary": 1,
		"grpc_server_msg_received_total,Put,etcdserverpb.KV,unary": 4 +
			2*gate.MaxVersions,
		"grpc_server_msg_sent_total,Put,etcdserverpb.KV,unary": 3 +
			2*gate.MaxVersions,
		"grpc_server_handled_total,Unavailable,Status,etcdserverpb.Maintenance,unary": 1,
		"grpc_server_started_total,Watch,etcdserverpb.Watch,bidi_stream":              0,
		"grpc_server_started_total,Snapshot,etcdserverpb.Maintenance,server_stream":   0,
		"grpc_server_started_total,Check,grpc.health.v1.Health,unary":                 0,
	} {
		if got, ok := counts[name]; !ok || got != want {
			t.Errorf("%s is %v (%v), want %v", name, got, ok, want)
		}
	}
	if counts["etcd_network_client_grpc_received_bytes_total"] == 0 ||
		counts["etcd_network_client_grpc_sent_bytes_total"] == 0 {
		t.Error("no bytes were counted")
	}
}

func TestLearner(t *testing.T) {
	f := start(t, nil)
	f.member.learner.Store(true)
	no := rpctypes.ErrGRPCNotSupportedForLearner
	_, err := f.KV.Range(t.Context(), &etcdserverpb.RangeRequest{Key: []byte("k")})
	wantStatus(t, err, no)
	_, err = f.KV.Put(t.Context(), &etcdserverpb.PutRequest{Key: []byte("k")})
	wantStatus(t, err, no)
	_, err = f.Cluster.MemberList(t.Context(), &etcdserverpb.MemberListRequest{})
	wantStatus(t, err, no)
	stream, err := f.Watch.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	wantStatus(t, err, no)
	if _, err := f.KV.Range(t.Context(),
		&etcdserverpb.RangeRequest{Key: []byte("k"), Serializable: true}); err != nil {
		t.Error(err)
	}
	if st, err := f.Maintenance.Status(t.Context(), &etcdserverpb.StatusRequest{}); err != nil ||
		!st.IsLearner {
		t.Errorf("%v, %v", st, err)
	}
	if _, err := grpc_health_v1.NewHealthClient(f.conn).Check(t.Context(),
		&grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
}

func TestPanicsAreContained(t *testing.T) {
	f := start(t, nil)
	hook := func(context.Context) error { panic("boom") }
	f.kv.hook.Store(&hook)
	_, err := f.KV.Put(t.Context(), &etcdserverpb.PutRequest{Key: []byte("k")})
	wantStatus(t, err, transport.ErrPanic)
	broken := func(context.Context) error { f.kv.fail.Store(nil); return nil }
	f.kv.hook.Store(&broken)
	if _, err := f.KV.Put(t.Context(), &etcdserverpb.PutRequest{Key: []byte("k")}); err != nil {
		t.Error(err)
	}
	stream, err := f.Watch.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	hub := within(t, f.hub.streams)
	hub.panics.Store(true)
	if err := stream.Send(create("k")); err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	wantStatus(t, err, transport.ErrPanic)
	within(t, hub.closed)
	if log := f.log.String(); strings.Count(log, "panic in a request handler") != 2 ||
		!strings.Contains(log, "boom") || !strings.Contains(log, "stack=") {
		t.Errorf("log: %s", log)
	}
}

// nilKV answers with results that cannot be encoded.
type nilKV struct{ *fakeKV }

func (k nilKV) Do(ctx context.Context, w kv.Write) kv.Outcome {
	if w.DeleteRange == nil {
		return k.fakeKV.Do(ctx, w)
	}
	r := &kv.DeleteRangeResult{}
	r.PrevKVs.Ends = []int{5} // beyond the buffer
	return kv.Outcome{DeleteRange: r}
}

func TestPanicInEncoding(t *testing.T) {
	f := start(t, func(c *Config) { c.KV = nilKV{c.KV.(*fakeKV)} })
	_, err := f.KV.DeleteRange(t.Context(), &etcdserverpb.DeleteRangeRequest{Key: []byte("k")})
	if status.Code(err) != codes.Internal {
		t.Errorf("error %v", err)
	}
	if _, err := f.KV.Put(t.Context(), &etcdserverpb.PutRequest{Key: []byte("k")}); err != nil {
		t.Error(err)
	}
}

// Each service name of health has its own state, and its watchers are notified.
func TestHealth(t *testing.T) {
	f := start(t, func(c *Config) { c.ElectionTimeout = 20 * time.Millisecond })
	client := grpc_health_v1.NewHealthClient(f.conn)
	watching := map[string]grpc_health_v1.Health_WatchClient{}
	for _, service := range []string{"", "liveness", "readiness"} {
		w, err := client.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		watching[service] = w
	}
	const yes, no = grpc_health_v1.HealthCheckResponse_SERVING,
		grpc_health_v1.HealthCheckResponse_NOT_SERVING
	type states map[string]grpc_health_v1.HealthCheckResponse_ServingStatus
	last := states{}
	for _, c := range []struct {
		name   string
		change func()
		want   states
	}{
		{"at first", func() {}, states{"": yes, "liveness": yes, "readiness": yes}},
		{"without a leader", func() { f.member.leader.Store(0) },
			states{"": yes, "liveness": yes, "readiness": no}},
		{"with a leader", func() { f.member.leader.Store(0xa1) },
			states{"": yes, "liveness": yes, "readiness": yes}},
		{"untrusted", func() { f.member.untrusted.Store(true) },
			states{"": no, "liveness": yes, "readiness": no}},
		{"trusted again", func() { f.member.untrusted.Store(false) },
			states{"": yes, "liveness": yes, "readiness": yes}},
		{"as a learner", func() { f.member.learner.Store(true) },
			states{"": yes, "liveness": yes, "readiness": no}},
	} {
		c.change()
		for service, want := range c.want {
			// Check answers with the present state.
			r, err := client.Check(t.Context(),
				&grpc_health_v1.HealthCheckRequest{Service: service})
			if err != nil || r.Status != want {
				t.Errorf("%s: service %q: %v, %v, want %v", c.name, service, r, err, want)
			}
			if last[service] == want {
				continue
			}
			last[service] = want
			if r, err := watching[service].Recv(); err != nil || r.Status != want {
				t.Errorf("%s: who watches service %q gets %v, %v, want %v", c.name,
					service, r, err, want)
			}
		}
	}
	if _, err := client.Check(t.Context(),
		&grpc_health_v1.HealthCheckRequest{Service: "etcdserverpb.KV"}); status.Code(err) != codes.NotFound {
		t.Errorf("a service that is not known: %v", err)
	}
}

func TestReflection(t *testing.T) {
	f := start(t, nil)
	stream, err := rpb.NewServerReflectionClient(f.conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(r *rpb.ServerReflectionRequest) *rpb.ServerReflectionResponse {
		t.Helper()
		if err := stream.Send(r); err != nil {
			t.Fatal(err)
		}
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	var names []string
	for _, s := range ask(&rpb.ServerReflectionRequest{MessageRequest: &rpb.ServerReflectionRequest_ListServices{}}).GetListServicesResponse().Service {
		names = append(names, s.Name)
	}
	for _, want := range []string{"etcdserverpb.KV", "etcdserverpb.Watch",
		"etcdserverpb.Maintenance", "etcdserverpb.Cluster", "grpc.health.v1.Health"} {
		if !strings.Contains(strings.Join(names, " "), want) {
			t.Errorf("%s is not among %v", want, names)
		}
	}
	for _, symbol := range []string{"etcdserverpb.KV", "etcdserverpb.Watch",
		"etcdserverpb.TxnRequest", "mvccpb.KeyValue"} {
		m := ask(&rpb.ServerReflectionRequest{MessageRequest: &rpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: symbol}})
		if len(m.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
			t.Errorf("%s: %v", symbol, m)
		}
	}
}

func TestStop(t *testing.T) {
	f := start(t, nil)
	// A call and a stream are under way.
	entered, release := make(chan struct{}), make(chan struct{})
	hook := func(context.Context) error { close(entered); <-release; return nil }
	f.kv.hook.Store(&hook)
	result := make(chan error, 1)
	go func() {
		_, err := f.KV.Put(context.Background(), &etcdserverpb.PutRequest{Key: []byte("k")})
		result <- err
	}()
	within(t, entered)
	stream, err := f.Watch.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	hub := within(t, f.hub.streams)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		f.Stop(context.Background())
	}()
	_, err = stream.Recv()
	wantStatus(t, err, rpctypes.ErrGRPCStopped)
	within(t, hub.closed)
	select {
	case <-stopped:
		t.Error("stopped while a call was under way")
	default:
	}
	close(release)
	if err := within(t, result); err != nil {
		t.Errorf("the call under way: %v", err)
	}
	within(t, stopped)
}

func TestStopDeadline(t *testing.T) {
	f := start(t, nil)
	entered := make(chan struct{})
	hook := func(ctx context.Context) error { close(entered); <-ctx.Done(); return ctx.Err() }
	f.kv.hook.Store(&hook)
	result := make(chan error, 1)
	go func() {
		_, err := f.KV.Put(context.Background(), &etcdserverpb.PutRequest{Key: []byte("k")})
		result <- err
	}()
	within(t, entered)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f.Stop(ctx)
	if err := within(t, result); err == nil {
		t.Error("the call that was stopped has no error")
	}
}

func TestSlowCallsAreLogged(t *testing.T) {
	f := start(t, func(c *Config) { c.WarnUnaryDuration = time.Nanosecond })
	if _, err := f.KV.Put(t.Context(),
		&etcdserverpb.PutRequest{Key: []byte("k"), Value: []byte("secret")}); err != nil {
		t.Fatal(err)
	}
	log := f.log.String()
	if !strings.Contains(log, `msg="request stats"`) ||
		!strings.Contains(log, "/etcdserverpb.KV/Put") || !strings.Contains(log, "127.0.0.1") {
		t.Errorf("log: %s", log)
	}
	if strings.Contains(log, "secret") {
		t.Error("a value was logged")
	}
}

func TestConfig(t *testing.T) {
	_, err := NewServer(Config{MaxRequestBytes: -1, MaxTxnOps: -1, ElectionTimeout: -1})
	for _, field := range []string{"KV", "Member", "Hasher", "NewWatchStream", "MaxRequestBytes",
		"MaxTxnOps", "ElectionTimeout"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not in %v", field, err)
		}
	}
}
