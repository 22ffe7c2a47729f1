package watch

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestEveryWatcherIsServed: clients that never drain their queue, because one of their watchers has events all the time, receive a
// response for each of their watchers that has something to deliver, after a bounded number of bytes (W12). VIGIL_WATCH_SEED is the
// seed of the first run.
//
//vigil:norace
func TestEveryWatcherIsServed(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("VIGIL_WATCH_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	var parked int64
	for i := range uint64(8) {
		if !t.Run(fmt.Sprintf("seed=%d", seed+i), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { parked += serveRun(t, rand.New(rand.NewPCG(seed+i, 0))) })
		}) {
			break
		}
	}
	if parked == 0 {
		t.Error("no watcher was ever parked: the test shows nothing")
	}
}

// slowClient is a client that takes a little at a time.
type slowClient struct {
	stream  *Stream
	watches []*starving
	taken   int64 // bytes
}

// starving is one watcher of a slow client, which compares what it received with what it should have.
type starving struct {
	key, end string
	due      []int64 // revisions that were published for it and not received
	since    int64   // slowClient.taken when the watcher was last served, or its oldest due revision was published
}

func (w *starving) wants(key string) bool {
	return key == w.key || w.end != "" && key >= w.key && key < w.end
}

func serveRun(t *testing.T, rng *rand.Rand) (parked int64) {
	limit := between(rng, 4_000, 20_000)
	o := Options{
		StreamBytes: limit, MemberBytes: limit * between(rng, 20, 200),
		ResponseBytes: between(rng, 500, 3_000), ResponseRevisions: int(between(rng, 1, 50)),
		CatchUpWorkers: int(between(rng, 1, 3)), CatchUpBytes: int(between(rng, 500, 5_000)),
		CatchUpReadRate: 1 << 50, CatchUpSendRate: 1 << 50,
		CatchUpNear: between(rng, 1, 50), slice: int(between(rng, 1, 20)), GatherTime: time.Millisecond,
	}
	src := newMemSource()
	h := New(src, o)
	defer h.Close()
	largest := int64(0)
	var clients []*slowClient
	for range between(rng, 1, 3) {
		c := &slowClient{stream: h.NewStream(StreamInfo{})}
		c.stream.NotifyReady(NewReady(), c)
		for range between(rng, 2, 8) {
			w := &starving{key: randomKeys[rng.IntN(6):][:1]}
			if rng.IntN(4) == 0 {
				w.end = "g"
			}
			c.watches = append(c.watches, w)
			c.stream.Create(CreateRequest{Key: []byte(w.key), End: []byte(w.end), PrevKV: rng.IntN(4) == 0})
		}
		defer c.stream.Close()
		clients = append(clients, c)
	}
	publish := func(key string, size int64) {
		rev, events := src.commit(op{key: key, value: strings.Repeat("v", int(size))})
		largest = max(largest, 2*size)
		for _, c := range clients {
			for _, w := range c.watches {
				if w.wants(key) {
					if len(w.due) == 0 {
						w.since = c.taken
					}
					w.due = append(w.due, rev)
				}
			}
		}
		h.Publish(rev, events)
	}
	held := func(s *Stream) int64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.mu.queued
	}
	synctest.Wait()
	for _, c := range clients { // the created responses
		if _, err := c.stream.Take(nil, 1<<30); err != nil {
			t.Fatal(err)
		}
	}
	for step := range 1_500 {
		if step%100 == 0 {
			synctest.Wait()
			checkValid(t, h)
		}
		// The hot key keeps the queues filled, as far as it is admitted.
		level := limit * between(rng, 40, 95) / 100
		for range 40 {
			if held(clients[0].stream) >= level {
				break
			}
			publish("a", between(rng, 50, 600))
			time.Sleep(2 * time.Millisecond)
		}
		if rng.IntN(3) == 0 {
			publish(randomKeys[1+rng.IntN(5):][:1], between(rng, 10, 1_000))
		}
		if rng.IntN(60) == 0 { // larger than what a stream may hold
			publish(randomKeys[rng.IntN(6):][:1], limit+between(rng, 0, 2_000))
		}
		for _, c := range clients {
			c.take(t, between(rng, 100, 1_500))
		}
		time.Sleep(time.Duration(between(rng, 1, 3)) * time.Millisecond)
		parked += int64(h.Metrics().Parked)
		for i, c := range clients {
			// Each watcher of a round may need an empty queue, but most are served together.
			most := int64(len(c.watches)+1) * (limit + largest)
			for k, w := range c.watches {
				if len(w.due) == 0 {
					continue
				}
				if c.taken-w.since > most {
					t.Fatalf("client %d took %d bytes, want %d at most, while its watcher %d of %q..%q waited for revision %d of %d",
						i, c.taken-w.since, most, k, w.key, w.end, w.due[0], src.Revision())
				}
			}
		}
	}
	return parked
}

// take takes at most approximately n bytes.
func (c *slowClient) take(t *testing.T, n int64) {
	rs, err := c.stream.Take(nil, n)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rs {
		for _, one := range r.each(nil) {
			w := c.watches[one.WatchID]
			for _, e := range one.Events {
				if rev := decode(t, e).Kv.ModRevision; len(w.due) == 0 || w.due[0] != rev {
					t.Fatalf("watcher %d received revision %d, want %v", one.WatchID, rev, w.due)
				}
				w.due = w.due[1:]
				c.taken += wireSize(e)
			}
			c.taken += headerSize
			w.since = c.taken
		}
	}
}

// roundOfOne returns a sender that takes a response at a time, and does not look before it is told that there is one. It serves a stream with room for two small events, and the watchers 0 of the key "hot" and 1 of another key. Watcher 1 was in a
// round with others that were first, and waits for an empty queue, which holds an event for watcher 0.
func roundOfOne(t *testing.T, key string) (src *memSource, h *Hub, s *Stream, take func() string, put func(key string, size int)) {
	src = newMemSource()
	h = New(src, Options{StreamBytes: 1_000})
	s = h.NewStream(StreamInfo{})
	ready := NewReady()
	s.NotifyReady(ready, s)
	s.Create(CreateRequest{Key: []byte("hot")})
	s.Create(CreateRequest{Key: []byte(key)})
	reported := true
	take = func() string {
		t.Helper()
		synctest.Wait()
		if reported = reported || len(ready.wake) > 0; !reported {
			return ""
		}
		for len(ready.wake) > 0 { // not after Take: it may be woken again by then
			<-ready.wake
		}
		rs, err := s.Take(nil, 1)
		if err != nil {
			t.Fatal(err)
		}
		reported = len(rs) > 0
		synctest.Wait()
		var b strings.Builder
		for _, r := range rs {
			fmt.Fprintf(&b, "%d:%d ", r.WatchID, len(r.Events))
		}
		return strings.TrimSpace(b.String())
	}
	put = func(key string, size int) {
		rev, events := src.commit(op{key: key, value: strings.Repeat("v", size)})
		h.Publish(rev, events)
		synctest.Wait()
	}
	for i, want := range []string{"0:0", "1:0", ""} {
		if got := take(); got != want {
			t.Fatalf("response %d is %q, want %q", i, got, want)
		}
	}
	put("hot", 10)
	h.mu.Lock()
	defer h.mu.Unlock()
	w := s.watchers.get(1)
	h.mu.live.remove(w)
	s.behind++
	s.mu.Lock()
	w.member, s.mu.members, s.mu.level = true, 1, 500
	s.mu.Unlock()
	h.park(w, 2_000)
	return src, h, s, take, put
}

// TestRetryIsFirst: while a watcher waits for an empty queue, the others of its stream do not fill it.
func TestRetryIsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, h, s, take, put := roundOfOne(t, "large")
		defer h.Close()
		put("large", 5_000)
		var got []string
		for range 8 {
			put("hot", 10)
			if r := take(); r != "" {
				got = append(got, r)
			}
		}
		if len(got) < 3 || got[0] != "0:1" || got[1] != "1:1" || !strings.HasPrefix(got[2], "0:") {
			t.Errorf("took %q, want the event that was queued, the large one, and the others", got)
		}
		for take() != "" {
		}
		checkValid(t, h)
		if st := h.Stats().Streams[0]; st.Watchers[0].State != Live || st.Watchers[1].State != Live {
			t.Errorf("not all watchers are live: %+v", st)
		}
		s.Close()
	})
}

// TestRoundEndsWithoutResponse: the end of a round lets the other watchers continue, also if its last member becomes live or is canceled
// and has no events.
func TestRoundEndsWithoutResponse(t *testing.T) {
	for _, cancel := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			_, h, s, take, put := roundOfOne(t, "none")
			defer h.Close()
			put("hot", 10)
			if st := h.Stats().Streams[0].Watchers; st[0].State != Stalled || st[1].State != Stalled {
				t.Fatalf("not all watchers are stalled: %+v", st)
			}
			want := "0:1, 0:1"
			if cancel {
				s.Cancel(1)
				want = "0:1, 1:0, 0:1"
			}
			var got []string
			for range 6 {
				if r := take(); r != "" {
					got = append(got, r)
				}
			}
			if got := strings.Join(got, ", "); got != want {
				t.Errorf("cancel %v: took %s, want %s", cancel, got, want)
			}
			checkValid(t, h)
		})
	}
}

// TestCancelParked: when the last watcher that waits for room is canceled, the others have room again.
func TestCancelParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, h, s, take, put := roundOfOne(t, "large")
		defer h.Close()
		put("hot", 10)
		s.Cancel(0)
		checkValid(t, h)
		s.Cancel(1)
		checkValid(t, h)
		s.mu.Lock()
		if s.crammed() {
			t.Error("watchers are still waited for")
		}
		s.mu.Unlock()
		for take() != "" {
		}
	})
}
