package load

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"vigil/tools/bench/api"
	"vigil/tools/bench/grpcconn"
	"vigil/tools/bench/hist"
)

// WatchSpec describes a set of watchers.
type WatchSpec struct {
	// Streams watch streams, spread over the connections in turn, carry PerStream watchers each.
	Streams, PerStream int
	// Create returns the request of the i-th watcher of a stream, without an id: the server chooses
	// it.
	Create func(stream, i int) api.WatchCreate
	// Base, if set, says that every value begins with the nanoseconds since then at which its put
	// was due (see Stamp); the time from there to its arrival is recorded.
	Base time.Time
	// SharedRevisions allows a watcher to get several events of one revision. Without it each event
	// must be newer than the one before.
	SharedRevisions bool
}

// Stamp writes the time since base at the beginning of a value of at least 8 bytes.
func Stamp(value []byte, base, due time.Time) {
	binary.BigEndian.PutUint64(value, uint64(due.Sub(base)))
}

// Watchers drains watch streams: it counts events without decoding values, and checks that every
// watcher gets them in the order of their revisions.
type Watchers struct {
	spec    WatchSpec
	streams []*watchStream
	created chan struct{} // gets a value for each created watcher and each stream that ended
	failed  chan struct{}
	once    sync.Once
	err     error // written once before failed is closed
	closing atomic.Bool
	ended   sync.WaitGroup
}

// watchStream is one stream. What is not atomic belongs to its connection's reader.
type watchStream struct {
	w    *Watchers
	conn *grpcconn.Conn
	id   uint32

	events, bytes, answers atomic.Int64

	last []int64 // by watch id: the revision of its last event
	made int
	mu   sync.Mutex // guards lat against those who look while it runs
	lat  hist.Hist
}

// Watch opens the streams, creates the watchers and waits until all are created.
func Watch(ctx context.Context, conns Conns, spec WatchSpec) (*Watchers, error) {
	w := &Watchers{spec: spec,
		created: make(chan struct{}, spec.Streams*spec.PerStream+spec.Streams),
		failed:  make(chan struct{})}
	var buf []byte
	for i := range spec.Streams {
		s := &watchStream{w: w, conn: conns[i%len(conns)], last: make([]int64, spec.PerStream)}
		w.streams = append(w.streams, s)
		w.ended.Add(1)
		var err error
		if s.id, err = s.conn.Open(api.Watch, s, nil, false); err != nil {
			w.ended.Done()
			return nil, err
		}
		for j := range spec.PerStream {
			c := spec.Create(i, j)
			buf = c.Append(buf[:0])
			if err := s.conn.Send(s.id, buf, false); err != nil {
				return nil, err
			}
		}
		if err := s.conn.Flush(); err != nil {
			return nil, err
		}
	}
	for range spec.Streams * spec.PerStream {
		select {
		case <-w.created:
		case <-w.failed:
			return nil, w.err
		case <-ctx.Done():
			return nil, fmt.Errorf("creating watchers: %w", ctx.Err())
		}
	}
	return w, nil
}

func (w *Watchers) fail(err error) {
	w.once.Do(func() {
		w.err = err
		close(w.failed)
	})
}

// Message takes one WatchResponse.
func (s *watchStream) Message(at time.Time, msg []byte) {
	if err := s.addMessage(at, msg); err != nil {
		s.w.fail(err)
	}
}

func (s *watchStream) addMessage(at time.Time, msg []byte) error {
	var a api.WatchAnswer
	if err := a.Read(msg, nil); err != nil {
		return err
	}
	switch {
	case a.Canceled:
		return fmt.Errorf("watcher %d was canceled: %q (compact revision %d)", a.WatchID, a.Reason,
			a.CompactRevision)
	case a.WatchID < 0 || a.WatchID >= int64(len(s.last)):
		if a.Events == 0 {
			return nil // progress of the whole stream
		}
		return fmt.Errorf("%d events for watch id %d of %d", a.Events, a.WatchID, len(s.last))
	case a.Created:
		s.made++
		s.w.created <- struct{}{}
		return nil
	}
	last := &s.last[a.WatchID]
	seen := atomic.LoadInt64(last)
	s.mu.Lock()
	err := a.Read(msg, func(ev *api.Event) error {
		mod := ev.KV.Mod
		if mod < seen || mod == seen && !s.w.spec.SharedRevisions {
			return fmt.Errorf("watcher %d got revision %d after %d", a.WatchID, mod, seen)
		}
		seen = mod
		if !s.w.spec.Base.IsZero() && len(ev.KV.Value) >= 8 {
			due := s.w.spec.Base.Add(time.Duration(binary.BigEndian.Uint64(ev.KV.Value)))
			s.lat.Record(at.Sub(due))
		}
		return nil
	})
	s.mu.Unlock()
	if err != nil {
		return err
	}
	atomic.StoreInt64(last, seen)
	s.answers.Add(1)
	s.bytes.Add(int64(len(msg)))
	s.events.Add(int64(a.Events))
	return nil
}

// End takes the end of the stream, which only Close may bring about.
func (s *watchStream) End(_ time.Time, st grpcconn.Status) {
	if !s.w.closing.Load() {
		s.w.fail(fmt.Errorf("watch stream ended: %w", st))
	}
	s.w.ended.Done()
}

// Failed returns a channel that is closed when a watcher got something wrong or a stream ended by
// itself.
func (w *Watchers) Failed() <-chan struct{} { return w.failed }

// Err returns the failure, nil if there is none.
func (w *Watchers) Err() error {
	select {
	case <-w.failed:
		return w.err
	default:
		return nil
	}
}

// Totals returns what all streams have received together.
type Totals struct{ Events, Answers, Bytes int64 }

// Totals sums the streams up.
func (w *Watchers) Totals() Totals {
	var t Totals
	for _, s := range w.streams {
		t.Events += s.events.Load()
		t.Answers += s.answers.Load()
		t.Bytes += s.bytes.Load()
	}
	return t
}

// Lowest returns the smallest revision that any watcher has reached.
func (w *Watchers) Lowest() int64 {
	low := int64(-1)
	for _, s := range w.streams {
		for i := range s.last {
			if v := atomic.LoadInt64(&s.last[i]); low < 0 || v < low {
				low = v
			}
		}
	}
	return low
}

// TakeLatency returns the delivery latencies since it was last called.
func (w *Watchers) TakeLatency() *hist.Hist {
	var h hist.Hist
	for _, s := range w.streams {
		s.mu.Lock()
		h.Merge(&s.lat)
		s.lat = hist.Hist{}
		s.mu.Unlock()
	}
	return &h
}

// Until waits for a condition on the watchers, looking every few milliseconds.
func (w *Watchers) Until(ctx context.Context, cond func() bool) error {
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for !cond() {
		select {
		case <-t.C:
		case <-w.failed:
			return w.err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return w.Err()
}

// Reach waits until the watchers have received n events together, and then a moment longer, to see
// that there are no more.
func (w *Watchers) Reach(ctx context.Context, n int64) error {
	if err := w.Until(ctx, func() bool { return w.Totals().Events >= n }); err != nil {
		return fmt.Errorf("%d of %d events delivered: %w", w.Totals().Events, n, err)
	}
	t := time.NewTimer(100 * time.Millisecond)
	defer t.Stop()
	<-t.C
	if got := w.Totals().Events; got != n {
		return fmt.Errorf("%d events delivered, want %d", got, n)
	}
	return w.Err()
}

// Close resets the streams and waits until they have ended. Streams of a paused connection end
// only when that goes on or is closed.
func (w *Watchers) Close() {
	w.closing.Store(true)
	for _, s := range w.streams {
		s.conn.Cancel(s.id)
		// A connection that is gone has ended the stream already.
		_ = s.conn.Flush()
	}
	w.ended.Wait()
}
