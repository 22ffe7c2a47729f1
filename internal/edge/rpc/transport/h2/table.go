package h2

// maxStreamMap is the largest peak of concurrent streams for which a connection keeps its stream
// map.
const maxStreamMap = 1000

// table has the streams of a connection, and remembers numbers of streams that have ended. link.mu
// guards it.
type table struct {
	streams map[uint32]*Stream
	peak    int // largest number of streams since the map was made

	last     uint32 // the highest number of a stream so far
	accepted uint32 // the highest number that was not ignored
	entered  uint32 // the last accepted number that has or had a stream, or was rejected

	recent  recentStreams
	skipped skippedNumbers

	abandoned int // streams in streamAbandoned
}

func newTable() table { return table{streams: map[uint32]*Stream{}} }

// isIdle reports whether no request has used a number, or none can.
func (t *table) isIdle(id uint32) bool { return id > t.last || id%2 == 0 }

// isEmpty reports whether no request is under way. One that was accepted may not be in streams yet.
func (t *table) isEmpty() bool { return len(t.streams) == 0 && t.accepted == t.entered }

// acceptNumber notes the number of an accepted request. enterStream follows, unless the request is
// rejected.
func (t *table) acceptNumber(id uint32) {
	t.useNumber(id)
	t.accepted = id
}

// ignoreNumber notes the number of a request that the last GOAWAY has told the client would be
// ignored. ended says that its body has ended.
func (t *table) ignoreNumber(id uint32, ended bool) {
	t.useNumber(id)
	t.recent.add(id, ended)
}

func (t *table) useNumber(id uint32) {
	t.skipped.add(t.last, id)
	t.last = id
}

// enterStream adds the stream of the last accepted request.
func (t *table) enterStream(s *Stream) {
	t.entered = s.id
	t.streams[s.id] = s
	t.peak = max(t.peak, len(t.streams))
}

// removeStream removes the stream with a number. byClient says that the client has ended it and
// must not send any more.
func (t *table) removeStream(id uint32, byClient bool) {
	delete(t.streams, id)
	if len(t.streams) == 0 && t.peak > maxStreamMap { // a map does not shrink
		t.streams, t.peak = map[uint32]*Stream{}, 0
	}
	t.recent.add(id, byClient)
}

// takeStreams removes all streams and returns them.
func (t *table) takeStreams() map[uint32]*Stream {
	taken := t.streams
	t.streams, t.peak = map[uint32]*Stream{}, 0
	return taken
}

// recentStreams remembers the streams that were closed last.
type recentStreams struct {
	list [32]recentStream
	next int
}

type recentStream struct {
	id    uint32
	ended bool // by the client, which must not send any more
}

func (r *recentStreams) add(id uint32, ended bool) {
	r.list[r.next%len(r.list)] = recentStream{id, ended}
	r.next++
}

func (r *recentStreams) find(id uint32) (ended, ok bool) {
	for i := range r.list {
		if r.list[i].id == id {
			return r.list[i].ended, true
		}
	}
	return false, false
}

// addReset adds a stream that was never open, unless it is known.
func (r *recentStreams) addReset(id uint32) {
	if _, ok := r.find(id); !ok {
		r.add(id, false)
	}
}

// noteEnd notes that the client has ended a stream that was closed before.
func (r *recentStreams) noteEnd(id uint32) {
	for i := range r.list {
		if r.list[i].id == id {
			r.list[i].ended = true
		}
	}
}

// skippedNumbers remembers the last numbers that a client has skipped. Any other number up to the
// highest one has had a stream.
type skippedNumbers struct {
	list [16]struct{ from, to uint32 }
	next int
}

// add notes that a client uses id after last, the highest number so far.
func (k *skippedNumbers) add(last, id uint32) {
	from := last + 2
	if last == 0 {
		from = 1
	}
	if id > from {
		k.list[k.next%len(k.list)] = struct{ from, to uint32 }{from, id}
		k.next++
	}
}

func (k *skippedNumbers) has(id uint32) bool {
	for _, r := range k.list {
		if r.from <= id && id < r.to {
			return true
		}
	}
	return false
}
