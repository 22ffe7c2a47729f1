package watch

import (
	"fmt"
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
