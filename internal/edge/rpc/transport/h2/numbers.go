package h2

// recentStreams are the streams that were closed last.
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

// end notes that the client has ended a stream that was closed before.
func (r *recentStreams) end(id uint32) {
	for i := range r.list {
		if r.list[i].id == id {
			r.list[i].ended = true
		}
	}
}

// skippedNumbers are the last numbers that a client has not used for a stream: a lower number than the highest one means
// a stream that has existed, unless it is one of these.
type skippedNumbers struct {
	list [16]struct{ from, to uint32 }
	next int
}

// add notes the use of a number after the highest one so far.
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
