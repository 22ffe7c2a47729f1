package transport

import (
	"encoding/binary"
	"io"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"vigil/internal/edge/rpc/transport/h2"
	"vigil/internal/edge/rpc/wire"
)

// session is what a call needs that is served by a Session. The call is its Peer.
type session struct {
	// refs are the goroutines that use the session, and one until Close has returned. The stream is held for all of them.
	refs atomic.Int32
	// prompt says that the session answers some messages without a wait. Like it not changed after it is open.
	prompt bool
	// behind: the last answer without a wait had to queue up. Owned by the reader.
	behind bool
	report func(error) // nil without a stats handler

	mu struct {
		sync.Mutex
		Session       // nil until it is open
		reason  error // of the end, if it is decided
		decided bool
		early   bool // Fill was called before
		ended   bool
	}
}

// runSession opens the session of a call on a worker. The reader of the connection calls it.
func (c *call) runSession() {
	if !c.Hold() {
		return
	}
	c.session = &session{}
	c.session.refs.Store(1) // for Close
	c.in.receiving.Store(true)
	c.conn.server.handlers.Add(1) // for Close
	c.refer()
	c.Notify(!c.sendsPlain() || c.conn.server.o.Stats != nil) // compression, and reports, take time
	c.conn.server.conns.Workers.Run(c.openSession)
	c.conn.server.conns.Workers.Yield()
}

// refer notes that a goroutine will use the session, until unrefer is called.
func (c *call) refer() {
	c.session.refs.Add(1)
	c.conn.server.handlers.Add(1)
}

func (c *call) unrefer() {
	if c.session.refs.Add(-1) == 0 {
		c.Finish(trailerOK, c.empty()) // it has ended: it is not held any more
	}
	c.conn.server.handlers.Done()
}

// openSession opens the session, and handles what was received meanwhile.
func (c *call) openSession() {
	s := c.session
	s.report = c.report()
	c.noteCall()
	opened, err := c.method.Open(c)
	if err != nil {
		_ = c.end(err)
		if s.report != nil {
			s.report(err)
		}
		c.unrefer()
		c.unrefer() // there is nothing to close
		return
	}
	if s.report == nil && c.sendsPlain() {
		_, s.prompt = opened.(PromptSession)
	}
	s.mu.Lock()
	s.mu.Session = opened
	ended, early := s.mu.ended, s.mu.early
	s.mu.Unlock()
	if ended {
		c.closeSession()
	}
	if early {
		c.Wake()
	}
	c.receiveAll()
}

// Ended implements h2.Filler.
func (c *call) Ended() {
	s := c.session
	s.mu.Lock()
	s.mu.ended = true
	open := s.mu.Session != nil // otherwise openSession closes it, or has failed
	s.mu.Unlock()
	if open {
		c.closeSession()
	}
}

// closeSession closes the session of an ended call. It is called once.
func (c *call) closeSession() {
	s := c.session
	s.mu.Lock()
	reason, decided := s.mu.reason, s.mu.decided
	s.mu.Unlock()
	if !decided {
		reason = c.ended()
	}
	s.mu.Session.Close(reason)
	if s.report != nil {
		s.report(reason)
	}
	c.unrefer()
}

// Fill implements h2.Filler.
func (c *call) Fill(room int) {
	s := c.session
	s.mu.Lock()
	opened := s.mu.Session
	s.mu.early = opened == nil
	s.mu.Unlock()
	if opened != nil {
		opened.Fill(room)
	}
}

// receiveAll passes messages to the session until there is none. The caller has called refer.
func (c *call) receiveAll() {
	defer c.unrefer()
	s := c.session.mu.Session // not changed any more
	for c.Err() == nil {
		c.in.mu.Lock()
		if len(c.in.mu.list) == 0 && c.in.mu.ended == nil {
			c.in.receiving.Store(false) // the next message runs it again
			c.in.mu.Unlock()
			return
		}
		c.in.mu.Unlock()
		m := c.method.NewRequest()
		err := c.recv(m)
		switch {
		case err == io.EOF:
			s.EndReceive()
			return
		case err != nil:
			if c.Err() == nil {
				c.decide(&ReceiveError{err})
				c.fail(err)
			}
			return
		}
		s.Receive(m)
	}
}

// answerNow answers a message on the goroutine of the reader, if that needs no wait. Otherwise, and if a worker passes on messages or
// the client does not take the answers, it does nothing and returns false.
func (c *call) answerNow(m inMessage) bool {
	s := c.session
	if m.flag != 0 || len(m.data) > maxBegin || c.Err() != nil || !s.answersNow(&c.in) {
		return false
	}
	if s.behind {
		s.behind = false // a worker waits if too much is queued
		return false
	}
	buf := prompts.Get().(*[]byte)
	defer prompts.Put(buf)
	b, ok := s.mu.Session.(PromptSession).Answer(m.data, appendMessageHead((*buf)[:0], 0)) // not changed any more
	if !ok {
		return false
	}
	c.conn.server.o.Codec.took(m.data)
	c.Taken(messageHead + len(m.data))
	n := len(b) - messageHead
	if n > maxPrompt {
		c.End(errAnswer)
		return true
	}
	*buf = b
	binary.BigEndian.PutUint32(b[1:], uint32(n))
	c.conn.server.o.Codec.gave(n)
	var header *h2.Header
	if !c.headerSent {
		header, c.headerSent = c.header(), true
	}
	s.behind = c.SendSoon(header, b)
	return true
}

// answersNow reports whether the session may answer the next message on the goroutine of the reader.
func (s *session) answersNow(in *inbox) bool {
	return !in.receiving.Load() && s.prompt // if it is not receiving, the session is open, and only the reader can change that
}

// errAnswer ends a session with an answer that cannot be sent without a wait.
var errAnswer = status.Error(codes.Internal, "vigil: an answer is not small")

// received passes messages on, if no worker does so. The reader calls it after it has added one.
func (c *call) wakeReceiver() {
	if c.session == nil {
		return
	}
	c.in.mu.Lock()
	idle := !c.in.receiving.Swap(true)
	c.in.mu.Unlock()
	if idle {
		c.refer()
		c.conn.server.conns.Workers.Run(c.receiveAll)
		c.conn.server.conns.Workers.Yield()
	}
}

// decide sets the reason of the end, unless there is one. It reports whether it was set.
func (c *call) decide(reason error) {
	s := c.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.decided && !s.mu.ended {
		s.mu.reason, s.mu.decided = reason, true
	}
}

// End implements Peer.
func (c *call) End(err error) {
	c.decide(err)
	if err == nil {
		c.FinishSoon(trailerOK, c.empty())
		return
	}
	if _, ok := status.FromError(err); !ok {
		err = status.FromContextError(err).Err()
	}
	c.FinishSoon(c.trailer(err))
}

func wakeCalls(list []*call) {
	streams := make([]*h2.Stream, len(list))
	for i, c := range list {
		streams[i] = &c.Stream
	}
	h2.WakeAll(streams)
}

// queueWatch implements Peer.
func (c *call) queueWatch(e *WatchEncoder, list []wire.WatchResponse) (sent, bytes int, room bool, err error) {
	if c.conn.server.o.Stats != nil || !c.sendsPlain() {
		return c.queueEach(each(list))
	}
	data, n, err := e.frame(list)
	if err != nil {
		c.decide(err)
		c.FinishSoon(c.trailer(err))
		return 0, 0, false, err
	}
	if room, err = c.queue(data); err != nil {
		return 0, 0, false, err
	}
	for i := range list {
		sent += list[i].Count()
	}
	return sent, n, room, nil
}

// queue queues encoded messages with their heads.
func (c *call) queue(data mem.BufferSlice) (room bool, err error) {
	var header *h2.Header
	if !c.headerSent {
		header, c.headerSent = c.header(), true
	}
	if room, err = c.Queue(header, data); err != nil {
		return false, c.ended()
	}
	return room, nil
}

// queueEach is queueWatch for messages that are compressed or reported.
func (c *call) queueEach(list []wire.WatchResponse) (sent, bytes int, room bool, err error) {
	for len(list) > 0 {
		messages := encodeWatch(list)
		list = list[len(messages):]
		for i := range messages {
			n := messages[i].Len()
			head, data, err := c.encode(&messages[i])
			if err != nil {
				c.decide(err)
				c.FinishSoon(c.trailer(err))
				return sent, bytes, false, err
			}
			if room, err = c.queue(append(mem.BufferSlice{mem.SliceBuffer(head[:])}, data...)); err != nil {
				return sent, bytes, false, err
			}
			sent++
			bytes += n
		}
	}
	return sent, bytes, room, nil
}
