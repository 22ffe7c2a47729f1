package watch

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"vigil/internal/kv"
)

// entry holds the events of one call of Publish.
type entry struct {
	last   int64 // newest revision
	events []kv.Event
	bytes  int64
	// gap: the events after the previous entry up to last are missing.
	gap bool
}

// ring passes published events to the matcher. It is bounded in bytes. When it is full, all entries are replaced by a
// gap.
type ring struct {
	limit int64
	// kick wakes the matcher, urgent ends its pause because the ring fills; each holds one token.
	kick, urgent chan struct{}
	// published is written under mu: a reader that holds mu never sees it ahead of entries.
	published atomic.Int64

	mu struct {
		sync.Mutex
		entries   []entry // entries[head:] are queued
		head      int
		bytes     int64
		overflows int64
		// followed: there are streams. Otherwise revisions are counted, and the matcher is not woken.
		followed bool
	}
}

func (r *ring) init(limit, published int64) {
	r.limit = limit
	r.kick, r.urgent = make(chan struct{}, 1), make(chan struct{}, 1)
	r.published.Store(published)
}

const eventOverhead = int64(unsafe.Sizeof(kv.Event{}))

// publish appends the events of all revisions after the last published one up to rev.
func (r *ring) publish(rev int64, events []kv.Event) {
	e := entry{last: rev, events: events}
	for i := range events {
		e.bytes += int64(len(events[i].KV)) + eventOverhead
	}
	r.mu.Lock()
	last := r.published.Load()
	if rev <= last {
		r.mu.Unlock()
		return
	}
	if !r.mu.followed {
		r.published.Store(rev)
		r.mu.Unlock()
		return
	}
	switch {
	case r.mu.bytes+e.bytes > r.limit:
		r.mu.overflows++
		r.replace(rev)
	case len(events) == 0 || events[0].Rev.Main != last+1:
		r.replace(rev)
	default:
		r.append(e)
	}
	r.published.Store(rev)
	much := r.mu.bytes > r.limit/4
	r.mu.Unlock()
	signal(r.kick)
	if much {
		signal(r.urgent)
	}
}

// follow sets whether publish keeps events, and returns the newest revision that was published before.
func (r *ring) follow(followed bool) (published int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.followed = followed
	return r.published.Load()
}

// reset drops all entries and continues after rev.
func (r *ring) reset(rev int64) {
	r.mu.Lock()
	r.replace(rev)
	r.published.Store(rev)
	r.mu.Unlock()
	signal(r.kick)
}

// signal puts a token into c unless it is full.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// replace replaces all entries by a gap. mu is held.
func (r *ring) replace(rev int64) {
	clear(r.mu.entries)
	r.mu.entries, r.mu.head, r.mu.bytes = r.mu.entries[:0], 0, 0
	r.append(entry{last: rev, gap: true})
}

// append adds an entry. mu is held.
func (r *ring) append(e entry) {
	if r.mu.head > len(r.mu.entries)/2 && len(r.mu.entries) == cap(r.mu.entries) {
		n := copy(r.mu.entries, r.mu.entries[r.mu.head:])
		clear(r.mu.entries[n:])
		r.mu.entries, r.mu.head = r.mu.entries[:n], 0
	}
	r.mu.entries = append(r.mu.entries, e)
	r.mu.bytes += e.bytes
}

// take removes the oldest entry, and following ones as long as all have at most maxBytes together. They become one entry,
// whose events are in buf. more reports whether entries are left.
func (r *ring) take(buf *[]kv.Event, maxBytes int64) (e entry, ok, more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.head == len(r.mu.entries) {
		return entry{}, false, false
	}
	e = r.pop()
	for taken := 1; !e.gap && r.mu.head < len(r.mu.entries); taken++ {
		next := &r.mu.entries[r.mu.head]
		if e.bytes+next.bytes > maxBytes {
			break
		}
		if taken == 1 {
			*buf = append((*buf)[:0], e.events...)
		}
		*buf = append(*buf, next.events...)
		e.events = *buf
		e.bytes += next.bytes
		e.last = next.last
		r.pop()
	}
	more = r.mu.head < len(r.mu.entries)
	if !more {
		r.mu.entries, r.mu.head = r.mu.entries[:0], 0
	}
	return e, true, more
}

// pop removes the oldest entry; there is one. mu is held.
func (r *ring) pop() entry {
	e := r.mu.entries[r.mu.head]
	r.mu.entries[r.mu.head] = entry{}
	r.mu.head++
	r.mu.bytes -= e.bytes
	return e
}
