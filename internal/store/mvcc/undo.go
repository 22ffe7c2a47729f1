package mvcc

import (
	"unsafe"
	"vigil/internal/kv"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc/record"
)

// mark is the state of a writer before a transaction.
type mark struct {
	log            history.Mark
	events, leased int
	live, changes  int64
}

func (w *Writer) mark() mark {
	return mark{log: w.log.Mark(), events: len(w.events) - w.first, leased: len(w.leased), live: w.live, changes: w.changes}
}

// undo reverts the changes of the present request since m. None of them was readable. The events record the changes,
// so a request that is not reverted costs nothing more.
func (w *Writer) undo(m mark) error {
	events, leased := w.events[w.first+m.events:], w.leased[m.leased:]
	for i := len(events) - 1; i >= 0; i-- {
		ev := &events[i]
		key := str(ev.Key)
		e, _ := w.tree.Get(key)
		if n := len(leased); n > 0 && unsafe.SliceData(leased[n-1].Key) == unsafe.SliceData(ev.Key) {
			e.lease = leased[n-1].From
			leased = leased[:n-1]
		}
		if err := w.undoChange(key, e, ev); err != nil {
			return err
		}
	}
	clear(events)
	w.events = w.events[:w.first+m.events]
	clear(w.leased[m.leased:])
	w.leased = w.leased[:m.leased]
	w.live, w.changes = m.live, m.changes
	w.subs, w.tally = 0, tally{}
	w.meter.Written = 0
	w.log.Rewind(m.log)
	return nil
}

// undoChange reverts the newest change of a key except its lease.
func (w *Writer) undoChange(key string, e *entry, ev *kv.Event) error {
	b := e.block.Load().shortened()
	e.block.Store(b)
	n := int(b.n.Load())
	switch {
	case ev.Delete:
		last := b.recs[n-1]
		e.create, e.version = created(b.list(), n-1, b.base), int64(last.ver)
		if last.ver == verMax {
			var rec record.KeyValue
			v := w.view()
			if err := v.decode(last.rev(), &rec); err != nil {
				return err
			}
			e.version = rec.Version
		}
		w.tree.SetLive(key, true)
	case e.version == 1:
		e.create, e.version = 0, 0
		if n == 0 {
			w.tree.Delete(key)
		} else {
			w.tree.SetLive(key, false)
		}
	default:
		e.version--
	}
	return nil
}

// shortened returns a copy of b without its last change. Readers may be in b.
func (b *block) shortened() *block {
	recs := b.list()
	c := &block{base: b.base, recs: make([]rec, max(len(recs), 1))}
	c.n.Store(uint32(copy(c.recs, recs[:len(recs)-1])))
	return c
}
