package mvcc

import (
	"unsafe"
	"vigil/internal/kv"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc/index"
)

// mark is the state of a writer before a transaction.
type mark struct {
	log            history.Mark
	events, leased int
	live, changes  int64
}

func (w *Writer) mark() mark {
	return mark{log: w.log.Mark(), events: len(w.events) - w.first, leased: len(w.leased),
		live: w.live, changes: w.changes}
}

// undo reverts the changes of the current request since m. None of them was readable. The events
// already record the changes, so a request that is not reverted costs nothing more.
func (w *Writer) undo(m mark) {
	events, leased := w.events[w.first+m.events:], w.leased[m.leased:]
	for i := len(events) - 1; i >= 0; i-- {
		ev := &events[i]
		key := str(ev.Key)
		e, _ := w.index.Get(key)
		if n := len(leased); n > 0 &&
			unsafe.SliceData(leased[n-1].Key) == unsafe.SliceData(ev.Key) {
			e.SetLease(leased[n-1].From)
			leased = leased[:n-1]
		}
		w.undoChange(key, e, ev)
	}
	clear(events)
	w.events = w.events[:w.first+m.events]
	clear(w.leased[m.leased:])
	w.leased = w.leased[:m.leased]
	w.live, w.changes = m.live, m.changes
	w.subs, w.tally = 0, tally{}
	w.meter.Written = 0
	w.log.Rewind(m.log)
	w.shedTables(false)
}

// undoChange reverts the newest change of a key except its lease.
func (w *Writer) undoChange(key string, e index.Entry, ev *kv.Event) {
	s, _ := e.Newest()
	w.index.Undo(key, e)
	switch {
	case ev.Delete:
		w.index.Tree.SetLive(key, true)
	case s.Version == 1:
		w.index.Tree.SetLive(key, false)
	}
}
