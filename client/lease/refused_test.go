package lease_test

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"vigil/client"
	"vigil/client/lease"
)

// strict is a server that answers the first keep-alive of one lease and ends each stream with a
// later one: the user must not renew it any more.
type strict struct {
	etcdserverpb.UnimplementedLeaseServer
	answered atomic.Bool
	refused  atomic.Pointer[time.Time] // the first time
	streams  atomic.Int64
}

const denied = 13

func (s *strict) LeaseKeepAlive(stream etcdserverpb.Lease_LeaseKeepAliveServer) error {
	s.streams.Add(1)
	for {
		r, err := stream.Recv()
		if err != nil {
			return nil
		}
		ttl := int64(6)
		if r.ID == denied {
			if s.answered.Swap(true) {
				now := time.Now()
				s.refused.CompareAndSwap(nil, &now)
				return rpctypes.ErrGRPCPermissionDenied
			}
			ttl = 3
		}
		if err := stream.Send(&etcdserverpb.LeaseKeepAliveResponse{ID: r.ID,
			TTL: ttl}); err != nil {
			return err
		}
	}
}

// TestRefused: only the lease whose keep-alive is refused is lost, with the reason; others keep
// their stream.
func TestRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, g := &strict{}, grpc.NewServer()
	etcdserverpb.RegisterLeaseServer(g, s)
	var wg sync.WaitGroup
	wg.Go(func() { _ = g.Serve(l) })
	defer wg.Wait()
	defer g.Stop()
	c, err := client.New(client.Config{Endpoints: []string{l.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	k := lease.NewKeeper(c)
	defer k.Close()
	var list []*lease.Lease
	for id := range client.LeaseID(20) {
		kept, err := k.Keep(t.Context(), id+1)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, kept)
	}
	before := s.streams.Load()
	lost := list[denied-1]
	err = wait(t, lost)
	if status := lost.Status(); status.State != lease.Lost {
		t.Errorf("%+v", status)
	}
	if !errors.Is(err, lease.ErrUnconfirmed) || !errors.Is(err, client.ErrPermissionDenied) {
		t.Error(err)
	}
	// The others are renewed nevertheless.
	if s.refused.Load() == nil {
		t.Fatal("nothing was refused")
	}
	for _, other := range list {
		for end := time.Now().Add(time.Minute); other != lost &&
			!other.Status().Confirmed.After(*s.refused.Load()); time.Sleep(time.Millisecond) {
			if other.Err() != nil || time.Now().After(end) {
				t.Fatalf("lease %d: %+v", other.ID(), other.Status())
			}
		}
	}
	// One stream ended, the next, and a few calls for the one lease.
	if n := s.streams.Load() - before; n > 12 {
		t.Errorf("%d streams", n)
	}
}
