package watch

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"vigil/internal/kv"
)

// gatedSource is a source whose reads wait until it is open. It counts the reads that begin before served. The hub's
// one worker asks it between two reads, so the count does not depend on when a receiver runs.
type gatedSource struct {
	*memSource
	open   chan struct{}
	served func() bool
	reads  atomic.Int64
}

func (s *gatedSource) EventsIn(buf *kv.EventBuffer, from, to int64, maxBytes int) ([]kv.Event, int64, error) {
	<-s.open
	if !s.served() {
		s.reads.Add(1)
	}
	return s.memSource.EventsIn(buf, from, to, maxBytes)
}

// TestCatchUpIsFairToStreams: a stream of very many old watchers takes no more turns of catch-up than a stream of one,
// wherever the watchers start and whether there are events for them.
func TestCatchUpIsFairToStreams(t *testing.T) {
	const (
		revisions = 6000
		old       = 2000
		few       = 200 // revisions for the stream of one watcher
		batch     = 2048
	)
	for _, c := range []struct {
		name, key string
		spread    int
		start     int64 // of the stream of one
	}{
		{"nothing for them, one position", "none", 0, 2},
		{"nothing for them, many positions", "none", 2, revisions - few + 2},
		{"events for them, one position", "k", 0, 2},
		{"events for them, many positions", "k", 2, revisions - few + 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			src := &gatedSource{memSource: newMemSource(), open: make(chan struct{})}
			for i := range revisions {
				key := "k"
				if c.start == 2 && i < few {
					key = "wanted"
				}
				src.commit(op{key: key, value: fmt.Sprintf("%050d", i)})
			}
			h := New(src, Options{CatchUpWorkers: 1, CatchUpBytes: batch, CatchUpNear: 16, CatchUpScans: 8})
			defer h.Close()
			many := h.NewStream(StreamInfo{})
			for i := range int64(old) {
				many.Create(CreateRequest{ID: i + 1, Key: []byte(c.key), StartRev: 2 + i*int64(c.spread)})
			}
			go func() {
				var rs []Response
				var err error
				for err == nil {
					rs, err = many.Next(t.Context(), rs[:0])
				}
			}()
			one := h.NewStream(StreamInfo{})
			one.Create(CreateRequest{ID: 1, Key: []byte("k"), End: []byte("x"), StartRev: c.start})
			h.mu.Lock()
			w := one.watchers.get(1)
			h.mu.Unlock()
			src.served = func() bool {
				one.mu.Lock()
				defer one.mu.Unlock()
				return w.events >= few
			}
			close(src.open)
			events, bytes := 0, 0
			for events < few {
				rs, err := one.Next(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range rs {
					for _, e := range r.Events {
						events++
						bytes += len(e)
					}
				}
			}
			// Alone it would take a read for each batch. The others have as many turns, and some before
			// the watcher came.
			alone, at := int64(bytes)/batch+2, src.reads.Load()
			t.Logf("%d events in %d reads, alone some %d", events, at, alone)
			if at > 3*alone+16 {
				t.Errorf("%d reads of history until the watcher had its %d events, want %d at most", at, few, 3*alone+16)
			}
			one.Close()
			many.Close()
		})
	}
}

// TestScanSkipsForGoneWatchers: a scan that watchers at very different positions share does not read for those that are gone. It goes on
// where the first of the others starts.
func TestScanSkipsForGoneWatchers(t *testing.T) {
	const revisions, late, batch = 6_000, 5_900, 2_048
	for _, c := range []struct {
		name string
		old  int // watchers that start early, and go
		keep int // watchers that start late
		end  func(s *Stream)
	}{
		{"one of two is canceled", 1, 1, func(s *Stream) { s.Cancel(1) }},
		{"the stream of one is closed", 1, 1, (*Stream).Close},
		{"the stream of many is closed", 60, 1, (*Stream).Close},
		{"one of very many is canceled", 1, 3 * handOver, func(s *Stream) { s.Cancel(1) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			src := &scannedSource{memSource: newMemSource()}
			for i := range revisions {
				src.commit(op{key: "k", value: fmt.Sprintf("%050d", i)})
			}
			h := New(src, Options{CatchUpWorkers: 1, CatchUpBytes: batch, CatchUpNear: 1, CatchUpScans: 1, slice: 16})
			defer h.Close()
			var gone *Stream
			merged, reads := false, 0
			src.onScan = func(from int64) { // called by the one worker
				if merged && from < late {
					reads++
				}
				h.mu.Lock()
				ready := !merged && len(h.mu.reading) == 1 && len(h.mu.reading[0].members) == c.old+c.keep
				h.mu.Unlock()
				if ready {
					merged = true
					c.end(gone)
				}
			}
			src.hold.Lock() // no scan before all watchers are there
			gone = h.NewStream(StreamInfo{})
			for i := range int64(c.old) {
				gone.Create(CreateRequest{ID: i + 1, Key: []byte("none"), StartRev: 2})
			}
			var streams []*Stream
			for i := range c.keep {
				if i%fewBehind == 0 { // more of one stream would have scans of their own
					streams = append(streams, h.NewStream(StreamInfo{}))
				}
				streams[len(streams)-1].Create(CreateRequest{Key: []byte("none"), StartRev: late})
			}
			src.hold.Unlock()
			last := streams[len(streams)-1]
			for live := false; !live; {
				h.mu.Lock()
				live = last.behind == 0
				h.mu.Unlock()
				runtime.Gosched()
			}
			if !merged {
				t.Fatal("the watchers never shared a scan")
			}
			alone := (late * 60) / batch
			t.Logf("%d reads for nobody, %d without the jump", reads, alone)
			if most := 3 + (c.old+c.keep)/handOver; reads > most {
				t.Errorf("%d reads before the first revision that anybody wants, want %d at most", reads, most)
			}
		})
	}
}

// scannedSource reports the positions of its reads.
type scannedSource struct {
	*memSource
	hold   sync.Mutex
	onScan func(from int64)
}

func (s *scannedSource) EventsIn(buf *kv.EventBuffer, from, to int64, maxBytes int) ([]kv.Event, int64, error) {
	s.hold.Lock()
	s.onScan(from)
	s.hold.Unlock()
	return s.memSource.EventsIn(buf, from, to, maxBytes)
}
