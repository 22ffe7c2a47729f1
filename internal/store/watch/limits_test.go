package watch

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
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

// TestFutureWatchers: a client may let watchers in the future come and go as often as it likes. They take no memory, and a request for
// progress no look at all of its watchers.
func TestFutureWatchers(t *testing.T) {
	const later = 1 << 40
	h := New(newMemSource(), Options{PendingAnswers: 1 << 20})
	defer h.Close()
	s := h.NewStream(StreamInfo{})
	s.Create(CreateRequest{Key: []byte("k")})
	for id := int64(1); id < 1000; id++ { // each ends after the next one was created
		s.Create(CreateRequest{Key: []byte("k"), StartRev: later, ID: id})
		if id > 1 {
			s.Cancel(id - 1)
		}
		if n := len(s.future); n > 20 {
			t.Fatalf("%d watchers in the future are known, and %d are active", n, s.active)
		}
	}
	progress := func() (n int) {
		s.Progress()
		for _, r := range queued(t, s) {
			if r.WatchID == InvalidID && !r.Created {
				n++
			}
		}
		return n
	}
	if n := progress(); n != 0 {
		t.Errorf("%d notifications while a watcher is in the future", n)
	}
	s.Cancel(999)
	if n := progress(); n != 1 {
		t.Errorf("%d notifications after the watcher in the future has ended", n)
	}
	if len(s.future) != 0 {
		t.Errorf("%d watchers in the future are left", len(s.future))
	}
}

// queued returns what is queued for a stream.
func queued(t *testing.T, s *Stream) (all []Response) {
	for {
		rs, waiting, err := s.next(nil, s.hub.opt.NextBytes, false)
		if err != nil {
			t.Fatal(err)
		}
		if all = append(all, rs...); waiting {
			return all
		}
	}
}

// TestCancelAllYields: a scan that cannot be read ends all its watchers. Others get the hub's lock in between.
func TestCancelAllYields(t *testing.T) {
	const watchers = 200_000
	h := New(newMemSource(), Options{PendingAnswers: 2 * watchers})
	defer h.Close()
	s := h.NewStream(StreamInfo{})
	for range watchers {
		s.Create(CreateRequest{Key: []byte("k")})
	}
	h.mu.Lock()
	g := h.mu.live // becomes a scan that a worker runs
	h.mu.live, s.behind, g.running = newGroup(), watchers, true
	left := make(chan int)
	started := make(chan struct{})
	go func() {
		close(started)
		h.mu.Lock()
		defer h.mu.Unlock()
		left <- s.active
	}()
	<-started
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.cancelAll(g, func(*watcher) bool { return true }, Response{CompactRevision: 1})
		g.running = false
		h.mu.Unlock()
	}()
	if n := <-left; n == 0 {
		t.Error("nobody got the lock before all watchers were canceled")
	}
	<-done
}

// TestTickInParts: a tick of a client with many watchers looks at a part of them while it has the hub's lock, and at all in the end.
func TestTickInParts(t *testing.T) {
	const watchers, part = 1000, 10
	h := New(newMemSource(), Options{ProgressInterval: time.Hour, slice: part})
	defer h.Close()
	s := h.NewStream(StreamInfo{})
	for range watchers {
		s.Create(CreateRequest{Key: []byte("k"), ProgressNotify: true})
	}
	queued(t, s)
	notified := map[int64]int{}
	h.mu.Lock()
	defer h.mu.Unlock()
	for more := true; more; {
		more = h.tick(s)
		n := 0
		for _, r := range queued(t, s) {
			notified[r.WatchID]++
			n++
		}
		if n > part {
			t.Fatalf("%d watchers in one part of a tick, want at most %d", n, part)
		}
	}
	if len(notified) != watchers || notified[0] != 1 {
		t.Errorf("%d watchers were notified, the first one %d times", len(notified), notified[0])
	}
}
