package client

import (
	"context"
	"fmt"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/test/proc"
)

// TestProgressOfStream begins watchers deep in the past, again and again, on a stream that asks for
// progress all the while, with a writer at work: an answer at a revision promises that no event at
// or below it is still to come, on any watcher of the stream.
func TestProgressOfStream(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Memory: true})
	c := s.Client()
	ctx, cancel := context.WithCancel(proc.Context(t))
	defer cancel()
	const past, rounds = 3000, 8
	value := strings.Repeat("v", 1000)
	for i := range past {
		if _, err := c.Put(ctx, fmt.Sprint("k", i%10), value); err != nil {
			t.Fatal(err)
		}
	}
	wrote := make(chan error, 1)
	writing, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		for {
			if _, err := c.Put(ctx, "k0", value); err != nil {
				wrote <- err
				return
			}
			if writing.Err() != nil {
				wrote <- nil
				return
			}
		}
	}()

	stream, err := pb.NewWatchClient(s.Dial()).Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(r *pb.WatchRequest) {
		if err := stream.Send(r); err != nil {
			t.Fatal(err)
		}
	}
	progress := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}
	var promised int64
	answers, events := 0, 0
	seen := map[int64]int64{} // watcher -> revision of its last event
	for round := range rounds {
		ask(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
			Key: []byte("k"), RangeEnd: []byte("l"), StartRevision: 2, WatchId: int64(round + 1)}}})
		ask(progress)
		before := answers
		// The new watcher owes everything from the start, whatever was promised before it.
		created, news := int64(round+1), false
		for answers == before || !news {
			m, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case m.Created:
				news = m.WatchId == created
				if news {
					promised = 0
				}
			case m.WatchId == -1:
				answers++
				promised = m.Header.Revision
			default:
				for _, e := range m.Events {
					events++
					rev := e.Kv.ModRevision
					if rev <= promised {
						t.Fatalf("watcher %d: an event at revision %d after progress at %d",
							m.WatchId, rev, promised)
					}
					if last := seen[m.WatchId]; rev != last+1 && last != 0 ||
						last == 0 && rev != 2 {
						t.Fatalf("watcher %d: revision %d follows %d", m.WatchId, rev, last)
					}
					seen[m.WatchId] = rev
				}
				ask(progress)
			}
		}
	}
	stop()
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	t.Logf("%d answers, %d events, %d watchers", answers, events, len(seen))
}
