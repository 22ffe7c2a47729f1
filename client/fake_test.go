package client_test

import (
	"context"
	"net"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"vigil/client"
)

// fake is a server over real gRPC whose answers a test chooses, for cases that a real server does
// not produce on demand.
type fake struct {
	pb.UnimplementedKVServer
	pb.UnimplementedWatchServer
	pb.UnimplementedAuthServer
	pb.UnimplementedLeaseServer
	addr string

	put   func(context.Context, *pb.PutRequest) (*pb.PutResponse, error)
	get   func(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error)
	txn   func(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error)
	watch func(*fakeStream) error
	login func(*pb.AuthenticateRequest) (*pb.AuthenticateResponse, error)
	list  func(*pb.RangeRequest, pb.KV_RangeStreamServer) error
	keep  func(pb.Lease_LeaseKeepAliveServer) error
	grant func(*pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error)
	// health is registered if it is set.
	health *health.Server
	// raw answers calls by their names instead, on the stream that every call is.
	raw map[string]func(grpc.ServerStream) error
}

func (f *fake) RangeStream(r *pb.RangeRequest, s pb.KV_RangeStreamServer) error {
	return f.list(r, s)
}

func (f *fake) LeaseKeepAlive(s pb.Lease_LeaseKeepAliveServer) error { return f.keep(s) }

func (f *fake) LeaseGrant(_ context.Context,
	r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	return f.grant(r)
}

func (f *fake) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	return f.put(ctx, r)
}

func (f *fake) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	return f.get(ctx, r)
}

func (f *fake) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	return f.txn(ctx, r)
}

func (f *fake) Authenticate(_ context.Context,
	r *pb.AuthenticateRequest) (*pb.AuthenticateResponse, error) {
	return f.login(r)
}

func (f *fake) Watch(s pb.Watch_WatchServer) error { return f.watch(&fakeStream{s, f}) }

// fakeStream is the server's side of a watch stream.
type fakeStream struct {
	pb.Watch_WatchServer
	f *fake
}

// creates receives n requests to create a watcher.
func (s *fakeStream) creates(n int) (list []*pb.WatchCreateRequest) {
	for len(list) < n {
		r, err := s.Recv()
		if err != nil {
			return append(list, make([]*pb.WatchCreateRequest, n-len(list))...)
		}
		if c := r.GetCreateRequest(); c != nil {
			list = append(list, c)
		}
	}
	return list
}

func at(rev int64) *pb.ResponseHeader { return &pb.ResponseHeader{ClusterId: 7, Revision: rev} }

// event is a put of a key at a revision.
func event(key string, rev int64) *mvccpb.Event {
	return &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: rev,
		CreateRevision: rev, Version: 1}}
}

// send sends messages.
func (s *fakeStream) send(list ...*pb.WatchResponse) error {
	for _, r := range list {
		if r.Header == nil {
			r.Header = at(1)
		}
		if err := s.Send(r); err != nil {
			return err
		}
	}
	return nil
}

// hold keeps a stream open until the client ends it.
func (s *fakeStream) hold() error {
	for {
		if _, err := s.Recv(); err != nil {
			return nil
		}
	}
}

func start(t *testing.T, f *fake) *fake {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.addr = l.Addr().String()
	s := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, ss grpc.ServerStream) error {
		name, _ := grpc.MethodFromServerStream(ss)
		if h := f.raw[name]; h != nil {
			return h(ss)
		}
		return status.Error(codes.Unimplemented, name)
	}))
	if f.health != nil {
		healthpb.RegisterHealthServer(s, f.health)
	}
	if f.raw == nil {
		pb.RegisterKVServer(s, f)
		pb.RegisterWatchServer(s, f)
		pb.RegisterAuthServer(s, f)
		pb.RegisterLeaseServer(s, f)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() {
		s.Stop()
		wg.Wait()
	})
	return f
}

// to returns a client of fakes.
func to(t *testing.T, fakes ...*fake) *client.Client {
	t.Helper()
	cfg := client.Config{}
	for _, f := range fakes {
		cfg.Endpoints = append(cfg.Endpoints, f.addr)
	}
	return open(t, cfg)
}

func unavailable(text string) error { return status.Error(codes.Unavailable, text) }
