package client_test

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/client"
)

// TestMalformedWatch: a watch whose server sends something else than an answer ends with an error,
// and is not tried again for ever.
func TestMalformedWatch(t *testing.T) {
	var streams atomic.Int64
	f := start(t, &fake{raw: map[string]func(grpc.ServerStream) error{"/etcdserverpb.Watch/Watch": func(s grpc.ServerStream) error {
		streams.Add(1)
		if err := s.RecvMsg(new(pb.WatchRequest)); err != nil {
			return err
		}
		// a header that ends too early
		if err := s.SendMsg(&mvccpb.KeyValue{Key: []byte{0xff}}); err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	}}})
	if _, err := read(to(t, f).Watch(limited(t), "k"), 1); err == nil || streams.Load() != 1 {
		t.Errorf("%v after %d streams", err, streams.Load())
	}
}

// TestUncheckedRollback: a watch ends if it is refused to say whether the store was rolled back.
func TestUncheckedRollback(t *testing.T) {
	var streams atomic.Int64
	f := start(t, &fake{
		get: func(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
			return nil, rpctypes.ErrGRPCPermissionDenied
		},
		watch: func(s *fakeStream) error {
			id := s.creates(1)[0].GetWatchId()
			rev := 10 - 5*(streams.Add(1)-1)
			if err := s.send(&pb.WatchResponse{WatchId: id, Created: true,
				Header: at(rev)}); err != nil {
				return err
			}
			if rev == 10 {
				return unavailable("go")
			}
			return s.hold()
		}})
	if _, err := read(to(t, f).Watch(limited(t), "k"), 1); !errors.Is(err,
		client.ErrPermissionDenied) {
		t.Error(err)
	}
}

// TestListingOfAnotherCluster: a listing does not continue at a member of another cluster, in pages
// or on a stream.
func TestListingOfAnotherCluster(t *testing.T) {
	page := func(cluster uint64, key string) *pb.RangeResponse {
		return &pb.RangeResponse{Header: &pb.ResponseHeader{ClusterId: cluster, Revision: 9},
			More: true, Count: 300,
			Kvs: []*mvccpb.KeyValue{{Key: []byte(key), ModRevision: 3}}}
	}
	for name, list := range map[string]func(*pb.RangeRequest, pb.KV_RangeStreamServer) error{
		"pages": func(*pb.RangeRequest,
			pb.KV_RangeStreamServer) error {
			return status.Error(codes.Unimplemented, "")
		},
		"stream": func(_ *pb.RangeRequest, s pb.KV_RangeStreamServer) error {
			return s.Send(&pb.RangeStreamResponse{RangeResponse: page(8, "b")})
		},
	} {
		t.Run(name, func(t *testing.T) {
			var pages atomic.Int64
			f := start(t, &fake{list: list,
				get: func(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
					if pages.Add(1) == 1 {
						return page(7, "a"), nil
					}
					return page(8, "b"), nil
				}})
			n := 0
			for _, err := range to(t, f).List(limited(t), "", client.WithPrefix()).All() {
				if err != nil {
					if !errors.Is(err, client.ErrClusterChanged) || n != 1 {
						t.Errorf("%v after %d keys", err, n)
					}
					return
				}
				n++
			}
			t.Errorf("%d keys and no error", n)
		})
	}
}

// TestTimesOfLeases: times of leases that no server grants or that cannot be represented are errors
// or bounds, never another time.
func TestTimesOfLeases(t *testing.T) {
	var granted, asked atomic.Int64
	f := start(t, &fake{grant: func(r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
		asked.Store(r.GetTTL())
		return &pb.LeaseGrantResponse{Header: at(1), ID: 5, TTL: granted.Load()}, nil
	}})
	c := to(t, f)
	for ttl, want := range map[time.Duration]int64{1: 1, time.Second: 1, time.Second + 1: 2,
		math.MaxInt64: math.MaxInt64/int64(time.Second) + 1, -time.Hour: -3600} {
		granted.Store(math.MaxInt64)
		g, err := c.Grant(limited(t), ttl)
		if err != nil || g.TTL < 200*365*24*time.Hour || asked.Load() != want {
			t.Errorf("%v: %+v, %v, asked for %d s", ttl, g, err, asked.Load())
		}
	}
	for _, n := range []int64{0, -1, -27_670_116_111, math.MinInt64} {
		granted.Store(n)
		if g, err := c.Grant(limited(t), time.Second); err == nil {
			t.Errorf("%d s were granted: %+v", n, g)
		}
	}
}
