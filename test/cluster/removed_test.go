package cluster

import (
	"context"
	"errors"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/test/proc"
)

// TestWritesAtARemovedLeader: a write at a leader that was removed waits for the end of the member; it is not refused
// with an error that says to slow down, which clients do not try again at another member.
func TestWritesAtARemovedLeader(t *testing.T) {
	t.Parallel()
	g := start(t, 3)
	lead := g.leader()
	g.put(lead, "k", "v")
	other := g.others(lead)[0]
	g.healthy(func() error {
		_, err := other.client.MemberRemove(proc.Context(t), lead.id(g))
		return err
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go func() {
		// A call that begins after the end of the member would wait for another one at its address.
		lead.ExitsWithin(patience)
		cancel()
	}()
	var err error
	for err == nil { // until it has applied its removal
		// Without retries of the library, which hide what the member says.
		_, err = clientv3.NewKVFromKVClient(pb.NewKVClient(lead.client.ActiveConnection()), lead.client).Put(ctx, "k", "v")
	}
	t.Log(err)
	if lead.Running() {
		lead.Wait()
	}
	if errors.Is(err, rpctypes.ErrTooManyRequests) || status.Code(err) == codes.ResourceExhausted {
		t.Errorf("refused with %v", err)
	}
	g.drop(lead)
	g.put(other, "k", "v2")
}
