package load

import (
	"context"
	"errors"
	"math"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"vigil/tools/bench/api"
	"vigil/tools/bench/grpcconn"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// fakeKV answers puts; hold, if it is set, says how long each waits. It refuses puts of the key
// "refused".
type fakeKV struct {
	pb.UnimplementedKVServer
	n    atomic.Int64
	hold func(n int64) time.Duration
}

func (f *fakeKV) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	n := f.n.Add(1)
	if f.hold != nil {
		select {
		case <-time.After(f.hold(n)):
		case <-ctx.Done():
		}
	}
	if string(r.Key) == "refused" {
		return nil, status.Error(codes.Unknown, "etcdserver: too many requests")
	}
	return &pb.PutResponse{Header: &pb.ResponseHeader{Revision: n}}, nil
}

func serve(t *testing.T, f any, conns int) Conns {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	switch f := f.(type) {
	case pb.KVServer:
		pb.RegisterKVServer(s, f)
	case pb.LeaseServer:
		pb.RegisterLeaseServer(s, f)
	}
	go s.Serve(lis)
	cs, err := Dial(context.Background(), lis.Addr().String(), conns, grpcconn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cs.Close(); s.Stop() })
	return cs
}

type putOp struct {
	left  int // negative: no end
	limit int64
}

func (p *putOp) Next(buf []byte) (string, []byte, bool) {
	if p.left == 0 {
		return "", nil, false
	}
	p.left--
	return api.Put, api.AppendPut(buf, []byte("k"), []byte("v")), true
}

func (p *putOp) Check(msg []byte) error {
	h, err := api.ReadHeader(msg)
	if err == nil && p.limit > 0 && h.Revision > p.limit {
		return errors.New("that is too much")
	}
	return err
}

func TestClosedUntilTheOperationsEnd(t *testing.T) {
	f := &fakeKV{}
	begun, ended := 0, 0
	r, err := Closed(context.Background(), serve(t, f, 3), 5, Window{
		Begin: func() error { begun++; return nil }, End: func() error { ended++; return nil },
	}, func(slot int) Op { return &putOp{left: slot} })
	if err != nil {
		t.Fatal(err)
	}
	const want = 14 * 15 / 2
	if r.Ops != want || r.All != want || f.n.Load() != want || r.Latency.Count() != want ||
		begun != 1 || ended != 1 {
		t.Fatalf("%d of %d operations, server saw %d, meters %d %d", r.Ops, r.All,
			f.n.Load(), begun, ended)
	}
}

// fakeLease answers keep-alives; after is how many before it ends the stream, 0 means never.
type fakeLease struct {
	pb.UnimplementedLeaseServer
	after, n atomic.Int64
}

func (f *fakeLease) LeaseKeepAlive(s pb.Lease_LeaseKeepAliveServer) error {
	for {
		r, err := s.Recv()
		if err != nil {
			return nil // half-closed
		}
		if n := f.n.Add(1); f.after.Load() > 0 && n > f.after.Load() {
			return nil
		}
		if err := s.Send(&pb.LeaseKeepAliveResponse{ID: r.ID, TTL: 7}); err != nil {
			return err
		}
	}
}

type keepOp struct{ left int }

func (k *keepOp) Next(buf []byte) (string, []byte, bool) {
	if k.left == 0 {
		return "", nil, false
	}
	k.left--
	return api.LeaseKeepAlive, api.AppendLeaseKeepAlive(buf, 5), true
}

func (k *keepOp) Check(msg []byte) error {
	var a api.LeaseAnswer
	if err := a.Read(msg); err != nil {
		return err
	}
	if a.ID != 5 || a.TTL != 7 {
		return errors.New("wrong lease")
	}
	return nil
}

func TestClosedStreams(t *testing.T) {
	f := &fakeLease{}
	r, err := ClosedStreams(context.Background(), serve(t, f, 3), 5, api.LeaseKeepAlive, Window{},
		func(slot int) Op { return &keepOp{left: slot} })
	if err != nil {
		t.Fatal(err)
	}
	const want = 14 * 15 / 2
	if r.Ops != want || r.All != want || f.n.Load() != want {
		t.Fatalf("%d of %d requests, server saw %d", r.Ops, r.All, f.n.Load())
	}
	f = &fakeLease{}
	f.after.Store(20)
	_, err = ClosedStreams(context.Background(), serve(t, f, 1), 1, api.LeaseKeepAlive, Window{},
		func(int) Op { return &keepOp{left: -1} })
	if err == nil || !strings.Contains(err.Error(), "0 answers") {
		t.Fatalf("a stream that ended before its answer: %v", err)
	}
}

func TestClosedWindow(t *testing.T) {
	f := &fakeKV{hold: func(int64) time.Duration { return 5 * time.Millisecond }}
	r, err := Closed(context.Background(), serve(t, f, 2), 2,
		Window{Warmup: 100 * time.Millisecond, Duration: 300 * time.Millisecond},
		func(int) Op { return &putOp{left: -1} })
	if err != nil {
		t.Fatal(err)
	}
	if r.All != f.n.Load() || r.Ops >= r.All || r.Ops == 0 || uint64(r.Ops) != r.Latency.Count() {
		t.Fatalf("%d of %d, server saw %d", r.Ops, r.All, f.n.Load())
	}
	if p := r.Latency.Quantile(0.5); p < 5*time.Millisecond {
		t.Fatalf("median %v of calls that take 5 ms", p)
	}
	if per := r.PerSecond(); per > 4/0.005 {
		t.Fatalf("%v/s with 4 in flight that take 5 ms", per)
	}
}

func TestWrongAnswersEndARun(t *testing.T) {
	for name, op := range map[string]*putOp{"too much": {left: -1, limit: 100},
		"ended before": {left: 10}} {
		_, err := Closed(context.Background(), serve(t, &fakeKV{}, 1), 1,
			Window{Duration: time.Minute}, func(int) Op { return op })
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Fatalf("got %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := Closed(ctx, serve(t, &fakeKV{}, 1), 1, Window{Duration: time.Minute},
		func(int) Op { return &putOp{left: -1} }); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	p, err := Start(serve(t, &fakeKV{}, 1), 1000,
		func(int) Op { return &putOp{left: -1, limit: 10} }, nil)
	if err != nil {
		t.Fatal(err)
	}
	<-p.Failed()
	if _, err := p.Phase(context.Background(), func() error { return nil }); err == nil ||
		!strings.Contains(err.Error(), "too much") {
		t.Fatalf("got %v", err)
	}
	if _, err := p.Stop(context.Background()); err == nil {
		t.Fatal("a failed loop stops without an error")
	}
}

// refusedOp is a putOp whose every fourth request, in the order in which they are due, is refused.
type refusedOp struct {
	putOp
	sent *int // owned by the pacer
}

func (o *refusedOp) Next(buf []byte) (string, []byte, bool) {
	if *o.sent++; *o.sent%4 == 0 {
		return api.Put, api.AppendPut(buf, []byte("refused"), []byte("v")), true
	}
	return o.putOp.Next(buf)
}

func TestRefusedRequestsAreCounted(t *testing.T) {
	f := &fakeKV{}
	sent := 0
	p, err := Start(serve(t, f, 1), 1000,
		func(int) Op { return &refusedOp{putOp{left: -1}, &sent} }, Refuses)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	r, err := p.Phase(ctx, func() error { return p.Wait(ctx, 300*time.Millisecond) })
	if err != nil {
		t.Fatal(err)
	}
	if r.Refused == 0 || r.Refused*3 < r.Ops-3 || r.Refused*3 > r.Ops+3 ||
		r.Latency.Max() < RefusedLatency || r.Latency.Quantile(0.5) >= RefusedLatency {
		t.Fatalf("%d answered, %d refused, median %v, max %v", r.Ops, r.Refused,
			r.Latency.Quantile(0.5), r.Latency.Max())
	}
	if all, err := p.Stop(ctx); err != nil || all >= f.n.Load() {
		t.Fatalf("%d answered of %d, %v", all, f.n.Load(), err)
	}
}

// A stall of the server must show in the latency of every request that was due while it lasted.
func TestOpenLoopCountsWhatAStallDelays(t *testing.T) {
	const rate, stall = 1000, 200 * time.Millisecond
	resume := make(chan struct{})
	var stalled atomic.Bool
	f := &fakeKV{}
	f.hold = func(n int64) time.Duration {
		if stalled.Load() {
			<-resume
		}
		return 0
	}
	p, err := Start(serve(t, f, 2), rate, func(int) Op { return &putOp{left: -1} }, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	var lasted time.Duration
	r, err := p.Phase(ctx, func() error {
		began := time.Now()
		stalled.Store(true)
		if err := p.Wait(ctx, stall); err != nil {
			return err
		}
		lasted = time.Since(began)
		stalled.Store(false)
		close(resume)
		return p.Wait(ctx, stall)
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := rate * r.Elapsed.Seconds(); math.Abs(float64(r.Ops)-want) > 2 {
		t.Fatalf("%d requests in %v at %d/s", r.Ops, r.Elapsed, rate)
	}
	// About half of the requests were due in the stall, evenly: half of these waited for half of
	// it.
	share := lasted.Seconds() / r.Elapsed.Seconds()
	if q := r.Latency.Quantile(1 - share/2); q < lasted/3 || r.Latency.Max() < lasted*8/10 {
		t.Fatalf("quantile %.2f %v, max %v with a stall of %v", 1-share/2, q,
			r.Latency.Max(), lasted)
	}
	all, err := p.Stop(ctx)
	if err != nil || all != f.n.Load() {
		t.Fatalf("%d answered, server saw %d, %v", all, f.n.Load(), err)
	}
	if r.Late.Count() == 0 {
		t.Fatal("the pacer's lateness is not recorded")
	}
}
