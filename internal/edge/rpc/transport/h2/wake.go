package h2

import "runtime"

// chunkConns is to how many connections one goroutine writes, unless there are more than that for
// each processor.
const chunkConns = 8

// WakeAll makes writers call Fill of streams, so that one write has the output of all streams of a
// connection. It does not wait for any client. A worker writes what a socket does not take at once.
// A worker also serves each connection whose lock is taken, or that has a stream with a costly
// Fill. Waking a worker costs about as much as a write, so the caller writes to several connections
// itself, and workers share them if there are many. The caller must not hold a lock that Fill
// takes.
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
				l.mu.waking = true
				chosen = append(chosen, l)
			}
		}
		l.mu.Unlock()
	}
	for l, list := range busy {
		l.o.Workers.Run(func() { l.wakeSources(list) })
	}
	for writers := min(runtime.GOMAXPROCS(0),
		(len(chosen)+chunkConns-1)/chunkConns); writers > 1; writers-- {
		n := len(chosen) / writers
		chunk := chosen[:n]
		chosen[0].o.Workers.Run(func() { writeChosen(chunk) })
		chosen = chosen[n:]
	}
	writeChosen(chosen)
}

// wakeSource lists a source that may have output. first reports that the caller must make sure that
// there is a writer: there is none, and no other call of WakeAll is about to write. The reader may
// have listed sources, but it may be busy for long before it writes. mu must be held.
func (l *link) wakeSource(s *Stream) (first bool) {
	if !s.state.sends() || s.out.source == sourceFull || l.mu.state == connLost {
		return false
	}
	l.mu.out.wakeSource(s)
	return !l.mu.writing && !l.mu.waking
}

// wakeSources waits for the lock of a connection and wakes streams of it.
func (l *link) wakeSources(list []*Stream) {
	l.mu.Lock()
	for _, s := range list {
		l.wakeSource(s)
	}
	l.writeNow(turnsOfOwner)
}

// writeChosen writes a few batches to each connection that WakeAll has chosen. Workers write the
// rest, and wait for the locks of busy connections.
func writeChosen(chosen []*link) {
	for _, l := range chosen {
		if !l.mu.TryLock() {
			l.o.Workers.Run(func() {
				l.mu.Lock()
				l.mu.waking = false
				l.writeNow(turnsOfOwner)
			})
			continue
		}
		l.mu.waking = false
		if l.mu.costly { // it has become costly since it was chosen
			l.handOver()
			l.mu.Unlock()
			continue
		}
		l.writeNow(turnsOfOwner)
	}
}
