package h2

import "runtime"

// chunkConns is how many connections a worker writes to, one after the other, unless there are more than that for each processor.
const chunkConns = 8

// WakeAll calls Fill of streams, so that the output of all streams of a connection is in one write. It waits for no client: what a
// socket does not take at once, a worker writes, and a worker does all of it for connections whose lock is taken, or with a stream
// whose Fill is costly. Waking a worker costs about as much as a write, so the caller, and each worker if there are many connections,
// writes to several others, one after the other. The caller holds no lock that Fill takes.
func WakeAll(streams []*Stream) {
	var chosen []*link
	var busy map[*link][]*Stream
	for _, s := range streams {
		l := s.l
		if !l.mu.TryLock() {
			if busy == nil {
				busy = map[*link][]*Stream{}
			}
			busy[l] = append(busy[l], s)
			continue
		}
		if l.wakeSource(s) {
			if l.mu.costly {
				l.handOver()
			} else {
				chosen = append(chosen, l)
			}
		}
		l.mu.Unlock()
	}
	for l, list := range busy {
		l.o.Workers.Run(func() { l.wakeSources(list) })
	}
	for writers := min(runtime.GOMAXPROCS(0), (len(chosen)+chunkConns-1)/chunkConns); writers > 1; writers-- {
		n := len(chosen) / writers
		chunk := chosen[:n]
		chosen[0].o.Workers.Run(func() { writeChosen(chunk) })
		chosen = chosen[n:]
	}
	writeChosen(chosen)
}

// wakeSource lists a source that may have output. It reports whether the caller must see to it that there is a writer: if there is
// none, and nobody else is about to write since no source was listed before. mu is held.
func (l *link) wakeSource(s *Stream) (first bool) {
	if !s.state.sends() || s.out.source == sourceFull || l.mu.state == connLost {
		return false
	}
	first = len(l.mu.out.sources) == 0 && !l.mu.writing
	l.mu.out.wakeSource(s)
	return first
}

// wakeSources wakes streams of a connection, for whose lock it waits.
func (l *link) wakeSources(list []*Stream) {
	l.mu.Lock()
	for _, s := range list {
		l.wakeSource(s)
	}
	l.writeNow(turnsOfOwner)
}

// writeChosen writes to connections that WakeAll has chosen, a few batches to each; a worker writes further ones, and waits for the
// lock of those that are busy.
func writeChosen(chosen []*link) {
	for _, l := range chosen {
		if !l.mu.TryLock() {
			l.o.Workers.Run(func() {
				l.mu.Lock()
				l.writeNow(turnsOfOwner)
			})
			continue
		}
		if l.mu.costly { // since it was chosen
			l.handOver()
			l.mu.Unlock()
			continue
		}
		l.writeNow(turnsOfOwner)
	}
}
