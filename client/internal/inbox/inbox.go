// Package inbox holds the received and unread events of a watcher, and how far its watch is.
//
// The queue takes a message as a whole, and an empty queue takes one of any size. A message may end
// within a revision (a fragment): the last revision is held back until the rest is received. There
// are three revisions. seen is the revision of the last event in the queue: events up to it are
// repetitions. next is where to resume, above seen and above all progress. store is the highest
// known revision of the store, by which a rollback is detected.
//
// An Inbox has no lock and no goroutine: its owner guards it.
package inbox

import "unsafe"

// Batch holds the events of one or several whole revisions, in order.
type Batch[E any] struct {
	// Revision is how far the watch is: all events up to and including it have been delivered.
	Revision int64
	// Events is empty if the batch only reports progress.
	Events []E

	size int
}

// Inbox holds events of type E.
type Inbox[E any] struct {
	limit    int            // of the bytes in the queue
	progress bool           // all progress is reported
	revision func(*E) int64 // of an event

	queue    []Batch[E]
	head     int // of the queue
	bytes    int // in the queue
	aside    bool
	asked    bool // for progress
	next     int64
	seen     int64
	store    int64
	held     []E // of an incomplete revision
	heldSize int
}

// New returns an empty inbox for events from a revision on; 0 if that is not known. limit is its
// size in bytes.
func New[E any](from int64, limit int, progress bool, revision func(*E) int64) Inbox[E] {
	return Inbox[E]{limit: limit, progress: progress, revision: revision, next: from}
}

// RecordCreated notes the revision of the store when the watcher was first created.
func (b *Inbox[E]) RecordCreated(rev int64) {
	b.store = rev
	if b.next == 0 {
		b.next = rev + 1
	}
}

// RecordStore notes a revision of the store, and reports whether it is older than a known one.
func (b *Inbox[E]) RecordStore(rev int64) (older bool) {
	older = rev < b.store
	b.store = max(b.store, rev)
	return older
}

// Store returns the highest known revision of the store.
func (b *Inbox[E]) Store() int64 { return b.store }

// Next returns the revision from which the watch would resume, 0 before it is known.
func (b *Inbox[E]) Next() int64 { return b.next }

// Bytes returns the size of unread batches.
func (b *Inbox[E]) Bytes() int { return b.bytes }

// Size returns how much a message counts: its bytes and the memory of its decoded events.
func (b *Inbox[E]) Size(bytes, events int) int {
	var e E
	return bytes + events*int(unsafe.Sizeof(e))
}

// Fits reports whether there is room for a message.
func (b *Inbox[E]) Fits(size int) bool {
	return b.head == len(b.queue) || b.bytes+b.heldSize+size <= b.limit
}

// Add adds the events of a message. fragment is set if its last revision may continue in the next
// message. It reports whether there is a new batch.
func (b *Inbox[E]) Add(events []E, size int, fragment bool) (added bool) {
	if b.held != nil {
		events, size = append(b.held, events...), size+b.heldSize
		b.held, b.heldSize = nil, 0
	}
	for len(events) > 0 && b.revision(&events[0]) <= b.seen {
		events = events[1:] // delivered before
	}
	if n := len(events); fragment && n > 0 {
		cut := n - 1
		for cut > 0 && b.revision(&events[cut-1]) == b.revision(&events[n-1]) {
			cut--
		}
		b.held, b.heldSize = events[cut:], size
		if cut > 0 {
			// The size of the held part counts again with the rest of the revision, which is on the
			// safe side.
			b.held = append([]E(nil), events[cut:]...)
		}
		events = events[:cut]
	}
	if len(events) == 0 {
		return false
	}
	last := b.revision(&events[len(events)-1])
	b.seen, b.store = last, max(b.store, last)
	b.next = max(b.next, last+1)
	b.push(Batch[E]{Revision: last, Events: events, size: size})
	return true
}

func (b *Inbox[E]) push(x Batch[E]) {
	if b.head > 0 && len(b.queue) == cap(b.queue) {
		n := copy(b.queue, b.queue[b.head:])
		clear(b.queue[n:])
		b.queue, b.head = b.queue[:n], 0
	}
	b.queue = append(b.queue, x)
	b.bytes += x.size
}

// RecordProgress notes that all events up to a revision have been received. It reports whether
// there is a new batch.
func (b *Inbox[E]) RecordProgress(rev int64) (added bool) {
	if b.aside || b.held != nil || rev < b.next-1 {
		return false
	}
	b.next, b.store = rev+1, max(b.store, rev)
	if !b.asked && !b.progress {
		return false
	}
	b.asked = false
	if n := len(b.queue); n > b.head && len(b.queue[n-1].Events) == 0 {
		b.queue[n-1].Revision = rev
		return false
	}
	b.push(Batch[E]{Revision: rev, size: int(unsafe.Sizeof(Batch[E]{}))})
	return true
}

// Pop removes the oldest batch.
func (b *Inbox[E]) Pop() (x Batch[E], ok bool) {
	if b.head == len(b.queue) {
		return x, false
	}
	x = b.queue[b.head]
	b.queue[b.head] = Batch[E]{}
	if b.head++; b.head == len(b.queue) {
		b.queue, b.head = b.queue[:0], 0
	}
	b.bytes -= x.size
	return x, true
}

// IsHalfEmpty reports whether at least half of the limit is free.
func (b *Inbox[E]) IsHalfEmpty() bool { return b.bytes <= b.limit/2 }

// SetAside notes that the watcher leaves its stream because there is no room. Until Resume nothing
// is added.
func (b *Inbox[E]) SetAside() {
	b.aside = true
	b.DropIncomplete()
}

// IsAside reports whether the watcher was set aside.
func (b *Inbox[E]) IsAside() bool { return b.aside }

// TryResume reports whether a watcher that was set aside can continue, and ends that state if so.
func (b *Inbox[E]) TryResume() bool {
	ok := b.aside && b.IsHalfEmpty()
	if ok {
		b.aside = false
	}
	return ok
}

// DropIncomplete drops an incomplete revision.
func (b *Inbox[E]) DropIncomplete() { b.held, b.heldSize = nil, 0 }

// RequestProgress makes the next progress a batch.
func (b *Inbox[E]) RequestProgress() { b.asked = true }

// ProgressRequested reports whether progress was requested and not reported yet.
func (b *Inbox[E]) ProgressRequested() bool { return b.asked }
