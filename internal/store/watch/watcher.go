package watch

// flags are what a watcher wants to see and how.
type flags uint8

const (
	noPut flags = 1 << iota
	noDelete
	prevKV
	fragment
	notify
	ranged // end is the end of a range, of an unbounded one if it is empty

	// variantFlags are those that decide which bytes a watcher gets.
	variantFlags = noPut | noDelete | prevKV
)

// place says which list or index holds a watcher.
type place uint8

const (
	nowhere   place = iota // canceled
	inGroup                // watcher.group: live, or behind and being read for
	inPending              // Stream.pending: behind, waiting for a worker
	inParked               // Stream.parked: behind, waiting for room in the queue
)

// watcher is one watcher. A stream may have very many; keep it small.
type watcher struct {
	// Fixed at creation.
	stream   *Stream
	id       int64
	key, end string
	start    int64 // as requested
	created  int64 // Unix time in nanoseconds
	flags    flags

	// Guarded by Hub.mu. next is read without it by whoever owns the group.
	place    place
	slot     int32 // in group.members, Stream.pending or Stream.parked
	inTarget int32 // in target.watchers
	next     int64 // see doc.go; in a group, the greater of this and the group's position counts
	group    *group
	target   *target

	// Guarded by Stream.mu.
	events, bytes int64 // queued since creation
	quiet         bool  // no event since the last progress tick
	alone         bool  // waits for the queue to be empty, and goes first then; see Stream.mu.alone

	// dead is set once, under both locks, and read under either: nothing may be queued any more.
	dead bool
	// stalled is owned by whoever delivers to the watcher: its queue had no room for this batch.
	stalled bool
}

// watcherSize is about what a watcher takes besides its keys, its places in maps and lists included.
const watcherSize = 400

// size is about what the watcher takes.
func (w *watcher) size() int64 { return int64(watcherSize + len(w.key) + len(w.end)) }

// list is an unordered set of watchers that remember their slot in it.
type list []*watcher

func (l *list) add(w *watcher, p place) {
	w.place, w.slot = p, int32(len(*l))
	*l = append(*l, w)
}

func (l *list) remove(w *watcher) {
	s := *l
	last := s[len(s)-1]
	s[w.slot], last.slot = last, w.slot
	s[len(s)-1] = nil
	*l = s[:len(s)-1]
	w.place = nowhere
}

// lowest returns the smallest next of the watchers, at most rev.
func (l list) lowest(rev int64) int64 {
	for _, w := range l {
		rev = min(rev, w.next)
	}
	return rev
}

// trim gives back the memory of a list that was long and is empty.
func (l *list) trim() {
	if len(*l) == 0 && cap(*l) > 64 {
		*l = nil
	}
}
