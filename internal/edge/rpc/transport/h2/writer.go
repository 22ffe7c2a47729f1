package h2

import (
	"runtime"

	"golang.org/x/net/http2"
)

const (
	// batchBytes is about how many bytes are written at once.
	batchBytes = 64 << 10
	// turnsOfOwner is how many batches a goroutine writes that made output ready, before a worker
	// continues.
	turnsOfOwner = 4
)

// The writer is the goroutine that has set link.mu.writing, one at a time.

// becomeWriter makes the caller the writer if there is output and no writer. mu must be held.
func (l *link) becomeWriter() bool {
	if l.mu.writing || l.mu.state == connLost || !l.hasOutput() {
		return false
	}
	l.mu.writing = true
	return true
}

// writeOrWait writes if there is output and no writer. It may wait for the client. mu must be held;
// writeOrWait unlocks it.
func (l *link) writeOrWait() {
	writes := l.becomeWriter()
	others := len(l.mu.table.streams) > 1
	l.mu.Unlock()
	if !writes {
		return
	}
	if others {
		// Answers that other goroutines are about to make go into the same write.
		runtime.Gosched()
	}
	l.writeBatches(turnsOfOwner)
}

// handOver lets a worker write if there is output and no writer. mu must be held.
func (l *link) handOver() {
	if l.becomeWriter() {
		l.o.Workers.Run(l.writeAll)
	}
}

// writeNow writes up to turns batches without waiting, if there is output and no writer. A worker
// writes the rest, and whatever the socket does not take at once. With TLS, where any write may
// wait, a worker writes everything. mu must be held; writeNow unlocks it.
func (l *link) writeNow(turns int) {
	writes := l.becomeWriter()
	l.mu.Unlock()
	switch {
	case !writes:
		return
	case !l.socket.direct.canWrite():
		l.o.Workers.Run(l.writeAll)
		return
	}
	b := l.socket.newBatch()
	for ; l.nextBatch(b, turns > 0); turns-- {
		if turns == 0 {
			l.o.Workers.Run(l.writeAll)
			break
		}
		if b.len() == 0 {
			continue // only streams that may not send were filled
		}
		n, err := l.socket.direct.write(b)
		if err == nil && n < b.len() {
			l.o.Workers.Run(func() { l.writeRest(b, n) })
			return
		}
		b.clear()
		if err != nil {
			l.closeConn(err)
		}
	}
	b.release()
}

// writeRest writes a batch from byte n on, and then everything that is ready. Only the writer calls
// it.
func (l *link) writeRest(b *batch, n int) {
	err := l.socket.write(b, n)
	b.clear()
	b.release()
	if err != nil {
		l.closeConn(err)
	}
	l.writeAll()
}

// writeAll writes until nothing is ready. Only the writer calls it.
func (l *link) writeAll() { l.writeBatches(-1) }

// writeBatches writes until nothing is ready. After turns batches a worker continues; negative
// turns mean no limit. Only the writer calls it.
func (l *link) writeBatches(turns int) {
	b := l.socket.newBatch()
	defer b.release()
	for ; l.nextBatch(b, turns != 0); turns-- {
		if turns == 0 {
			l.o.Workers.Run(l.writeAll)
			return
		}
		if b.len() == 0 {
			continue // streams were filled that must not send
		}
		err := l.socket.write(b, 0)
		b.clear()
		if err != nil {
			l.closeConn(err)
		}
	}
}

// nextBatch fills the next batch if build is set. It returns false if nothing is ready: then the
// caller is not the writer any more.
func (l *link) nextBatch(b *batch, build bool) (more bool) {
	l.mu.Lock()
	l.fillSources()
	inUse := l.mu.inUse
	l.mu.inUse = nil
	if !l.hasOutput() || l.mu.state == connLost {
		inUse.Free() // free them before Serve can return
		l.mu.writing = false
		l.mu.changed.Broadcast()
		finished := l.finishOutput()
		l.mu.Unlock()
		if finished {
			l.endOutput()
		}
		return false
	}
	if build {
		l.buildBatch(b)
		l.mu.changed.Broadcast()
	}
	l.mu.Unlock()
	inUse.Free()
	return true
}

// buildBatch fills a batch: first frames without data, then streams in turns. mu must be held.
func (l *link) buildBatch(b *batch) {
	out := &l.mu.out
	out.takeFrames(b)
	for b.len() < batchBytes {
		s := out.nextTurn()
		if s == nil {
			return
		}
		switch out.writeTurn(b, s) {
		case turnLast:
			l.removeStream(s, s.state.bodyEnded())
		case turnTooLarge:
			l.resetStream(s, http2.ErrCodeInternal, s.state.bodyEnded())
			s.endContext(byCancel)
		}
	}
}

// fillSources lets sources queue about as much output as one write takes. The rest stays with its
// owner until the client has read that. Only the writer calls it. mu must be held; it is unlocked
// during Fill.
func (l *link) fillSources() {
	for before := l.mu.out.filled; l.mu.out.filled-before < batchBytes && l.mu.state.writes(); {
		s, room := l.mu.out.nextSource()
		if s == nil {
			return
		}
		l.mu.Unlock()
		s.x.(Filler).Fill(int(room))
		l.mu.Lock()
	}
}

// flush writes what is ready without waiting for the client.
func (l *link) flush() {
	l.mu.Lock()
	if l.mu.costly && len(l.mu.out.sources) > 0 {
		l.handOver() // the caller also works for other clients
		l.mu.Unlock()
		return
	}
	l.writeNow(turnsOfOwner)
}
