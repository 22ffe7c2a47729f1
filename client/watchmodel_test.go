package client_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"vigil/client"
)

// history is a server of a fixed history, with one to three events a revision. It sends them in
// messages and fragments of any size, with true progress in between, and breaks streams at any
// moment.
type history struct {
	events []*mvccpb.Event
	last   int64
	broken func() bool // whether to break the stream now
}

func newHistory(last int64, broken func() bool) *history {
	h := &history{last: last, broken: broken}
	for rev := int64(2); rev <= last; rev++ {
		for n := range 1 + rand.IntN(3) {
			h.events = append(h.events, event(fmt.Sprint("k", n), rev))
		}
	}
	return h
}

// from returns the index of the first event at a revision or later.
func (h *history) from(rev int64) int {
	for i, ev := range h.events {
		if ev.Kv.ModRevision >= rev {
			return i
		}
	}
	return len(h.events)
}

// serve serves one stream. Watchers of the past receive events in turns, each up to the end of the
// history.
func (h *history) serve(s *fakeStream) error {
	requests := make(chan *pb.WatchRequest)
	go func() {
		defer close(requests)
		for {
			r, err := s.Recv()
			if err != nil {
				return
			}
			select {
			case requests <- r:
			case <-s.Context().Done():
				return
			}
		}
	}()
	at := map[int64]int{} // the next event of each watcher
	for {
		behind := []int64{}
		for id, n := range at {
			if n < len(h.events) {
				behind = append(behind, id)
			}
		}
		var r *pb.WatchRequest
		var more bool
		if len(behind) == 0 {
			r, more = <-requests
		} else {
			select {
			case r, more = <-requests:
			default:
				more = true
			}
		}
		if !more || h.broken() {
			return unavailable("broken")
		}
		if r == nil {
			id := behind[rand.IntN(len(behind))]
			n, err := h.sendSome(s, id, at[id])
			if err != nil {
				return err
			}
			at[id] = n
			continue
		}
		switch {
		case r.GetCreateRequest() != nil:
			c := r.GetCreateRequest()
			at[c.GetWatchId()] = h.from(c.GetStartRevision())
			if err := s.send(&pb.WatchResponse{WatchId: c.GetWatchId(), Created: true,
				Header: header(h.last)}); err != nil {
				return err
			}
		case r.GetCancelRequest() != nil:
			delete(at, r.GetCancelRequest().GetWatchId())
		case len(behind) == 0: // progress
			if err := s.send(&pb.WatchResponse{WatchId: -1, Header: header(h.last)}); err != nil {
				return err
			}
		}
	}
}

// sendSome sends whole revisions from an event on, in one message or in fragments, and returns the
// next event. A stream may break between fragments.
func (h *history) sendSome(s *fakeStream, id int64, n int) (int, error) {
	end := min(n+1+rand.IntN(8), len(h.events))
	for end < len(h.events) && h.events[end].Kv.ModRevision == h.events[end-1].Kv.ModRevision {
		end++
	}
	for n < end {
		cut := n + 1 + rand.IntN(end-n)
		m := &pb.WatchResponse{WatchId: id, Header: header(h.last), Fragment: cut < end,
			Events: h.events[n:cut]}
		if err := s.send(m); err != nil {
			return n, err
		}
		if n = cut; n < end && h.broken() {
			return n, unavailable("broken in a revision")
		}
	}
	if n == len(h.events) && rand.IntN(2) == 0 {
		return n, s.send(&pb.WatchResponse{WatchId: id, Header: header(h.last)})
	}
	return n, nil
}

func header(rev int64) *pb.ResponseHeader { return &pb.ResponseHeader{ClusterId: 7, Revision: rev} }

// TestWatchModel: watchers of any buffer receive each event once and in order, whenever streams
// break, buffers are full, progress is reported, and members are left.
func TestWatchModel(t *testing.T) {
	var mu sync.Mutex
	breaks := 6 // then streams last, so that the pauses between them stay short
	h := newHistory(60, func() bool {
		mu.Lock()
		defer mu.Unlock()
		if breaks == 0 || rand.IntN(60) > 0 {
			return false
		}
		breaks--
		return true
	})
	fakes := []*fake{start(t, &fake{watch: h.serve}), start(t, &fake{watch: h.serve})}
	c := to(t, fakes...)
	ctx := limited(t)
	var wg sync.WaitGroup
	for i := range 8 {
		first := 2 + rand.Int64N(h.last-1)
		buffer := []int{1, 500, 4000, 1 << 20}[rand.IntN(4)]
		w := c.Watch(ctx, "k", client.WithPrefix(), client.FromRevision(first),
			client.WithBuffer(buffer))
		wg.Go(func() {
			defer w.Close()
			wanted := h.events[h.from(first):]
			for ev, err := range w.Events() {
				if err != nil {
					t.Errorf("watcher %d with a buffer of %d: %v", i, buffer, err)
					return
				}
				if x := wanted[0].Kv; ev.KV.Key != string(x.Key) ||
					ev.KV.ModRevision != x.ModRevision {
					t.Errorf("watcher %d with a buffer of %d from %d: %s@%d, want %s@%d", i, buffer,
						first, ev.KV.Key, ev.KV.ModRevision, x.Key, x.ModRevision)
					return
				}
				if wanted = wanted[1:]; len(wanted) == 0 {
					return
				}
				switch rand.IntN(12) {
				case 0:
					w.RequestProgress()
				case 1:
					if err := c.SetEndpoints(fakes[rand.IntN(2)].addr); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
}
