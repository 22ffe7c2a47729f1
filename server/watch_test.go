package server

import (
	"context"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// watching is a watch stream of a stock client's kind.
type watching struct {
	t *testing.T
	pb.Watch_WatchClient
}

func (w *watching) send(r *pb.WatchRequest) {
	w.t.Helper()
	if err := w.Send(r); err != nil {
		w.t.Fatal(err)
	}
}

func (w *watching) create(c *pb.WatchCreateRequest) {
	w.t.Helper()
	w.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: c}})
}

func (w *watching) cancel(id int64) {
	w.t.Helper()
	w.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: id}}})
}

func (w *watching) progress() {
	w.t.Helper()
	w.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
}

func (w *watching) recv() *pb.WatchResponse {
	w.t.Helper()
	r, err := w.Recv()
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// made takes the answer to a create that is granted.
func (w *watching) made(id int64) {
	w.t.Helper()
	if r := w.recv(); !r.Created || r.Canceled || r.WatchId != id {
		w.t.Fatalf("got %v, want watcher %d created", r, id)
	}
}

// refused takes the answer to one that is not.
func (w *watching) refused(reason string) {
	w.t.Helper()
	if r := w.recv(); !r.Created || !r.Canceled || r.WatchId != -1 ||
		!strings.HasPrefix(r.CancelReason, reason) {
		w.t.Fatalf("got %v, want a refusal because %q", r, reason)
	}
}

// TestWatchBadInput: each wrong request has its answer, and the stream goes on.
func TestWatchBadInput(t *testing.T) {
	const most = 5
	m, addr := member(t, Config{MaxWatchersPerStream: most})
	cc := dial(t, addr)
	ctx, vanish := context.WithCancel(timeout(t))
	stream, err := pb.NewWatchClient(cc).Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	w := &watching{t, stream}
	k := []byte("k")

	w.create(&pb.WatchCreateRequest{Key: k, WatchId: 7})
	w.made(7)
	w.create(&pb.WatchCreateRequest{Key: k, WatchId: 7})
	w.refused("mvcc: duplicate watch ID provided on the WatchStream")
	w.create(&pb.WatchCreateRequest{Key: k, RangeEnd: k})
	w.refused("mvcc: watcher range is empty")
	w.create(&pb.WatchCreateRequest{Key: k, RangeEnd: []byte("a")})
	w.refused("mvcc: watcher range is empty")
	w.create(&pb.WatchCreateRequest{Key: k, StartRevision: -1})
	w.refused("etcdserver: mvcc: required revision has been compacted")
	w.create(&pb.WatchCreateRequest{Key: k, Filters: []pb.WatchCreateRequest_FilterType{99, -3}})
	w.made(0)
	w.cancel(1234)
	w.send(&pb.WatchRequest{})

	for id := int64(1); id < most-1; id++ {
		w.create(&pb.WatchCreateRequest{Key: k})
		w.made(id)
	}
	for range 1000 {
		w.create(&pb.WatchCreateRequest{Key: k})
		w.refused("watch: too many watchers on the stream (limit 5)")
	}
	w.cancel(3)
	if r := w.recv(); !r.Canceled || r.WatchId != 3 {
		t.Fatalf("got %v, want watcher 3 canceled", r)
	}
	w.create(&pb.WatchCreateRequest{Key: k})
	w.made(4)

	for range 10_000 {
		w.progress()
	}
	w.cancel(4)
	for n := 0; ; n++ {
		r := w.recv()
		if r.Canceled {
			break
		}
		if r.WatchId != -1 || r.Created || len(r.Events) > 0 || n == 10_000 {
			t.Fatalf("got %v after %d notifications", r, n)
		}
	}

	// The client closes its side: what it has goes on. The unknown filters filter nothing.
	if err := w.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := pb.NewKVClient(cc).Put(timeout(t), &pb.PutRequest{Key: k}); err != nil {
		t.Fatal(err)
	}
	got := map[int64]int{}
	for len(got) < most-1 {
		r := w.recv()
		got[r.WatchId] += len(r.Events)
	}
	for id, n := range got {
		if n != 1 {
			t.Errorf("watcher %d got %d events", id, n)
		}
	}

	// It vanishes, and nothing of it is left.
	vanish()
	for limit := time.Now().Add(time.Minute); ; {
		s := m.replica.Hub().Metrics()
		if s.Streams == 0 && s.Watchers == 0 && s.QueuedBytes == 0 {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("remaining: %+v", s)
		}
		time.Sleep(time.Millisecond)
	}
}
