package watch

import (
	"math"
	"slices"
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

// hold keeps back the revisions after rev, the newest published one when it began.
type hold struct{ number, rev int64 }

// ring passes published events to the matcher. Its size in bytes is bounded. When it is full, a gap
// replaces all entries.
type ring struct {
	limit int64
	// kick wakes the matcher, urgent ends its pause because the ring fills; each holds one token.
	kick, urgent chan struct{}
	// published changes only under mu: a reader that holds mu never sees it ahead of entries.
	published atomic.Int64

	mu struct {
		sync.Mutex
		entries   []entry // entries[head:] are queued
		head      int
		bytes     int64
		overflows int64
		// followed: there are streams. Otherwise publish only counts revisions, and does not wake
		// the matcher.
		followed bool
		// holds has the calls of withhold that are not released, oldest first; withheld counts all
		// calls.
		holds    []hold
		withheld int64
		// skipped is the revision up to which the matcher has taken a gap whose rest is kept back.
		skipped int64
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

// follow sets whether publish keeps events, and returns the newest revision that was published
// before. It ends all holds, because no watcher is older.
func (r *ring) follow(followed bool) (published int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.followed, r.mu.holds = followed, nil
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

// withhold keeps back the events published from now on, until release.
func (r *ring) withhold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.withheld++
	if r.mu.followed {
		r.mu.holds = append(r.mu.holds, hold{r.mu.withheld, r.published.Load()})
	}
}

// holdCount returns the number of calls of withhold.
func (r *ring) holdCount() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.withheld
}

// release ends the first n holds.
func (r *ring) release(n int64) {
	r.mu.Lock()
	r.mu.holds = slices.DeleteFunc(r.mu.holds, func(h hold) bool { return h.number <= n })
	r.mu.Unlock()
	signal(r.kick)
}

// deliverable returns the newest revision that watchers may get.
func (r *ring) deliverable() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return min(r.published.Load(), r.end())
}

// end returns the revision up to which no hold keeps anything back. mu is held.
func (r *ring) end() int64 {
	if len(r.mu.holds) == 0 {
		return math.MaxInt64
	}
	return r.mu.holds[0].rev
}

// signal puts a token into c unless it is full.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// replace replaces all entries with a gap. mu is held.
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

// take removes the oldest entry, and following ones as long as all have at most maxBytes together.
// They become one entry, whose events are in buf. more reports whether entries are left. take
// ignores entries that are kept back.
func (r *ring) take(buf *[]kv.Event, maxBytes int64) (e entry, ok, more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	end := r.end()
	next := func() bool {
		return r.mu.head < len(r.mu.entries) &&
			r.mu.entries[r.mu.head].last <= end
	}
	if !next() {
		// If a gap begins before the revisions that are kept back, take its part before them.
		if r.mu.head < len(r.mu.entries) && r.mu.entries[r.mu.head].gap && r.mu.skipped < end {
			r.mu.skipped = end
			return entry{last: end, gap: true}, true, false
		}
		return entry{}, false, false
	}
	e = r.pop()
	for taken := 1; !e.gap && next(); taken++ {
		following := &r.mu.entries[r.mu.head]
		if e.bytes+following.bytes > maxBytes {
			break
		}
		if taken == 1 {
			*buf = append((*buf)[:0], e.events...)
		}
		*buf = append(*buf, following.events...)
		e.events = *buf
		e.bytes += following.bytes
		e.last = following.last
		r.pop()
	}
	if r.mu.head == len(r.mu.entries) {
		r.mu.entries, r.mu.head = r.mu.entries[:0], 0
	}
	return e, true, next()
}

// pop removes the oldest entry. There must be one. mu is held.
func (r *ring) pop() entry {
	e := r.mu.entries[r.mu.head]
	r.mu.entries[r.mu.head] = entry{}
	r.mu.head++
	r.mu.bytes -= e.bytes
	return e
}
