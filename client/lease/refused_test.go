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

// strict is a server that can end each stream with a keep-alive for a lease that the user must not renew.
type strict struct {
	etcdserverpb.UnimplementedLeaseServer
	refuses atomic.Bool
	streams atomic.Int64
}

const denied = 13

func (s *strict) LeaseKeepAlive(stream etcdserverpb.Lease_LeaseKeepAliveServer) error {
	s.streams.Add(1)
	for {
		r, err := stream.Recv()
		if err != nil {
			return nil
		}
		if r.ID == denied && s.refuses.Load() {
			return rpctypes.ErrGRPCPermissionDenied
		}
		if err := stream.Send(&etcdserverpb.LeaseKeepAliveResponse{ID: r.ID, TTL: 1}); err != nil {
			return err
		}
	}
}

// TestRefused: only the lease whose keep-alive is refused is lost, with the reason; others keep their stream.
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
	s.refuses.Store(true)
	before := s.streams.Load()
	lost := list[denied-1]
	err = wait(t, lost)
	if status := lost.Status(); status.State != lease.Lost {
		t.Errorf("%+v", status)
	}
	if !errors.Is(err, lease.ErrUnconfirmed) || !errors.Is(err, client.ErrPermissionDenied) {
		t.Error(err)
	}
	time.Sleep(time.Second) // the others live no longer than that without an answer
	for _, other := range list {
		if other != lost && other.Err() != nil {
			t.Errorf("lease %d: %v", other.ID(), other.Err())
		}
	}
	// One stream ended, the next, and a few calls for the one lease.
	if n := s.streams.Load() - before; n > 12 {
		t.Errorf("%d streams", n)
	}
}
