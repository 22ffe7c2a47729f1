package h2

import (
	"runtime"

	"google.golang.org/grpc/mem"
)

// Notify lets the exchange be notified, which must be a Filler. costly says that its Fill takes much time. The reader of the connection
// calls it, after Hold.
func (s *Stream) Notify(costly bool) {
	if costly {
		s.c.mu.Lock()
		s.c.mu.costly = true
		s.c.mu.Unlock()
	}
	s.ctx.lock.Lock()
	defer s.ctx.lock.Unlock()
	s.ctx.notified = true
	if s.ctx.ending() != notEnded {
		s.c.o.Workers.Run(s.x.(Filler).Ended)
	}
}

// chunkConns is how many connections a worker writes to, one after the other, unless there are more than that for each processor.
const chunkConns = 8

// WakeAll calls Fill of streams, so that the output of all streams of a connection is in one write. It waits for no client: what a
// socket does not take at once, a worker writes, and a worker does all of it for connections whose lock is taken, or with a stream whose
// Fill is costly. Waking a worker costs about as much as a write, so the caller, and each worker if there are many connections,
// writes to several others, one after the other. The caller holds no lock that Fill takes.
func WakeAll(streams []*Stream) {
	var conns []*Conn
	var busy map[*Conn][]*Stream
	for _, s := range streams {
		c := s.c
		if !c.mu.TryLock() {
			if busy == nil {
				busy = map[*Conn][]*Stream{}
			}
			busy[c] = append(busy[c], s)
			continue
		}
		if c.listWoken(s) && !c.mu.writing && !c.mu.waking {
			if c.mu.costly {
				c.handOver()
			} else {
				c.mu.waking = true
				conns = append(conns, c)
			}
		}
		c.mu.Unlock()
	}
	for c, list := range busy {
		c.o.Workers.Run(func() { c.wakeWaiting(list) })
	}
	for writers := min(runtime.GOMAXPROCS(0), (len(conns)+chunkConns-1)/chunkConns); writers > 1; writers-- {
		n := len(conns) / writers
		chunk := conns[:n]
		conns[0].o.Workers.Run(func() { writeWoken(chunk) })
		conns = conns[n:]
	}
	writeWoken(conns)
}

// listWoken lists a stream that was woken, if it may have output. c.mu is held, and the caller sees to it that there is a writer.
func (c *Conn) listWoken(s *Stream) bool {
	if s.closed || s.finished || s.out.full || c.mu.lost {
		return false
	}
	c.listFill(s)
	return true
}

// wakeWaiting wakes streams of a connection, for whose lock it waits.
func (c *Conn) wakeWaiting(list []*Stream) {
	c.mu.Lock()
	for _, s := range list {
		c.listWoken(s)
	}
	c.writeReady(turnsOfOwner)
}

// writeWoken writes to connections that WakeAll has chosen, a few batches to each; a worker writes further ones.
func writeWoken(conns []*Conn) {
	for _, c := range conns {
		if !c.mu.TryLock() {
			c.o.Workers.Run(c.writeChosen)
			continue
		}
		c.mu.waking = false
		if c.mu.costly { // since it was chosen
			c.handOver()
			c.mu.Unlock()
			continue
		}
		c.writeReady(turnsOfOwner)
	}
}

// writeChosen writes to a connection that WakeAll has chosen, for whose lock it waits.
func (c *Conn) writeChosen() {
	c.mu.Lock()
	c.mu.waking = false
	c.writeReady(turnsOfOwner)
}

// Wake is WakeAll for one stream.
func (s *Stream) Wake() { WakeAll([]*Stream{s}) }

// listFill lists a stream that may have output. c.mu is held, and the caller sees to it that there is a writer.
func (c *Conn) listFill(s *Stream) {
	if !s.out.filling {
		s.out.filling = true
		c.mu.fills = append(c.mu.fills, s)
	}
}

// fill lets streams queue output, as much as one write takes: the rest stays where it is until the client has read that. Only the
// writer calls it. c.mu is held, and unlocked meanwhile.
func (c *Conn) fill() {
	for before := c.mu.filled; len(c.mu.fills) > 0 && c.mu.filled-before < batchBytes && !c.mu.lost && !c.mu.shut; {
		s := c.mu.fills[0]
		c.mu.fills[0] = nil
		if c.mu.fills = c.mu.fills[1:]; len(c.mu.fills) == 0 {
			c.mu.fills = nil
		}
		s.out.filling = false
		if s.closed || s.finished {
			continue
		}
		room := s.room()
		if room <= 0 && s.out.begun {
			s.out.full = true
			s.refill()
			continue
		}
		c.mu.Unlock()
		s.x.(Filler).Fill(int(max(room, 1))) // the header of an answer waits for no window
		c.mu.Lock()
	}
}

// room returns how many bytes a source may queue: what the windows let pass, so that the output for a client that does not read stays
// where it is. c.mu is held.
func (s *Stream) room() int64 {
	return min(sendQuota, s.out.window, s.c.mu.window) - int64(s.out.bytes)
}

// refill lists a source that has had no room: for a fill, if there is room now, or among those that wait for the window of the connection.
// Otherwise its own window is used up, and it is listed when the client opens that. c.mu is held.
func (s *Stream) refill() {
	switch {
	case s.out.bytes > 0 || s.out.window <= 0: // emit calls it again
	case s.c.mu.window <= 0:
		s.c.mu.stalled.push(s)
	default:
		s.out.full = false
		s.c.listFill(s)
	}
}

// Queue queues a part of the answer, after header if that is not nil. Only Fill may call it. The buffers belong to the connection
// from now on. If there is no room for more, Fill is called again when there is.
func (s *Stream) Queue(header *Header, data mem.BufferSlice) (room bool, err error) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.closed || s.finished {
		data.Free()
		return false, ErrEnded
	}
	n := data.Len()
	s.enqueue(header, message{data: data}, n)
	c.mu.filled += n
	c.ready(s)
	s.out.full = s.room() <= 0
	return !s.out.full, nil
}

// FinishSoon is Finish by any goroutine, which does not wait for the client: a worker writes.
func (s *Stream) FinishSoon(trailer, whole *Header) bool {
	c := s.c
	c.mu.Lock()
	if !s.out.begun {
		trailer = whole
	}
	exists := s.finishLocked(trailer)
	if exists {
		s.endContext(byCancel)
		c.handOver()
	}
	c.mu.Unlock()
	return exists
}
