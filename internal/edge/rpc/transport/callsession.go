package transport

import (
	"bytes"
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

// sessionCall is a call that a Session serves. It is the Peer of the session, and implements
// h2.Filler.
type sessionCall struct {
	call

	// refs counts the goroutines that use the session, plus one until Close has returned. The
	// stream is held for all of them.
	refs atomic.Int32
	// receiving says that a worker passes messages to the session, or that the last one was passed.
	// The reader sets it; the worker clears it under in.mu.
	receiving atomic.Bool
	// prompt says that the session answers some messages without waiting. It does not change once
	// the session is open.
	prompt bool
	// behind says that the last prompt answer had to queue. Owned by the reader.
	behind bool
	report func(error) // nil without a stats handler

	mu struct {
		sync.Mutex
		Session       // nil until it is open
		reason  error // of the end, if decided
		decided bool
		early   bool // Fill was called before the session was open
		ended   bool
	}
}

// Start implements h2.Exchange. It opens the session on a worker.
func (c *sessionCall) Start() {
	c.startDeadline()
	if !c.stream.Hold() {
		return
	}
	c.refs.Store(1) // for Close
	c.receiving.Store(true)
	s := c.conn.server
	s.handlers.Add(1) // for Close
	c.addRef()
	// compressing and reporting take time
	c.stream.Notify(!c.header.sendsPlain() || s.o.Stats != nil)
	s.conns.Workers.Run(c.openSession)
	s.conns.Workers.Yield()
}

// Receive implements h2.Exchange.
func (c *sessionCall) Receive(r io.Reader, n int) error { return c.readMessages(r, n, c) }

// EndReceive implements h2.Exchange.
func (c *sessionCall) EndReceive() { c.endBody(c) }

// messageMemory implements messageSink.
func (c *sessionCall) messageMemory(n int, whole bool) []byte {
	if whole && n <= len(c.conn.brief) && c.canAnswerNow() {
		// addMessage takes it before the next message of the connection arrives
		return c.conn.brief[:0]
	}
	return nil
}

// addMessage implements messageSink.
func (c *sessionCall) addMessage(m inMessage) {
	if c.answerNow(m) {
		return
	}
	if cap(m.data) == len(c.conn.brief) {
		m.data = bytes.Clone(m.data) // it may be in brief
	}
	c.listMessage(m)
	c.wakeReceiver()
}

// endMessages implements messageSink.
func (c *sessionCall) endMessages(err error) {
	c.in.noteEnd(err)
	c.wakeReceiver()
}

// addRef notes that a goroutine uses the session until it calls dropRef.
func (c *sessionCall) addRef() {
	c.refs.Add(1)
	c.conn.server.handlers.Add(1)
}

func (c *sessionCall) dropRef() {
	if c.refs.Add(-1) == 0 {
		// it has ended: it is not held any more
		c.stream.Finish(trailerOK, c.header.emptyAnswer(c.out))
	}
	c.conn.server.handlers.Done()
}

// openSession opens the session, and passes on what the client has sent before.
func (c *sessionCall) openSession() {
	c.report = c.reportCall()
	c.noteCall()
	opened, err := c.header.method.Open(c)
	if err != nil {
		_ = c.endWith(err)
		if c.report != nil {
			c.report(err)
		}
		c.dropRef()
		c.dropRef() // there is nothing to close
		return
	}
	if c.report == nil && c.header.sendsPlain() {
		_, c.prompt = opened.(PromptSession)
	}
	c.mu.Lock()
	c.mu.Session = opened
	ended, early := c.mu.ended, c.mu.early
	c.mu.Unlock()
	if ended {
		c.closeSession()
	}
	if early {
		c.Wake()
	}
	c.receiveAll()
}

// Ended implements h2.Filler.
func (c *sessionCall) Ended() {
	c.mu.Lock()
	c.mu.ended = true
	open := c.mu.Session != nil // otherwise openSession closes it, or has failed
	c.mu.Unlock()
	if open {
		c.closeSession()
	}
}

// closeSession closes the session after the call has ended. It runs once.
func (c *sessionCall) closeSession() {
	c.mu.Lock()
	reason, decided := c.mu.reason, c.mu.decided
	c.mu.Unlock()
	if !decided {
		reason = c.endStatus()
	}
	c.mu.Session.Close(reason)
	if c.report != nil {
		c.report(reason)
	}
	c.dropRef()
}

// Wake implements Peer.
func (c *sessionCall) Wake() { c.stream.Wake() }

// Fill implements h2.Filler.
func (c *sessionCall) Fill(room int) {
	c.mu.Lock()
	opened := c.mu.Session
	c.mu.early = opened == nil
	c.mu.Unlock()
	if opened != nil {
		opened.Fill(room)
	}
}

// receiveAll passes messages to the session until there are none. The caller has called addRef.
func (c *sessionCall) receiveAll() {
	defer c.dropRef()
	s := c.mu.Session // it does not change any more
	for c.Err() == nil {
		c.in.mu.Lock()
		if len(c.in.mu.list) == 0 && c.in.mu.ended == nil {
			c.receiving.Store(false) // the next message runs it again
			c.in.mu.Unlock()
			return
		}
		c.in.mu.Unlock()
		m := c.header.method.NewRequest()
		err := c.receiveInto(m)
		switch {
		case err == io.EOF:
			s.EndReceive()
			return
		case err != nil:
			if c.Err() == nil {
				c.decideReason(&ReceiveError{err})
				c.failWith(err)
			}
			return
		}
		s.Receive(m)
	}
}

// answerNow answers a message on the goroutine of the reader. It does nothing and returns false if
// the answer might have to wait, if a worker is passing on messages, or if the client does not take
// its answers.
func (c *sessionCall) answerNow(m inMessage) bool {
	if m.flag != 0 || len(m.data) > maxBegin || c.Err() != nil || !c.canAnswerNow() {
		return false
	}
	if c.behind {
		c.behind = false // a worker waits if too much is queued
		return false
	}
	buf := prompts.Get().(*[]byte)
	defer prompts.Put(buf)
	// not changed any more
	b, ok := c.mu.Session.(PromptSession).Answer(m.data, appendMessageHead((*buf)[:0], 0))
	if !ok {
		return false
	}
	c.conn.server.o.Codec.countReceived(m.data)
	c.stream.Taken(messageHead + len(m.data))
	n := len(b) - messageHead
	if n > maxPrompt {
		c.End(errAnswer)
		return true
	}
	*buf = b
	binary.BigEndian.PutUint32(b[1:], uint32(n))
	c.conn.server.o.Codec.countSent(n)
	var header *h2.Header
	if !c.headerSent {
		header, c.headerSent = c.header.answerHeader(c.out), true
	}
	c.behind = c.stream.SendSoon(header, b)
	return true
}

// canAnswerNow reports whether the session may answer the next message on the goroutine of the
// reader.
func (c *sessionCall) canAnswerNow() bool {
	// if it is not receiving, the session is open, and only the reader can change that
	return !c.receiving.Load() && c.prompt
}

// errAnswer ends a session whose prompt answer is too large to be sent at once.
var errAnswer = status.Error(codes.Internal, "vigil: an answer is not small")

// wakeReceiver starts a worker for the messages if there is none. The reader calls it after it has
// added a message.
func (c *sessionCall) wakeReceiver() {
	c.in.mu.Lock()
	idle := !c.receiving.Swap(true)
	c.in.mu.Unlock()
	if idle {
		c.addRef()
		c.conn.server.conns.Workers.Run(c.receiveAll)
		c.conn.server.conns.Workers.Yield()
	}
}

// decideReason sets the reason of the end, unless it is decided or the call has ended.
func (c *sessionCall) decideReason(reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mu.decided && !c.mu.ended {
		c.mu.reason, c.mu.decided = reason, true
	}
}

// End implements Peer.
func (c *sessionCall) End(err error) {
	c.decideReason(err)
	if err == nil {
		c.stream.FinishSoon(trailerOK, c.header.emptyAnswer(c.out))
		return
	}
	if _, ok := status.FromError(err); !ok {
		err = status.FromContextError(err).Err()
	}
	c.stream.FinishSoon(c.header.errorTrailer(c.out, err))
}

// queueWatch implements Peer.
func (c *sessionCall) queueWatch(e *WatchEncoder, list []wire.WatchResponse) (sent, bytes int,
	room bool, err error) {
	if c.conn.server.o.Stats != nil || !c.header.sendsPlain() {
		return c.queueOneByOne(splitByWatcher(list))
	}
	data, n, err := e.frameResponses(list)
	if err != nil {
		c.decideReason(err)
		c.stream.FinishSoon(c.header.errorTrailer(c.out, err))
		return 0, 0, false, err
	}
	if room, err = c.queueEncoded(data); err != nil {
		return 0, 0, false, err
	}
	for i := range list {
		sent += list[i].Count()
	}
	return sent, n, room, nil
}

// queueEncoded queues encoded messages that have their heads.
func (c *sessionCall) queueEncoded(data mem.BufferSlice) (room bool, err error) {
	var header *h2.Header
	if !c.headerSent {
		header, c.headerSent = c.header.answerHeader(c.out), true
	}
	if room, err = c.stream.Queue(header, data); err != nil {
		return false, c.endStatus()
	}
	return room, nil
}

// queueOneByOne queues messages that are compressed or reported.
func (c *sessionCall) queueOneByOne(list []wire.WatchResponse) (sent, bytes int,
	room bool, err error) {
	for len(list) > 0 {
		messages := encodeWatch(list)
		list = list[len(messages):]
		for i := range messages {
			n := messages[i].Len()
			head, data, err := c.encodeAnswer(&messages[i])
			if err != nil {
				c.decideReason(err)
				c.stream.FinishSoon(c.header.errorTrailer(c.out, err))
				return sent, bytes, false, err
			}
			if room, err = c.queueEncoded(append(mem.BufferSlice{mem.SliceBuffer(head[:])},
				data...)); err != nil {
				return sent, bytes, false, err
			}
			sent++
			bytes += n
		}
	}
	return sent, bytes, room, nil
}
