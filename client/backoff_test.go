package client_test

import (
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// TestBrokenStreamsPause: the pauses before new streams grow, also if a server answers on each
// stream before it ends it. The test takes the sum of the shortest pauses at least, and any time on
// a slow machine.
func TestBrokenStreamsPause(t *testing.T) {
	const streams = 7
	opened := make(chan struct{}, streams)
	f := start(t, &fake{watch: func(s *fakeStream) error {
		id := s.creates(1)[0].GetWatchId()
		select {
		case opened <- struct{}{}:
		default:
		}
		if err := s.send(&pb.WatchResponse{WatchId: id, Created: true}); err != nil {
			return err
		}
		return unavailable("at once")
	}})
	w := to(t, f).Watch(limited(t), "k")
	defer w.Close()
	<-opened
	began := time.Now()
	for range streams - 1 {
		<-opened
	}
	if d := time.Since(began); d < 787*time.Millisecond {
		t.Errorf("%d streams within %v", streams, d)
	}
}
