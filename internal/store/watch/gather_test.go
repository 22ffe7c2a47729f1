package watch

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// gathering is a hub with watchers of one key on one stream, in a bubble of fake time.
type gathering struct {
	t     *testing.T
	src   *memSource
	hub   *Hub
	s     *Stream
	began time.Time
}

func gather(t *testing.T, watchers int, o Options, run func(*gathering)) {
	synctest.Test(t, func(t *testing.T) {
		g := &gathering{t: t, src: newMemSource()}
		g.hub = New(g.src, o)
		defer g.hub.Close()
		g.s = g.hub.NewStream(StreamInfo{})
		for i := range watchers {
			g.s.Create(CreateRequest{Key: []byte("k")})
			if i%1000 == 999 || i == watchers-1 {
				g.responses(0)
			}
		}
		g.began = time.Now()
		run(g)
		checkValid(t, g.hub)
	})
}

func (g *gathering) put(value string) {
	rev, events := g.src.commit(op{key: "k", value: value})
	g.hub.Publish(rev, events)
	synctest.Wait()
}

// responses takes the queued responses and returns their number. All of them must have this number of events.
func (g *gathering) responses(events int) int {
	g.t.Helper()
	synctest.Wait()
	n := 0
	queued := func() bool {
		g.s.mu.Lock()
		defer g.s.mu.Unlock()
		return len(g.s.mu.runs) > g.s.mu.runHead
	}
	for queued() {
		rs, err := g.s.Next(g.t.Context(), nil)
		if err != nil {
			g.t.Fatal(err)
		}
		for _, r := range rs {
			if len(r.Events) != events {
				g.t.Fatalf("%d events in a response, want %d", len(r.Events), events)
			}
		}
		n += len(rs)
	}
	return n
}

func (g *gathering) want(responses, events int) {
	g.t.Helper()
	if n := g.responses(events); n != responses {
		g.t.Fatalf("%v: %d responses, want %d", time.Since(g.began), n, responses)
	}
}

// TestGather: events soon after a large fan-out share a response; no other event waits.
func TestGather(t *testing.T) {
	gather(t, 1000, Options{}, func(g *gathering) {
		g.put("1")
		g.want(1000, 1) // at once
		g.put("2")
		g.put("3")
		g.want(0, 0)
		time.Sleep(6 * time.Millisecond)
		g.want(1000, 2)
		time.Sleep(6 * time.Millisecond)
		g.put("4")
		g.want(1000, 1)
	})
}

// TestGatherBounded: no fan-out is so large that an event waits for longer than the bound.
func TestGatherBounded(t *testing.T) {
	gather(t, 5000, Options{GatherTime: 3 * time.Millisecond}, func(g *gathering) {
		for range 3 {
			g.put("1")
			g.want(5000, 1)
			g.put("2")
			g.put("3")
			time.Sleep(3 * time.Millisecond)
			g.want(5000, 2)
			time.Sleep(3 * time.Millisecond)
		}
	})
}

// TestGatherNotForFew: with little fan-out each event is sent at once.
func TestGatherNotForFew(t *testing.T) {
	gather(t, 3, Options{}, func(g *gathering) {
		for range 50 {
			g.put("1")
			g.want(3, 1)
		}
		if d := time.Since(g.began); d != 0 {
			t.Errorf("took %v", d)
		}
	})
}

// TestGatherEndsWhenMuchWaits: the ring does not overflow because the matcher waits.
func TestGatherEndsWhenMuchWaits(t *testing.T) {
	gather(t, 1000, Options{RingBytes: 4000}, func(g *gathering) {
		g.put("1")
		g.want(1000, 1)
		g.put(strings.Repeat("v", 500))
		g.want(0, 0)
		g.put(strings.Repeat("v", 500))
		g.want(1000, 2)
		if d := time.Since(g.began); d != 0 {
			t.Errorf("took %v", d)
		}
	})
}

// TestCatchUpRests: while there are writes, history is read no faster than the rate; otherwise at once.
func TestCatchUpRests(t *testing.T) {
	for _, writes := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			src := newMemSource()
			for range 1000 {
				src.commit(op{key: "k", value: strings.Repeat("v", 1000)})
			}
			h := New(src, Options{CatchUpBytes: 64 << 10, CatchUpReadRate: 1 << 20, CatchUpNear: 1})
			defer h.Close()
			s := h.NewStream(StreamInfo{})
			defer s.Close()
			ctx, stop := context.WithCancel(t.Context())
			var writer sync.WaitGroup
			writer.Go(func() {
				for writes && ctx.Err() == nil {
					rev, events := src.commit(op{key: "other"})
					h.Publish(rev, events)
					time.Sleep(10 * time.Millisecond)
				}
			})
			defer writer.Wait()
			defer stop()
			time.Sleep(time.Second) // the last write was long ago
			began := time.Now()
			s.Create(CreateRequest{Key: []byte("k"), StartRev: 2})
			for seen := 0; seen < 1000; {
				rs, err := s.Next(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range rs {
					seen += len(r.Events)
				}
			}
			// A megabyte in pieces of 64 KiB, each with a rest of at most mostRest.
			if took := time.Since(began); writes && took < 10*mostRest || !writes && took > mostRest {
				t.Errorf("took %v with writes: %v", took, writes)
			}
		})
	}
}
