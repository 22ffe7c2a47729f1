package watch

import (
	"sync"
	"testing"

	"vigil/internal/kv"
)

// TestReady: a stream is reported once after each Take that has returned nothing, and at its end.
func TestReady(t *testing.T) {
	src := newMemSource()
	h := New(src, Options{})
	defer h.Close()
	ready := NewReady()
	s := h.NewStream(StreamInfo{})
	s.NotifyReady(ready, 1)
	reported := func(want int) {
		t.Helper()
		ready.mu.Lock()
		defer ready.mu.Unlock()
		if n := len(ready.mu.owners); n != want {
			t.Errorf("reported %d times, want %d", n, want)
		}
	}
	take := func(want int) {
		t.Helper()
		rs, err := s.Take(nil, 1<<20)
		if err != nil || len(rs) != want {
			t.Errorf("took %d responses, want %d: %v", len(rs), want, err)
		}
	}
	reported(0)
	s.Create(CreateRequest{Key: []byte("a")})
	s.Create(CreateRequest{Key: []byte("b")})
	reported(1)
	take(2)
	s.Create(CreateRequest{Key: []byte("c")}) // Take will see it
	reported(1)
	take(1)
	take(0)
	s.Create(CreateRequest{Key: []byte("d")})
	reported(2)
	take(1)
	take(0)
	s.Close()
	reported(3)
	if _, err := s.Take(nil, 1); err != ErrClosed {
		t.Errorf("took after the end: %v", err)
	}
	h.Close()
	late := h.NewStream(StreamInfo{})
	late.NotifyReady(ready, 2)
	reported(4)
}

// TestReadyFanOut: one goroutine serves many streams, and misses no event.
func TestReadyFanOut(t *testing.T) {
	src := newMemSource()
	h := New(src, Options{})
	defer h.Close()
	ready := NewReady()
	const streams, events = 50, 300
	list := make([]*Stream, streams)
	for i := range list {
		list[i] = h.NewStream(StreamInfo{})
		list[i].NotifyReady(ready, i)
		list[i].Create(CreateRequest{Key: []byte("k")})
	}
	var served sync.WaitGroup
	stop := make(chan struct{})
	got := make([]int, streams)
	served.Go(func() {
		for left := streams; left > 0; {
			owners, ok := ready.Wait(stop, nil)
			if !ok {
				return
			}
			for _, o := range owners {
				for {
					rs, err := list[o.(int)].Take(nil, 100)
					if err != nil {
						t.Error(err)
					}
					if len(rs) == 0 {
						break
					}
					for _, r := range rs {
						if got[o.(int)] += len(r.Events); len(r.Events) > 0 && got[o.(int)] == events {
							left--
						}
					}
				}
			}
		}
	})
	for i := range events {
		rev := int64(i) + src.Revision() + 1
		h.Publish(rev, []kv.Event{{Key: []byte("k"), Rev: kv.Rev{Main: rev}, KV: make([]byte, 10)}})
	}
	served.Wait()
	close(stop)
}
