package watch

import (
	"sync"
	"sync/atomic"
	"time"

	"vigil/internal/kv"
)

// Source is the history that the hub reads from. Its methods may be called concurrently.
type Source interface {
	// Revision returns the newest revision that can be read. It must be cheap.
	Revision() int64
	// CompactRevision returns the revision below which history is gone. It must be cheap.
	CompactRevision() int64
	// EventsIn returns the events of the revisions from..to in order, at least one revision whole
	// and further whole ones up to approximately maxBytes, and the revision that the next call
	// should start from, at most to+1. It fails with an error that is kv.ErrCompacted if from is
	// below the compact revision. The hub copies what it needs of the events: they are valid until
	// the next call with the same buf, which the source may use in any way.
	EventsIn(buf *kv.EventBuffer, from, to int64, maxBytes int) (events []kv.Event,
		next int64, err error)
	// Get returns the encoded mvccpb.KeyValue of key as it was at rev, nil if the key did not
	// exist. It fails with an error that is kv.ErrCompacted if rev is below the compact revision.
	Get(key []byte, rev int64) ([]byte, error)
}

// Hub delivers published events to the watchers of all streams. Its methods are safe for concurrent
// use, except where they say otherwise.
type Hub struct {
	src    Source
	opt    Options
	ring   ring
	queued atomic.Int64 // bytes that all streams hold
	counts counts
	began  time.Time // Stream.tickAt counts from here

	done     chan struct{} // closed by Close
	finished sync.WaitGroup
	work     sync.Cond     // on mu: there may be something for a catch-up worker
	tickKick chan struct{} // one token: the first tick may have changed

	mu struct {
		sync.Mutex
		closed     bool
		streams    map[uint64]*Stream
		nextStream uint64
		watchers   int

		// live holds the live watchers. Only the matcher replaces it. gone holds the watchers that
		// were canceled while the matcher delivered to it.
		live *group
		gone []*watcher
		// claimed and matched are out of date while there are no streams.
		claimed, matched int64

		pending []*Stream // streams with pending watchers, in the order of their turns
		scans   []*group  // scans that wait for a worker; of equal cost, the first is next
		reading []*group  // scans that workers run
		spent   int64     // the cost of the turns of a scan that had existed from the start
		// restUntil is the time when workers continue after they have delivered much while there
		// were writes.
		restUntil time.Time
		seen      int64     // newest published revision at a worker's last look
		seenAt    time.Time // when a worker first saw it
		requests  []*Stream
		ticks     tickHeap
	}
}

// New starts a hub that continues after the newest revision of the source. It panics if the
// options are invalid.
func New(src Source, o Options) *Hub {
	if err := o.Validate(); err != nil {
		panic(err)
	}
	h := &Hub{src: src, opt: o.EnsureDefaults(), began: time.Now(), done: make(chan struct{}),
		tickKick: make(chan struct{}, 1)}
	rev := src.Revision()
	h.ring.init(h.opt.RingBytes, rev)
	h.work.L = &h.mu.Mutex
	h.mu.streams = map[uint64]*Stream{}
	h.mu.live = newGroup()
	h.mu.claimed, h.mu.matched, h.mu.seen = rev, rev, rev
	h.finished.Go(h.match)
	h.finished.Go(h.tickLoop)
	for range h.opt.CatchUpWorkers {
		h.finished.Go(h.catchUp)
	}
	return h
}

// Publish takes the events of all revisions after the last published one up to rev. The hub keeps
// the slice and the bytes of the events until they are delivered. It never waits for a watcher. A
// rev that is not above the last published one is ignored.
func (h *Hub) Publish(rev int64, events []kv.Event) { h.ring.publish(rev, events) }

// Withhold keeps back all events published from now on, because the rights of clients have changed:
// the caller must review their watchers before it calls Release. Call Publish and Withhold from one
// goroutine.
func (h *Hub) Withhold() { h.ring.withhold() }

// Withheld returns the number of calls of Withhold.
func (h *Hub) Withheld() int64 { return h.ring.holdCount() }

// Release delivers the events that were kept back only by the first n calls of Withhold.
func (h *Hub) Release(n int64) { h.ring.release(n) }

// Reset reports that the source jumped to rev without publishing the changes, for instance because
// a snapshot was installed. Every live watcher falls behind at its next revision.
func (h *Hub) Reset(rev int64) { h.ring.reset(rev) }

// revision returns the newest revision that a client may know of. For a moment it is above the
// published one.
func (h *Hub) revision() int64 { return max(h.src.Revision(), h.ring.published.Load()) }

// distributed returns the newest revision that every live watcher has, as far as it needs it. mu is
// held.
func (h *Hub) distributed() int64 {
	if len(h.mu.streams) == 0 {
		return h.ring.published.Load()
	}
	return h.mu.matched
}

// Close ends all streams and waits for the hub's goroutines, and so for calls of the source.
func (h *Hub) Close() {
	h.mu.Lock()
	if h.mu.closed {
		h.mu.Unlock()
		return
	}
	h.mu.closed = true
	streams := make([]*Stream, 0, len(h.mu.streams))
	for _, s := range h.mu.streams {
		streams = append(streams, s)
	}
	h.work.Broadcast()
	h.mu.Unlock()
	close(h.done)
	h.finished.Wait()
	for _, s := range streams {
		s.Close()
	}
}
