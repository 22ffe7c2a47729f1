package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/test/proc"
)

// TestWritesAtARemovedLeader: a write at a leader that was removed waits for the end of the member;
// it is not refused with an error that says to slow down, which clients do not try again at another
// member.
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
		_, err = clientv3.NewKVFromKVClient(pb.NewKVClient(lead.client.ActiveConnection()),
			lead.client).Put(ctx, "k", "v")
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

// TestARemovedMemberStopsServing: a member that was removed stops within a moment, however long the
// election timeout is: what it serves without asking others grows old. Also the leader, and a
// member that was cut off from the others when it was removed.
func TestARemovedMemberStopsServing(t *testing.T) {
	t.Parallel()
	// With a timeout of 10 s it served for 25 s.
	const most = 5 * time.Second
	for _, role := range []string{"follower", "leader"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			g := start(t, 3, steady, "--heartbeat-interval=1000")
			lead := g.leader()
			gone := lead
			if role == "follower" {
				gone = g.others(lead)[0]
			}
			by := g.others(gone)[0]
			id := gone.id(g)
			g.healthy(func() error {
				_, err := by.client.MemberRemove(proc.Context(t), id)
				return err
			})
			removed := time.Now()
			if !gone.ExitsWithin(patience) {
				t.Fatal("it still runs")
			}
			if took := time.Since(removed); took > most {
				t.Errorf("it served for %v after its removal, at most %v is allowed", took, most)
			} else {
				t.Logf("stopped after %v", took)
			}
			gone.Wait()
			g.drop(gone)
			g.put(by, "k", "v")
		})
	}
}
