package mvcc

import (
	"context"
	"slices"
	"vigil/internal/kv"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc/index"
	"vigil/internal/store/mvcc/meter"
)

// Writer changes the store. It belongs to one goroutine. The first request opens a batch, Commit
// ends it.
//
// A *FatalError is final: every later call returns it too. The changes of the batch until then
// never become readable.
type Writer struct {
	s   *Store
	log *history.Log

	// The newest state, including the open batch. The writer owns it, but the holder of the store's
	// lock owns the index.
	index     *index.Index
	rev, live int64
	compact   int64
	changes   int64
	times     times
	// stamp is the time of the revisions that follow.
	stamp int64

	// open is set while a batch is open. The writer then holds the store's lock, except after a
	// Commit that lacked room, until the next call; held says whether it does. stale says that the
	// trimmer has changed the tree since then and readers do not have the change yet. The store's
	// lock guards open and stale.
	open, held, stale bool
	// shed is the number of words that the index had removed when readers last got another table
	// for that reason.
	shed int
	// subs counts the changes of the current request.
	subs int64
	// events is a piece of memory that the events of many batches share; the events of the open
	// batch begin at first.
	events []kv.Event
	first  int
	// shared is the size of the batches that have events in that memory, which keeps them alive.
	// The next piece has room for at least chunk events.
	shared, chunk int
	// usual is approximately the number of events of the last batches.
	usual  int
	leased []LeaseChange
	// tally counts the operations of the current request, meter its limited quantities.
	tally tally
	meter meter.Meter
	// largest is the size of the largest record that the store has ever had, or more.
	largest int64
	// compactions are the compactions of the open batch.
	compactions []compaction
	// discard is set while the writer discards the results of requests.
	discard bool
	err     error

	// Working memory.
	buf, prev []byte
	path      []bool
	keys      []string
}

// LeaseChange is a change of the lease that a key is attached to; 0 means no lease.
type LeaseChange struct {
	// Key aliases the key of an event.
	Key      []byte
	From, To int64
}

// Published describes what a batch has made readable.
type Published struct {
	// Revision is the newest revision.
	Revision int64
	// Events are the changes, in order. They are immutable and may be kept.
	Events []kv.Event
	// Leases are the changes of lease attachments, in order; valid until the next request.
	Leases []LeaseChange
	// Compacted is the compact revision if the batch moved it, else 0.
	Compacted int64
}

const (
	// eventsChunk is the number of small events to allocate memory for at once; mostUsual limits
	// how many of them usual asks for.
	eventsChunk = 128
	mostUsual   = 4096
	// mostShared is the size of the batches whose events may share memory, give or take one batch.
	mostShared = 64 << 10
)

// Revision returns the newest revision, including the open batch.
func (w *Writer) Revision() int64 { return w.rev }

// CompactRevision returns the compact revision, including the open batch; -1 means none.
func (w *Writer) CompactRevision() int64 { return w.compact }

// Pending returns the size of the open batch.
func (w *Writer) Pending() int { return w.log.Pending() }

// Results returns approximately how many bytes of results the last request has.
func (w *Writer) Results() int64 { return w.meter.Result }

// Commit ends the batch, which may be empty: it writes the batch as the outcome of the raft log up
// to a, and then makes it readable.
//
// An error that is a kv.Shortage leaves the batch open, and the caller may call Commit again. Every
// other error is a *FatalError.
func (w *Writer) Commit(a history.Applied) (Published, error) {
	if err := w.beginRequest(); err != nil {
		return Published{}, err
	}
	batch := w.log.Pending()
	if err := w.log.Commit(a); kv.Shortage(err) {
		// The trimmer, which makes room, and copies must be able to continue.
		w.unlock()
		return Published{}, err
	} else if err != nil {
		return Published{}, w.fail("commit", err)
	}
	p := Published{Revision: w.rev, Leases: w.leased}
	p.Events = slices.Clip(w.events[w.first:])
	old := w.s.snap.Load()
	if w.compact != old.compact {
		p.Compacted = w.compact
		w.s.hashes.enqueue(w.compactions)
		w.compactions = w.compactions[:0]
	}
	if w.rev != old.rev || w.compact != old.compact || w.times.newest != old.times.newest ||
		w.stale || old.tree.Table() != w.index.Pool.Table() || !old.hist.SameSegment(w.log.View()) {
		w.s.snap.Store(&snapshot{
			tree: w.index.Tree.Snapshot(), hist: w.log.View(),
			rev: w.rev, live: w.live, compact: w.compact, changes: w.changes, times: w.times,
		})
	}
	w.leased = w.leased[:0]
	w.usual = max(len(p.Events), w.usual-w.usual/8)
	w.first = len(w.events)
	if w.shared += batch; w.shared > mostShared {
		// Neither the writer nor a holder of the events of a small batch should keep the records of
		// other batches alive.
		w.chunk = min(w.chunk, len(w.events)+1)
		w.events, w.leased, w.first, w.shared = nil, nil, 0, 0
	}
	w.open, w.stale = false, false
	w.shedTables(true)
	work := w.index.Pool.Wanted() || w.log.Oversized() // for the trimmer
	w.unlock()
	if w.compact != old.compact || work {
		w.s.trim.wake()
	}
	if w.compact != old.compact || w.changes>>12 != old.changes>>12 {
		w.s.trees.Drop(w.compact, w.changes)
	}
	return p, nil
}

// shedLeast is the number of words that the index may remove before shedTables drops its old
// tables.
const shedLeast = 1 << 20

// shedTables drops the tables that keep removed memory of the index, if that is much: undone
// transactions can replace a long block many times. In a batch it gives the committed state the
// newest table; published says that the committed state already has that table.
func (w *Writer) shedTables(published bool) {
	pool := w.index.Pool
	total, _ := pool.Size()
	if pool.Removed()-w.shed <= max(total/2, shedLeast) || w.stale {
		return
	}
	w.shed = pool.Removed()
	if !published {
		// The batch has replaced blocks, but has not moved or dropped any entry of the committed
		// state.
		snap := *w.s.snap.Load()
		snap.tree = snap.tree.WithTable(pool.Table())
		w.s.snap.Store(&snap)
	}
	w.s.trees.DropOutdated()
}

// beginRequest opens a batch if none is open.
func (w *Writer) beginRequest() error {
	if w.err != nil {
		return w.err
	}
	if !w.held {
		w.s.lock <- struct{}{}
		w.held, w.open = true, true
	}
	w.subs, w.tally = 0, tally{}
	w.meter.Reset()
	return nil
}

func (w *Writer) unlock() {
	w.held = false
	<-w.s.lock
}

// endRequest ends a request.
func (w *Writer) endRequest() {
	if w.subs > 0 {
		w.rev++
		w.subs, w.times.newest = 0, w.stamp
	}
	w.s.counts.addRequest(w.tally)
}

// fail ends the life of the writer. It leaves the batch open, so that nothing changes any more.
func (w *Writer) fail(op string, err error) error {
	w.err = &FatalError{Op: op, Err: err}
	return w.err
}

// refuse passes on the error of a limit, which occurred before any write. Every other error ends
// the life of the writer.
func (w *Writer) refuse(op string, err error) error {
	if meter.IsLimit(err) {
		return err
	}
	return w.fail(op, err)
}

// view returns the state that the current request sees, valid until its next change.
func (w *Writer) view() view {
	v := view{s: w.s, w: w}
	v.tree, v.rev, v.live, v.compact, v.times = w.index.Tree.View(), w.rev, w.live,
		w.compact, w.times
	if w.subs > 0 {
		v.rev++
	}
	return v
}

// next returns the place of the next change.
func (w *Writer) next() kv.Rev { return kv.Rev{Main: w.rev + 1, Sub: w.subs} }

func (w *Writer) rangeKeys(r *kv.RangeRequest) (*kv.RangeResult, error) {
	if !w.discard { // otherwise the member that answers counts it
		w.tally.ranges++
	}
	sc := getScratch()
	defer sc.free()
	sc.view = w.view()
	if w.discard {
		if ok, err := w.estimate(&sc.view, r); ok || err != nil {
			return &kv.RangeResult{Revision: sc.view.rev}, err
		}
	}
	return sc.view.rangeKeys(context.Background(), r, sc)
}

// publish records a change.
func (w *Writer) publish(ev kv.Event, from, to int64) {
	if len(w.events) == cap(w.events) {
		batch := w.events[w.first:]
		w.events = make([]kv.Event, len(batch), max(w.chunk, 2*len(batch), min(w.usual, mostUsual)))
		w.chunk = min(eventsChunk, 2*w.chunk)
		copy(w.events, batch)
		w.first, w.shared = 0, 0
	}
	w.events = append(w.events, ev)
	if from != to {
		w.leased = append(w.leased, LeaseChange{Key: ev.Key, From: from, To: to})
	}
}
