package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"vigil/client"
)

// answered returns a handler that returns the answers in turn. The calls of the first ones fail
// although they are sent.
func answered(request proto.Message, failing int,
	answers ...proto.Message) func(grpc.ServerStream) error {
	var n atomic.Int64
	return func(s grpc.ServerStream) error {
		if err := s.RecvMsg(request); err != nil {
			return err
		}
		i := int(n.Add(1))
		if err := s.SendMsg(answers[i-1]); err != nil || i > failing {
			return err
		}
		return rpctypes.ErrGRPCTimeout
	}
}

func found(keys ...string) (list []*mvccpb.KeyValue) {
	for _, k := range keys {
		list = append(list, &mvccpb.KeyValue{Key: []byte(k), ModRevision: 2,
			CreateRevision: 2, Version: 1})
	}
	return list
}

// TestAnswersAreNotMerged: the answer of a failed attempt is not part of the next one.
func TestAnswersAreNotMerged(t *testing.T) {
	f := start(t, &fake{raw: map[string]func(grpc.ServerStream) error{
		pb.KV_Range_FullMethodName: answered(new(pb.RangeRequest), 1,
			&pb.RangeResponse{Header: at(2), Kvs: found("a"), Count: 1, More: true},
			&pb.RangeResponse{Header: at(3)}),
		pb.KV_Txn_FullMethodName: answered(new(pb.TxnRequest), 1,
			&pb.TxnResponse{Header: at(2), Succeeded: true,
				Responses: []*pb.ResponseOp{{Response: &pb.ResponseOp_ResponseRange{
					ResponseRange: &pb.RangeResponse{Kvs: found("a")}}}}},
			&pb.TxnResponse{Header: at(3)}),
		pb.Lease_LeaseTimeToLive_FullMethodName: answered(new(pb.LeaseTimeToLiveRequest), 1,
			&pb.LeaseTimeToLiveResponse{Header: at(2), ID: 7, TTL: 5, Keys: [][]byte{[]byte("a")}},
			&pb.LeaseTimeToLiveResponse{Header: at(3), ID: 7}),
		pb.Cluster_MemberList_FullMethodName: answered(new(pb.MemberListRequest), 1,
			&pb.MemberListResponse{Header: at(2), Members: []*pb.Member{{ID: 1}}},
			&pb.MemberListResponse{Header: at(3), Members: []*pb.Member{{ID: 2}}}),
	}})
	c := to(t, f)
	if r, err := c.Get(t.Context(), "k", client.WithPrefix()); err != nil || len(r.KVs) != 0 ||
		r.More || r.Count != 0 || r.Header.Revision != 3 {
		t.Errorf("get: %+v, %v", r, err)
	}
	if r, err := c.Txn(t.Context()).If(client.Exists("a")).Then(client.OpGet("a")).Commit(); err != nil || r.Succeeded || len(r.Responses) != 0 || r.Header.Revision != 3 {
		t.Errorf("txn: %+v, %v", r, err)
	}
	if r, err := c.TimeToLive(t.Context(), 7, true); err != nil || len(r.Keys) != 0 ||
		r.Remaining != 0 || r.Header.Revision != 3 {
		t.Errorf("time to live: %+v, %v", r, err)
	}
	if r, err := c.Cluster().MemberList(t.Context()); err != nil || len(r.Members) != 1 ||
		r.Members[0].ID != 2 {
		t.Errorf("members: %+v, %v", r, err)
	}
}

// TestCorruptMember: calls and watchers leave a member that reports damaged data, and the writes
// that it rejected are made at another member.
func TestCorruptMember(t *testing.T) {
	var bad, good atomic.Int64
	wrong := start(t, &fake{
		get: func(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
			bad.Add(1)
			return nil, rpctypes.ErrGRPCCorrupt
		},
		put: func(context.Context, *pb.PutRequest) (*pb.PutResponse, error) {
			bad.Add(1)
			return nil, rpctypes.ErrGRPCCorrupt
		},
		watch: func(*fakeStream) error { return rpctypes.ErrGRPCCorrupt },
	})
	right := start(t, &fake{
		get: func(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
			good.Add(1)
			return &pb.RangeResponse{Header: at(2)}, nil
		},
		put: func(context.Context, *pb.PutRequest) (*pb.PutResponse, error) {
			good.Add(1)
			return &pb.PutResponse{Header: at(2)}, nil
		},
		watch: func(s *fakeStream) error {
			id := s.creates(1)[0].GetWatchId()
			if err := s.send(&pb.WatchResponse{WatchId: id, Created: true},
				&pb.WatchResponse{WatchId: id,
					Events: []*mvccpb.Event{event("k", 2)}}); err != nil {
				return err
			}
			return s.hold()
		},
	})
	for range 10 {
		c := to(t, wrong, right)
		want(t, c.Watch(limited(t), "k"), "k@2")
		if _, err := c.Put(t.Context(), "k", nil); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Get(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	if good.Load() != 20 || bad.Load() > 10 {
		t.Errorf("%d calls to the right member, %d to the wrong one", good.Load(), bad.Load())
	}
}

// TestConnGoesElsewhere: calls of Conn succeed although a learner is among the endpoints, and
// although the first token is refused. A write with an unknown outcome is not repeated.
func TestConnGoesElsewhere(t *testing.T) {
	refuse := func() error { return rpctypes.ErrGRPCNotSupportedForLearner }
	learner := start(t, &fake{
		get: func(context.Context, *pb.RangeRequest) (*pb.RangeResponse,
			error) {
			return nil, refuse()
		},
		put: func(context.Context, *pb.PutRequest) (*pb.PutResponse,
			error) {
			return nil, refuse()
		},
		keep: func(pb.Lease_LeaseKeepAliveServer) error { return refuse() },
		list: func(*pb.RangeRequest, pb.KV_RangeStreamServer) error { return refuse() },
	})
	var puts, tokens atomic.Int64
	authentic := func(ctx context.Context) error {
		if md, _ := metadata.FromIncomingContext(ctx); !slices.Equal(md.Get("token"),
			[]string{"2"}) {
			return rpctypes.ErrGRPCInvalidAuthToken
		}
		return nil
	}
	voter := start(t, &fake{
		get: func(ctx context.Context, _ *pb.RangeRequest) (*pb.RangeResponse, error) {
			return &pb.RangeResponse{Header: at(2)}, authentic(ctx)
		},
		put: func(ctx context.Context, _ *pb.PutRequest) (*pb.PutResponse, error) {
			if puts.Add(1); puts.Load() == 21 {
				return nil, rpctypes.ErrGRPCTimeout
			}
			return &pb.PutResponse{Header: at(2)}, authentic(ctx)
		},
		keep: func(s pb.Lease_LeaseKeepAliveServer) error {
			if err := authentic(s.Context()); err != nil {
				return err
			}
			for {
				r, err := s.Recv()
				if err != nil {
					return nil
				}
				if err := s.Send(&pb.LeaseKeepAliveResponse{ID: r.ID, TTL: 5}); err != nil {
					return err
				}
			}
		},
		list: func(_ *pb.RangeRequest, s pb.KV_RangeStreamServer) error {
			if err := authentic(s.Context()); err != nil {
				return err
			}
			return s.Send(&pb.RangeStreamResponse{RangeResponse: &pb.RangeResponse{Header: at(2),
				Kvs: found("a")}})
		},
	})
	ctx := limited(t)
	for i := range 20 {
		tokens.Store(0)
		c := open(t, client.Config{Endpoints: []string{learner.addr, voter.addr},
			Token: func(context.Context) (client.Token, error) {
				return client.Token{Value: fmt.Sprint(tokens.Add(1))}, nil
			}})
		var err error
		switch i % 4 {
		case 0:
			_, err = pb.NewKVClient(c.Conn()).Range(ctx, &pb.RangeRequest{Key: []byte("k")})
		case 1:
			puts.Store(0)
			_, err = pb.NewKVClient(c.Conn()).Put(ctx, &pb.PutRequest{Key: []byte("k")})
			puts.Store(20)
			if _, err := pb.NewKVClient(c.Conn()).Put(ctx,
				&pb.PutRequest{Key: []byte("k")}); rpctypes.ErrorDesc(err) != rpctypes.ErrorDesc(rpctypes.ErrGRPCTimeout) || puts.Load() != 21 {
				t.Errorf("%d puts, %v", puts.Load(), err)
			}
		case 2:
			var s pb.Lease_LeaseKeepAliveClient
			if s, err = pb.NewLeaseClient(c.Conn()).LeaseKeepAlive(ctx); err != nil {
				break
			}
			for id := range int64(3) {
				if err = s.Send(&pb.LeaseKeepAliveRequest{ID: id}); err != nil {
					break
				}
				var r *pb.LeaseKeepAliveResponse
				if r, err = s.Recv(); err == nil && r.ID != id {
					t.Errorf("lease %d for %d", r.ID, id)
				}
			}
		case 3:
			var s pb.KV_RangeStreamClient
			if s, err = pb.NewKVClient(c.Conn()).RangeStream(ctx,
				&pb.RangeRequest{Key: []byte("k")}); err == nil {
				_, err = s.Recv()
			}
		}
		if err != nil {
			t.Error(i%4, err)
		}
	}
}

// TestTokenSourceFails: a call returns the error of the source. A valid token stays in use while
// the source fails.
func TestTokenSourceFails(t *testing.T) {
	f := start(t, &fake{get: func(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
		return &pb.RangeResponse{Header: at(2)}, nil
	}})
	down := errors.New("the identity provider is down")
	var working atomic.Bool
	var expires atomic.Pointer[time.Time]
	c := open(t, client.Config{Endpoints: []string{f.addr},
		Token: func(context.Context) (client.Token, error) {
			if !working.Load() {
				return client.Token{}, down
			}
			// It is to be renewed after 100 ms at the latest.
			end := time.Now().Add(500 * time.Millisecond)
			expires.Store(&end)
			return client.Token{Value: "x", Expires: end}, nil
		}})
	if _, err := c.Get(t.Context(), "k"); !errors.Is(err, down) {
		t.Error(err)
	}
	working.Store(true)
	if _, err := c.Get(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	working.Store(false)
	for {
		_, err := c.Get(t.Context(), "k")
		if left := time.Until(*expires.Load()); err != nil && left > 0 {
			t.Fatalf("%v before the end of the token: %v", left, err)
		}
		if err != nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestSetEndpointsDrains: a running call at a removed endpoint is answered there.
func TestSetEndpointsDrains(t *testing.T) {
	serve := func() *fake {
		return start(t, &fake{put: func(context.Context, *pb.PutRequest) (*pb.PutResponse, error) {
			time.Sleep(2 * time.Millisecond)
			return &pb.PutResponse{Header: at(2)}, nil
		}})
	}
	a, b := serve(), serve()
	c := to(t, a)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var calls atomic.Int64
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := c.Put(t.Context(), "k", nil); err != nil {
					t.Error(err)
				}
				calls.Add(1)
			}
		})
	}
	for i := range 40 {
		to := a
		if i%2 == 0 {
			to = b
		}
		if err := c.SetEndpoints(to.addr); err != nil {
			t.Error(err)
		}
		for seen := calls.Load(); calls.Load() < seen+4 && !t.Failed(); {
			time.Sleep(time.Millisecond)
		}
	}
	close(stop)
	wg.Wait()
}

// TestAtIsApart: calls of a client made by At do not direct the calls of other clients to that
// member.
func TestAtIsApart(t *testing.T) {
	var foreign atomic.Int64
	a := start(t, &fake{get: func(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
		return &pb.RangeResponse{Header: at(2)}, nil
	}})
	b := start(t, &fake{get: func(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
		foreign.Add(1)
		return &pb.RangeResponse{Header: at(3)}, nil
	}})
	c := to(t, a)
	one, err := c.At(b.addr)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := one.Get(t.Context(), "k"); err != nil || r.Header.Revision != 3 {
		t.Errorf("%+v, %v", r, err)
	}
	if !slices.Equal(c.Endpoints(), []string{a.addr}) {
		t.Errorf("endpoints %v", c.Endpoints())
	}
	for range 5 {
		if r, err := c.Get(t.Context(), "k"); err != nil || r.Header.Revision != 2 {
			t.Errorf("%+v, %v", r, err)
		}
	}
	// It becomes one when it is an endpoint, and stays reachable when it is not any more.
	if err := c.SetEndpoints(b.addr); err != nil {
		t.Fatal(err)
	}
	if r, err := c.Get(t.Context(), "k"); err != nil || r.Header.Revision != 3 {
		t.Errorf("%+v, %v", r, err)
	}
	if err := c.SetEndpoints(a.addr); err != nil {
		t.Fatal(err)
	}
	if r, err := one.Get(t.Context(), "k"); err != nil || r.Header.Revision != 3 {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := c.Get(t.Context(), "k"); err != nil || r.Header.Revision != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestListIsOfOneRevision: a listing whose stream breaks continues at its first revision.
func TestListIsOfOneRevision(t *testing.T) {
	const keys = 300
	name := func(i int) string { return fmt.Sprintf("k%03d", i) }
	var rev, streams atomic.Int64
	rev.Store(5)
	// read answers as a store whose keys all change at each revision.
	read := func(r *pb.RangeRequest) *pb.RangeResponse {
		of := r.Revision
		if of == 0 {
			of = rev.Load()
		}
		resp := &pb.RangeResponse{Count: keys}
		for i := range keys {
			if k := name(i); k >= string(r.Key) {
				if r.Limit > 0 && int64(len(resp.Kvs)) == r.Limit {
					resp.More = true
					break
				}
				resp.Kvs = append(resp.Kvs, &mvccpb.KeyValue{Key: []byte(k), ModRevision: of})
			}
		}
		return resp
	}
	f := start(t, &fake{
		get: func(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
			resp := read(r)
			resp.Header = at(rev.Load())
			return resp, nil
		},
		// As etcd does: chunks without a header before the last one.
		list: func(r *pb.RangeRequest, s pb.KV_RangeStreamServer) error {
			n := streams.Add(1)
			all := read(r).Kvs
			for len(all) > 0 {
				part := all[:min(20, len(all))]
				all = all[len(part):]
				resp := &pb.RangeResponse{Kvs: part}
				if len(all) == 0 {
					resp.Header = &pb.ResponseHeader{Revision: rev.Load()}
				}
				if err := s.Send(&pb.RangeStreamResponse{RangeResponse: resp}); err != nil {
					return err
				}
				if n <= 3 {
					rev.Add(1)
					return unavailable("broken")
				}
			}
			return nil
		},
	})
	for _, tc := range []struct {
		limit int64
		want  int
	}{{0, keys}, {250, 250}, {120, 120}, {100, 100}, {10, 10}} {
		streams.Store(0)
		c := to(t, f)
		l := c.List(limited(t), "k", client.WithPrefix(), client.WithLimit(tc.limit))
		var got []string
		for kv, err := range l.All() {
			if err != nil {
				t.Fatal(err)
			}
			if kv.ModRevision != l.Revision() || l.Header().Revision != l.Revision() {
				t.Fatalf("%s of revision %d in a listing of %d", kv.Key,
					kv.ModRevision, l.Revision())
			}
			got = append(got, kv.Key)
		}
		if len(got) != tc.want || l.Count() != keys {
			t.Errorf("%d keys, want %d; count %d", len(got), tc.want, l.Count())
		}
		for i, k := range got {
			if k != name(i) {
				t.Fatalf("key %d is %s", i, k)
			}
		}
	}
}

// TestWatchersOfAnEndingStream: a watcher that is created while its shared stream ends receives its
// events.
func TestWatchersOfAnEndingStream(t *testing.T) {
	var streams atomic.Int64
	f := start(t, &fake{watch: func(s *fakeStream) error {
		n := streams.Add(1)
		for {
			r := s.creates(1)[0]
			if r == nil {
				return nil
			}
			if string(r.Key) == "bad" {
				if n%2 == 0 {
					return rpctypes.ErrGRPCPermissionDenied
				}
				return status.Error(codes.ResourceExhausted, "too much for one stream")
			}
			if err := s.send(&pb.WatchResponse{WatchId: r.WatchId, Created: true, Header: at(2)},
				&pb.WatchResponse{WatchId: r.WatchId,
					Events: []*mvccpb.Event{event(string(r.Key), 2)}}); err != nil {
				return err
			}
		}
	}})
	c := to(t, f)
	ctx := limited(t)
	for round := range 100 {
		bad := c.Watch(ctx, "bad")
		var list []*client.Watcher
		for i := range 20 {
			list = append(list, c.Watch(ctx, fmt.Sprintf("k%d", i)))
			if i%5 == 0 {
				time.Sleep(50 * time.Microsecond)
			}
		}
		for i, w := range list {
			if got, err := read(w, 1); err != nil && !errors.Is(err, client.ErrPermissionDenied) {
				t.Fatalf("round %d: watcher %d: %v, %v", round, i, got, err)
			}
			w.Close()
		}
		bad.Close()
	}
}

// TestGoesBack: a client returns to its member after that was restarted, with watchers and
// keep-alives, and no call fails.
func TestGoesBack(t *testing.T) {
	var leader atomic.Pointer[string] // the member that has none
	none := ""
	leader.Store(&none)
	serve := func() *fake {
		f := &fake{}
		refused := func() error {
			if *leader.Load() == f.addr {
				return rpctypes.ErrGRPCNoLeader
			}
			return nil
		}
		f.get = func(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
			return &pb.RangeResponse{Header: at(2)}, refused()
		}
		f.watch = func(s *fakeStream) error {
			if err := refused(); err != nil {
				return err
			}
			id := s.creates(1)[0].GetWatchId()
			if err := s.send(&pb.WatchResponse{WatchId: id, Created: true, Header: at(2)},
				&pb.WatchResponse{WatchId: id, Header: at(2)}); err != nil {
				return err
			}
			return s.hold()
		}
		return start(t, f)
	}
	a, b := serve(), serve()
	connected := make(chan string, 100)
	c := open(t, client.Config{Endpoints: []string{a.addr, b.addr},
		Hooks: client.Hooks{Watch: func(w client.WatchChange) {
			if w.Kind == client.WatchConnected {
				connected <- w.Member
			}
		}}})
	w := c.Watch(limited(t), "k", client.WithProgress())
	arrives := func(where string) {
		t.Helper()
		for {
			select {
			case got := <-connected:
				if got == where || where == "" {
					return
				}
			case <-time.After(time.Minute):
				t.Fatalf("the watcher does not come to %s", where)
			}
		}
	}
	arrives("")
	home := c.Member()
	other := a.addr
	if home == other {
		other = b.addr
	}
	client.ReturnToPreferred(c) // it is there
	leader.Store(&home)
	if _, err := c.Get(t.Context(), "k"); err != nil || c.Member() != other {
		t.Fatalf("%v, at %s", err, c.Member())
	}
	arrives(other)
	client.ReturnToPreferred(c) // it is doubtful
	leader.Store(&none)
	for end := time.Now().Add(time.Minute); c.Member() != home &&
		time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		client.ReturnToPreferred(c)
		if _, err := c.Get(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	if c.Member() != home {
		t.Fatalf("it stays at %s", c.Member())
	}
	arrives(home)
	if w.Err() != nil {
		t.Error(w.Err())
	}
}

// TestTemporary: which errors are temporary.
func TestTemporary(t *testing.T) {
	for _, tc := range []struct {
		err       error
		temporary bool
	}{
		{rpctypes.ErrGRPCTimeout, true},
		{rpctypes.ErrGRPCNoLeader, true},
		{rpctypes.ErrGRPCInvalidAuthToken, true},
		{unavailable("gone"), true},
		{rpctypes.ErrGRPCPermissionDenied, false},
		{rpctypes.ErrGRPCNoSpace, false},
		{rpctypes.ErrGRPCRequestTooLarge, false},
	} {
		f := start(t, &fake{put: func(context.Context, *pb.PutRequest) (*pb.PutResponse,
			error) {
			return nil, tc.err
		}})
		c := open(t, client.Config{Endpoints: []string{f.addr}, MaxAttempts: 1})
		if _, err := c.Put(t.Context(), "k", nil); client.Temporary(err) != tc.temporary {
			t.Errorf("%v: temporary %v", err, !tc.temporary)
		}
		_ = c.Close()
		if _, err := c.Put(t.Context(), "k", nil); !errors.Is(err, client.ErrClosed) ||
			client.Temporary(err) {
			t.Errorf("closed: %v", err)
		}
	}
	if client.Temporary(context.Canceled) || client.Temporary(nil) {
		t.Error("errors of others")
	}
}

// TestReadiness: a client leaves a member that is not ready. Vigil reports it by the service
// readiness, etcd by the empty one.
func TestReadiness(t *testing.T) {
	for _, services := range [][]string{{"", "readiness"}, {""}} {
		serve := func() *fake {
			f := &fake{health: health.NewServer(),
				get: func(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
					return &pb.RangeResponse{Header: at(2)}, nil
				}}
			for _, s := range services {
				f.health.SetServingStatus(s, healthpb.HealthCheckResponse_SERVING)
			}
			return start(t, f)
		}
		a, b := serve(), serve()
		c := to(t, a, b)
		if _, err := c.Get(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		bad, good := a, b
		if c.Member() == b.addr {
			bad, good = b, a
		}
		bad.health.SetServingStatus(services[len(services)-1],
			healthpb.HealthCheckResponse_NOT_SERVING)
		for end := time.Now().Add(time.Minute); c.Member() != good.addr; time.Sleep(5 * time.Millisecond) {
			if _, err := c.Get(t.Context(), "k"); err != nil || time.Now().After(end) {
				t.Fatalf("services %q: %v, at %s", services, err, c.Member())
			}
		}
	}
}

// TestLeavesWhileOpening: a watch leaves a member that turned sick while its stream was being
// opened.
func TestLeavesWhileOpening(t *testing.T) {
	serve := func() *fake {
		f := &fake{health: health.NewServer(), watch: func(s *fakeStream) error {
			id := s.creates(1)[0].GetWatchId()
			if err := s.send(&pb.WatchResponse{WatchId: id, Created: true,
				Header: at(2)}); err != nil {
				return err
			}
			return s.hold()
		}}
		f.health.SetServingStatus("readiness", healthpb.HealthCheckResponse_SERVING)
		return start(t, f)
	}
	fakes := map[string]*fake{}
	for range 2 {
		f := serve()
		fakes[f.addr] = f
	}
	opening, opened := make(chan struct{}), make(chan struct{})
	var once sync.Once
	sick, connected := make(chan string, 10), make(chan string, 10)
	cfg := client.Config{DialOptions: []grpc.DialOption{grpc.WithStreamInterceptor(
		func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
			streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			s, err := streamer(ctx, desc, cc, method, opts...)
			if strings.HasSuffix(method, "/Watch") && strings.Contains(method, "etcdserverpb") {
				once.Do(func() {
					close(opening)
					<-opened
				})
			}
			return s, err
		})}, Hooks: client.Hooks{
		Member: func(name string, s client.MemberState, _ error) {
			if s == client.MemberSick {
				sick <- name
			}
		},
		Watch: func(w client.WatchChange) {
			if w.Kind == client.WatchConnected {
				connected <- w.Member
			}
		}}}
	for addr := range fakes {
		cfg.Endpoints = append(cfg.Endpoints, addr)
	}
	c := open(t, cfg)
	w := c.Watch(limited(t), "k")
	defer w.Close()
	<-opening
	first := c.Member()
	fakes[first].health.SetServingStatus("readiness", healthpb.HealthCheckResponse_NOT_SERVING)
	if name := <-sick; name != first {
		t.Fatalf("%s is sick, not %s", name, first)
	}
	close(opened)
	for {
		select {
		case where := <-connected:
			if where != first {
				return
			}
		case <-time.After(time.Minute):
			t.Fatal("the watch stays at the sick member")
		}
	}
}

// TestOneConnection: a client that has searched for another member in vain keeps one connection.
func TestOneConnection(t *testing.T) {
	var calls atomic.Int64
	f := start(t, &fake{put: func(context.Context, *pb.PutRequest) (*pb.PutResponse, error) {
		if calls.Add(1) == 1 {
			return nil, rpctypes.ErrGRPCRequestTooManyRequests
		}
		return &pb.PutResponse{Header: at(2)}, nil
	}})
	c := open(t, client.Config{Endpoints: []string{f.addr, "127.0.0.1:1", "127.0.0.1:2"}})
	if _, err := c.Put(t.Context(), "k", nil); err != nil {
		t.Fatal(err)
	}
	if n := client.Wanted(c); n != 1 {
		t.Errorf("%d members are wanted", n)
	}
}
