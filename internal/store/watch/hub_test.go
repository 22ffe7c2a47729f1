package watch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"vigil/internal/kv"
)

func TestOptions(t *testing.T) {
	if err := (Options{}).Validate(); err != nil {
		t.Error(err)
	}
	err := Options{RingBytes: -1, CatchUpWorkers: -2, ProgressInterval: time.Millisecond}.Validate()
	for _, want := range []string{"RingBytes", "CatchUpWorkers", "ProgressInterval"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("New accepts invalid options")
		}
	}()
	New(newMemSource(), Options{RingBytes: -1})
}

// TestEncoding compares the bytes of events with those of the generated code.
func TestEncoding(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2_000 {
		pair := func() *mvccpb.KeyValue {
			return &mvccpb.KeyValue{
				Key: []byte("k"), ModRevision: rng.Int64(), CreateRevision: rng.Int64N(1000), Version: rng.Int64N(3),
				Value: make([]byte, rng.IntN(1<<rng.IntN(16))), Lease: rng.Int64N(2) * rng.Int64(),
			}
		}
		want := &mvccpb.Event{Kv: pair()}
		e := kv.Event{Delete: rng.IntN(2) == 0}
		if e.Delete {
			want.Type = mvccpb.Event_DELETE
		}
		e.KV, _ = proto.Marshal(want.Kv)
		var prev []byte
		if rng.IntN(2) == 0 {
			want.PrevKv = pair()
			prev, _ = proto.Marshal(want.PrevKv)
		}
		a := arena{left: rng.IntN(2) * encodedSize(&e)}
		encoded := encode(&e, prev, &a)
		if got := decode(t, encoded); !proto.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
		if len(encoded) != cap(encoded) || len(encoded) != proto.Size(want) {
			t.Fatalf("%d bytes with room for %d, want %d", len(encoded), cap(encoded), proto.Size(want))
		}
		if got := wireSize(encoded); got != int64(proto.Size(&mvccpb.Event{Kv: want.Kv, PrevKv: want.PrevKv, Type: want.Type})+1+uvarintLen(len(encoded))) {
			t.Fatalf("wire size %d", got)
		}
	}
}

// TestCreateCancelLeaksNothing creates and cancels watchers of every kind, on streams that are opened and closed, and
// checks what remains.
func TestCreateCancelLeaksNothing(t *testing.T) {
	cycles := 100_000
	src := newMemSource()
	for i := range 200 {
		src.commit(op{key: fmt.Sprintf("k%03d", i)})
	}
	src.compact(50)
	goroutines := runtime.NumGoroutine()
	h := New(src, Options{})
	long := h.NewStream(StreamInfo{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	read := func(s *Stream) chan int {
		n := make(chan int)
		go func() {
			canceled := 0
			var rs []Response
			var err error
			for err == nil {
				rs, err = s.Next(ctx, rs[:0])
				for _, r := range rs {
					if r.Canceled && r.CompactRevision == 0 {
						canceled++
					}
				}
			}
			n <- canceled
		}()
		return n
	}
	longDone := read(long)
	rng := rand.New(rand.NewPCG(3, 4))
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	s, done, closed := long, longDone, 0
	var before int64
	for i := range cycles {
		if i == cycles/10 {
			before = heap()
		}
		if i%100 == 99 {
			if s != long {
				s.Close()
				<-done
				closed++
			}
			if s = long; rng.IntN(2) == 0 {
				s = h.NewStream(StreamInfo{})
				done = read(s)
			}
		}
		r := CreateRequest{ID: int64(i) + 1, Key: fmt.Appendf(nil, "k%03d", rng.IntN(200)), ProgressNotify: i%3 == 0, PrevKV: i%5 == 0}
		if i%2 == 0 {
			r.End = []byte("l")
		}
		r.StartRev = []int64{0, 1, 60, 150, 1 << 40}[i%5]
		s.Create(r)
		if i%7 == 0 {
			s.Progress()
		}
		s.Cancel(int64(i) + 1)
		if i%1000 == 0 {
			rev, events := src.commit(op{key: "k000", value: "v"})
			h.Publish(rev, events)
		}
	}
	if s != long {
		s.Close()
		<-done
	}
	if grown := heap() - before; grown > 4<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	long.Close()
	<-longDone
	h.Close()
	if m := h.Metrics(); m.Watchers != 0 || m.Streams != 0 || m.QueuedBytes != 0 {
		t.Errorf("left behind: %+v", m)
	}
	h.mu.Lock()
	if n := len(h.mu.live.members) + len(h.mu.live.exact) + h.mu.live.ranges.Len() + len(h.mu.ticks) + len(h.mu.requests); n != 0 {
		t.Errorf("%d entries left in the books", n)
	}
	h.mu.Unlock()
	for deadline := time.Now().Add(time.Minute); runtime.NumGoroutine() > goroutines; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), goroutines)
		}
	}
	if closed == 0 {
		t.Error("no stream was closed")
	}
}

// TestCreateWaitsForReader: Create waits for a client that does not read, until it reads or disconnects.
func TestCreateWaitsForReader(t *testing.T) {
	for _, end := range []string{"read", "close", "sender gone"} {
		t.Run(end, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := New(newMemSource(), Options{PendingAnswers: 10})
				defer h.Close()
				s := h.NewStream(StreamInfo{})
				created, finished := 0, false
				go func() {
					for range 50 {
						s.Create(CreateRequest{Key: []byte("k")})
						created++
					}
					finished = true
				}()
				synctest.Wait()
				if created != 10 {
					t.Fatalf("%d creates with room for 10", created)
				}
				switch end {
				case "close":
					s.Close()
				case "read":
					for n := 0; n < 50; {
						rs, err := s.Next(t.Context(), nil)
						if err != nil {
							t.Fatal(err)
						}
						n += len(rs)
						synctest.Wait()
					}
				case "sender gone":
					ctx, cancel := context.WithCancel(t.Context())
					cancel()
					for err := error(nil); err == nil; {
						_, err = s.Next(ctx, nil)
					}
				}
				synctest.Wait()
				if !finished {
					t.Error("the creates did not go on")
				}
			})
		})
	}
}

// TestParkAfterDrain: a watcher without room is not parked if there is room meanwhile.
func TestParkAfterDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(newMemSource(), Options{})
		defer h.Close()
		s := h.NewStream(StreamInfo{})
		s.Create(CreateRequest{Key: []byte("k")})
		if _, err := s.Next(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Next(ctx, nil); err == nil {
			t.Fatal("something was ready")
		}
		h.mu.Lock()
		w := s.watchers.get(0)
		h.mu.live.remove(w)
		s.behind++
		h.park(w, 100)
		h.mu.Unlock()
		synctest.Wait()
		checkValid(t, h)
		if st := h.Stats().Streams[0].Watchers[0].State; st != Live {
			t.Errorf("the watcher is %s", st)
		}
	})
}

// slowGet is a Source whose Get waits.
type slowGet struct {
	*memSource
	gate chan struct{}
}

func (s *slowGet) Get(key []byte, rev int64) ([]byte, error) {
	<-s.gate
	return s.memSource.Get(key, rev)
}

// TestProgressWaitsForMatcher: progress is answered at a revision that was published before it was
// requested, after the events up to it; writers do not wait for a slow read of prev_kv.
func TestProgressWaitsForMatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &slowGet{newMemSource(), make(chan struct{})}
		h := New(src, Options{})
		defer h.Close()
		put := func(v string) {
			rev, events := src.commit(op{key: "k", value: v})
			h.Publish(rev, events)
		}
		put("1")
		s := h.NewStream(StreamInfo{})
		s.Create(CreateRequest{Key: []byte("k"), PrevKV: true})
		s.Create(CreateRequest{Key: []byte("k"), ProgressNotify: true})
		synctest.Wait()
		put("2")
		synctest.Wait() // the matcher waits for the previous value
		put("3")
		s.Progress()
		synctest.Wait()
		s.Create(CreateRequest{Key: []byte("k"), StartRev: 4, ID: 9}) // published, not matched: live at once
		time.Sleep(time.Hour)                                         // and a tick comes meanwhile
		close(src.gate)
		synctest.Wait()
		rs, err := s.Next(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range rs {
			got = append(got, show(t, r))
		}
		want := []string{
			"watch 0 rev=2 created", "watch 1 rev=2 created", "watch 9 rev=4 created",
			"watch 0 rev=3: put k=2@3 (was 1@2)", "watch 1 rev=3: put k=2@3",
			"watch 0 rev=4: put k=3@4 (was 2@3)", "watch 1 rev=4: put k=3@4", "watch 9 rev=4: put k=3@4",
			"watch -1 rev=4",
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		checkValid(t, h)
	})
}

// TestStalledStreamsLeaveRoom: many unread streams together stay below the member's budget, and a stream that is read
// still gets its share.
func TestStalledStreamsLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const member = 1 << 20
		src := newMemSource()
		h := New(src, Options{MemberBytes: member, StreamBytes: 256 << 10})
		defer h.Close()
		for range 200 {
			s := h.NewStream(StreamInfo{})
			for range 10 {
				s.Create(CreateRequest{Key: []byte("k"), End: []byte{0}})
			}
		}
		reader := h.NewStream(StreamInfo{})
		reader.Create(CreateRequest{Key: []byte("k")})
		seen := 0
		for i := range 1_000 {
			rev, events := src.commit(op{key: "k", value: strings.Repeat("v", 200+i%7)})
			h.Publish(rev, events)
			synctest.Wait()
			if q := h.Metrics().QueuedBytes; q > member {
				t.Fatalf("%d bytes queued", q)
			}
			rs, err := reader.Next(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rs {
				seen += len(r.Events)
			}
		}
		synctest.Wait()
		if seen < 999 {
			t.Errorf("the reader has seen %d of 1000 events", seen)
		}
		m := h.Metrics()
		if m.Lag < 500 || m.Lag > 1000 {
			t.Errorf("the largest lag is %d of 1000", m.Lag)
		}
		if m.Parked != 2000 || m.FellBehindTotal != 2000 {
			t.Errorf("%d watchers parked, %d fell behind, want the 2000 that are not read", m.Parked, m.FellBehindTotal)
		}
		checkValid(t, h)
	})
}

// TestSharedEncoding: watchers get the same bytes, not copies of them.
func TestSharedEncoding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newMemSource()
		h := New(src, Options{})
		defer h.Close()
		var streams []*Stream
		for i := range 6 {
			s := h.NewStream(StreamInfo{})
			r := CreateRequest{Key: []byte("k"), PrevKV: i >= 3}
			if i%3 == 1 {
				r.End = []byte("l")
			}
			s.Create(r)
			streams = append(streams, s)
		}
		for v := range 2 {
			rev, events := src.commit(op{key: "k", value: fmt.Sprint(v)})
			h.Publish(rev, events)
			synctest.Wait()
		}
		var first, second [6]*byte
		for i, s := range streams {
			rs, err := s.Next(t.Context(), nil)
			if err != nil || len(rs) != 3 {
				t.Fatal(rs, err)
			}
			first[i], second[i] = &rs[1].Events[0][0], &rs[2].Events[0][0]
		}
		for i := range streams {
			// A create has no previous value, so all six are one; of the second there are two.
			if first[i] != first[0] || second[i] != second[i/3*3] {
				t.Errorf("stream %d has a copy of its own", i)
			}
		}
		if second[0] == second[3] {
			t.Error("with and without prev_kv are the same")
		}
		if n := h.Metrics().PrevReadsTotal; n != 1 {
			t.Errorf("%d lookups for prev_kv, want 1", n)
		}
	})
}

// TestSmallShareOfBatch: a response with a small part of a large batch does not keep the rest in memory.
func TestSmallShareOfBatch(t *testing.T) {
	var d deliverer
	d.hub = &Hub{opt: Options{}.EnsureDefaults()}
	src := newMemSource()
	g := newGroup()
	s := &Stream{hub: d.hub}
	for id, key := range []string{"a", "rare"} {
		g.add(&watcher{stream: s, id: int64(id), key: key})
	}
	var events []kv.Event
	for i := range 1_000 {
		key := "a"
		if i == 500 {
			key = "rare"
		}
		_, ev := src.commit(op{key: key})
		events = append(events, ev...)
	}
	b := &d.batch
	b.begin(src.Revision(), events)
	for i := range b.events {
		d.find(g, b, i)
	}
	d.encode(b)
	for _, key := range []string{"a", "rare"} {
		var v variant
		v.build(b, &d.hits[g.exact[key].hit-1], 0, &d.hub.opt)
		for _, c := range v.chunks {
			if len(c.events) != cap(c.events) || &c.events[0] == &b.plain[v.rev(0)-2] {
				t.Errorf("the events of %s share the batch's slice", key)
			}
		}
	}
	few := batch{last: b.last, events: b.events[:10], plain: b.plain[:10:10]}
	part := hits{first: 3, n: 2, puts: 2}
	var v, w variant
	v.build(&few, &part, 0, &d.hub.opt)
	if w.build(&few, &part, 0, &d.hub.opt); &v.chunks[0].events[0] == &few.plain[3] || &w.chunks[0].events[0] != &v.chunks[0].events[0] {
		t.Error("two targets with the same part of a batch have no copy in common")
	}
	if v.build(&few, &hits{n: 10, puts: 10}, 0, &d.hub.opt); &v.chunks[0].events[0] != &few.plain[0] {
		t.Error("a whole batch is copied")
	}
}

// TestNoStreams: while there are no streams, events are neither kept nor delivered, and the first stream gets all that it asks for.
func TestNoStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newMemSource()
		h := New(src, Options{})
		defer h.Close()
		put := func() {
			rev, events := src.commit(op{key: "k"})
			h.Publish(rev, events)
		}
		idle := func(when string, published int64) {
			t.Helper()
			synctest.Wait()
			m := h.Metrics()
			if m.RingBytes != 0 || m.Published != published || m.Matched != published || m.Lag != 0 {
				t.Errorf("%s: %+v, want revision %d", when, m, published)
			}
			if n := len(h.ring.kick); n != 0 {
				t.Errorf("%s: the matcher is woken", when)
			}
		}
		put() // revision 2
		put()
		idle("without a stream", 3)
		for range 3 {
			s := h.NewStream(StreamInfo{})
			rev := src.Revision()
			s.Create(CreateRequest{Key: []byte("k"), StartRev: 2})
			s.Create(CreateRequest{Key: []byte("k")})
			s.Create(CreateRequest{Key: []byte("k"), StartRev: rev + 2})
			put()
			put()
			synctest.Wait()
			checkValid(t, h)
			next := map[int64]int64{0: 2, 1: rev + 1, 2: rev + 2}
			end := rev + 2
			for next[0] <= end || next[1] <= end || next[2] <= end {
				rs, err := s.Next(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range rs {
					for _, e := range r.Events {
						if got := decode(t, e).Kv.ModRevision; got != next[r.WatchID] {
							t.Fatalf("watcher %d got revision %d, want %d", r.WatchID, got, next[r.WatchID])
						}
						next[r.WatchID]++
					}
				}
			}
			s.Close()
			put()
			idle("after a stream", end+1)
		}
	})
}

// TestCloseForgetsProgress closes a stream whose progress request waits. If it was the last stream,
// nothing is matched after that, so Close must remove it from the list.
func TestCloseForgetsProgress(t *testing.T) {
	h := New(newMemSource(), Options{})
	defer h.Close()
	s := h.NewStream(StreamInfo{})
	s.Create(CreateRequest{Key: []byte("k")})
	h.mu.Lock()
	s.asks, s.askRev = 1, h.revision()+1
	h.queueProgress(s)
	h.mu.Unlock()
	s.Close()
	checkValid(t, h)
}
