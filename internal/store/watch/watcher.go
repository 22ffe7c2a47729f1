package watch

// flags are the options of a watcher.
type flags uint8

const (
	noPut flags = 1 << iota
	noDelete
	prevKV
	fragment
	notify
	ranged // end is the end of a range; an empty end means an unbounded range

	// variantFlags are the flags that decide which bytes a watcher gets.
	variantFlags = noPut | noDelete | prevKV
)

// place says which list or index holds a watcher.
type place uint8

const (
	nowhere    place = iota // canceled
	inGroup                 // watcher.group: live, or behind with a scan
	inPending               // Stream.pending: behind, waiting for a worker
	inParked                // Stream.parked: behind, waiting for room in the queue
	inRetrying              // Stream.retrying: the same, as a member of the round
)

// watcher is one watcher. A stream may have very many; keep it small. The fields that a delivery
// uses come first, so that they share one cache line.
type watcher struct {
	// Fixed at creation.
	stream *Stream
	id     int64
	flags  flags

	// Guarded by Stream.mu.
	quiet  bool // no event since the last progress tick
	member bool // of the stream's round, see rounds.go

	// dead says that nothing may be queued any more. It is set once, under both locks, and read
	// under either.
	dead bool
	// stalled: the queue had no room for this batch. Owned by the goroutine that delivers to the
	// watcher.
	stalled bool

	// Guarded by Hub.mu. The owner of the group reads next without the lock.
	place place
	next  int64 // see doc.go; in a group, the greater of next and the group's position counts

	// Guarded by Stream.mu.
	events, bytes int64 // queued since creation, not counting sums
	sums          *sums // of the last cohort, nil if there was none

	// Guarded by Hub.mu.
	slot     int32 // in group.members, or in one of the lists of Stream
	inTarget int32 // in target.watchers
	group    *group
	target   *target

	// Fixed at creation.
	key, end string
	start    int64 // as requested
	created  int64 // Unix time in nanoseconds
}

// watcherSize is the approximate memory of a watcher without its keys, but with its places in maps
// and lists.
const watcherSize = 400

// size returns the approximate memory of the watcher.
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

// trim releases the memory of a list that was long and is empty.
func (l *list) trim() {
	if len(*l) == 0 && cap(*l) > 64 {
		*l = nil
	}
}
