package client_test

import (
	"context"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"vigil/client"
)

// TestSetAsideFromItsOnlyStream: a watcher that leaves its stream as the last one receives nothing
// more from it. gRPC still returns messages that arrived before the end of the stream, and those
// follow events that the watcher has no room for.
func TestSetAsideFromItsOnlyStream(t *testing.T) {
	var streams atomic.Int64
	sent := make(chan struct{})
	f := start(t, &fake{
		get: func(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
			return &pb.RangeResponse{Header: at(4)}, nil
		},
		watch: func(s *fakeStream) error {
			r := s.creates(1)[0]
			answers := []*pb.WatchResponse{{WatchId: r.GetWatchId(), Created: true, Header: at(4)}}
			last, first := int64(4), streams.Add(1) == 1
			if !first {
				last = 6
			}
			for rev := r.GetStartRevision(); rev <= last; rev++ {
				answers = append(answers,
					&pb.WatchResponse{WatchId: r.GetWatchId(), Header: at(rev),
						Events: []*mvccpb.Event{event("k", rev)}})
			}
			if err := s.send(answers...); err != nil {
				return err
			}
			if first {
				close(sent)
			}
			return s.hold()
		}})
	var c *client.Client
	var w *client.Watcher
	begun, aside := make(chan struct{}), make(chan []string, 1)
	c = open(t, client.Config{Endpoints: []string{f.addr},
		Hooks: client.Hooks{Watch: func(x client.WatchChange) {
			if x.Kind != client.WatchSetAside || len(aside) > 0 {
				return
			}
			<-begun
			<-sent
			// Its answer follows the messages of the stream on the same connection.
			if _, err := c.Get(t.Context(), "k"); err != nil {
				t.Error(err)
			}
			got, err := read(w, 1) // makes room
			if err != nil {
				t.Error(err)
			}
			aside <- got
		}}})
	w = c.Watch(limited(t), "k", client.FromRevision(2), client.WithBuffer(1))
	defer w.Close()
	close(begun)
	if got := <-aside; len(got) != 1 || got[0] != "k@2" {
		t.Errorf("first %v", got)
	}
	want(t, w, "k@3", "k@4", "k@5")
}
