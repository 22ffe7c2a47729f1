package watch

import (
	"strings"
	"testing"
	"testing/synctest"
)

// TestStreamWatchers: there is a limit to the watchers of a stream and to their memory. Rejected ones
// cost nothing, and canceled ones make room.
func TestStreamWatchers(t *testing.T) {
	for name, o := range map[string]Options{
		ReasonTooMany:  {StreamWatchers: 3},
		ReasonTooLarge: {StreamWatcherBytes: 3*(watcherSize+5) + 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := New(newMemSource(), o)
			defer h.Close()
			s := h.NewStream(StreamInfo{})
			defer s.Close()
			other := h.NewStream(StreamInfo{})
			defer other.Close()
			create := func(s *Stream) Response {
				t.Helper()
				s.Create(CreateRequest{Key: []byte("abc"), End: []byte("ad")})
				rs, err := s.Next(t.Context(), nil)
				if err != nil || len(rs) != 1 {
					t.Fatal(rs, err)
				}
				return rs[0]
			}
			for id := range int64(3) {
				if r := create(s); r.Canceled || r.WatchID != id {
					t.Fatalf("%+v", r)
				}
			}
			for range 10_000 {
				r := create(s)
				if !r.Created || !r.Canceled || r.WatchID != InvalidID || !strings.HasPrefix(r.Reason, name) {
					t.Fatalf("%+v", r)
				}
			}
			if r := create(other); r.Canceled {
				t.Fatalf("another stream: %+v", r)
			}
			s.Cancel(1)
			if rs, err := s.Next(t.Context(), nil); err != nil || len(rs) != 1 {
				t.Fatal(rs, err)
			}
			if r := create(s); r.Canceled || r.WatchID != 3 {
				t.Fatalf("%+v", r)
			}
			checkValid(t, h)
		})
	}
}

// TestProgressFlood: requests for progress whose answers are not read stay within the budget, and
// those that cannot be answered are dropped.
func TestProgressFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newMemSource()
		h := New(src, Options{StreamBytes: 10_000})
		defer h.Close()
		s := h.NewStream(StreamInfo{})
		defer s.Close()
		s.Create(CreateRequest{Key: []byte("k")})
		for range 100_000 {
			s.Progress()
		}
		if q := h.Metrics().QueuedBytes; q > 10_000 {
			t.Errorf("%d bytes queued", q)
		}
		rev, events := src.commit(op{key: "k", value: "v"})
		h.Publish(rev, events)
		synctest.Wait()
		for seen := 0; seen == 0; {
			rs, err := s.Next(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rs {
				seen += len(r.Events)
			}
			synctest.Wait()
		}
		checkValid(t, h)
	})
}

// TestCancelWhileDelivering: watchers of one key are created and canceled while an event is delivered to very many. The
// others receive it once.
func TestCancelWhileDelivering(t *testing.T) {
	const streams, per = 10, 300
	src := newMemSource()
	h := New(src, Options{slice: 1})
	defer h.Close()
	var all []*Stream
	for range streams {
		s := h.NewStream(StreamInfo{})
		for range per {
			s.Create(CreateRequest{Key: []byte("k")})
		}
		all = append(all, s)
	}
	go func() {
		for range 100 {
			rev, events := src.commit(op{key: "k", value: "v"})
			h.Publish(rev, events)
		}
	}()
	for i, s := range all {
		seen := map[int64]int64{}
		asked, canceled := map[int64]bool{}, map[int64]bool{}
		for done := false; !done; {
			rs, err := s.Next(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rs {
				if canceled[r.WatchID] {
					t.Fatalf("stream %d: %+v after the cancel", i, r)
				}
				if r.Canceled {
					canceled[r.WatchID] = true
				}
				for _, b := range r.Events {
					mod := decode(t, b).Kv.ModRevision
					if prev, ok := seen[r.WatchID]; ok && mod != prev+1 {
						t.Fatalf("stream %d: watcher %d got %d after %d", i, r.WatchID, mod, prev)
					}
					seen[r.WatchID] = mod
				}
			}
			for id := range int64(per) {
				if id%3 == int64(i%3) && seen[id] >= 20 && !asked[id] {
					asked[id] = true
					s.Cancel(id)
				}
			}
			done = true
			for id := range int64(per) {
				done = done && (canceled[id] || !asked[id] && seen[id] == 101)
			}
		}
	}
}
