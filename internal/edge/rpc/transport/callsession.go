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

// sessionCall is a call that a Session serves. It is the Peer of that, and implements h2.Filler.
type sessionCall struct {
	call

	// refs are the goroutines that use the session, and one until Close has returned. The stream is held for all of them.
	refs atomic.Int32
	// receiving: a worker passes the messages to the session, or the last one was passed. The reader sets it; a worker ends it
	// under in.mu.
	receiving atomic.Bool
	// prompt says that the session answers some messages without a wait. It is not changed after the session is open.
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
	c.stream.Notify(!c.header.sendsPlain() || s.o.Stats != nil) // compression, and reports, take time
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
		return c.conn.brief[:0] // addMessage is called before the next message of the connection
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

// addRef notes that a goroutine will use the session, until unrefer is called.
func (c *sessionCall) addRef() {
	c.refs.Add(1)
	c.conn.server.handlers.Add(1)
}

func (c *sessionCall) dropRef() {
	if c.refs.Add(-1) == 0 {
		c.stream.Finish(trailerOK, c.header.emptyAnswer(c.out)) // it has ended: it is not held any more
	}
	c.conn.server.handlers.Done()
}

// openSession opens the session, and handles what was received meanwhile.
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

// closeSession closes the session of an ended call. It is called once.
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

// receiveAll passes messages to the session until there is none. The caller has called refer.
func (c *sessionCall) receiveAll() {
	defer c.dropRef()
	s := c.mu.Session // not changed any more
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

// answerNow answers a message on the goroutine of the reader, if that needs no wait. Otherwise, and if a worker passes on messages or
// the client does not take the answers, it does nothing and returns false.
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
	b, ok := c.mu.Session.(PromptSession).Answer(m.data, appendMessageHead((*buf)[:0], 0)) // not changed any more
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

// canAnswerNow reports whether the session may answer the next message on the goroutine of the reader.
func (c *sessionCall) canAnswerNow() bool {
	return !c.receiving.Load() && c.prompt // if it is not receiving, the session is open, and only the reader can change that
}

// errAnswer ends a session with an answer that cannot be sent without a wait.
var errAnswer = status.Error(codes.Internal, "vigil: an answer is not small")

// wakeReceiver passes messages on, if no worker does so. The reader calls it after it has added one.
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

// decideReason sets the reason of the end, unless there is one. It reports whether it was set.
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
func (c *sessionCall) queueWatch(e *WatchEncoder, list []wire.WatchResponse) (sent, bytes int, room bool, err error) {
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

// queueEncoded queues encoded messages with their heads.
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

// queueOneByOne is queueWatch for messages that are compressed or reported.
func (c *sessionCall) queueOneByOne(list []wire.WatchResponse) (sent, bytes int, room bool, err error) {
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
			if room, err = c.queueEncoded(append(mem.BufferSlice{mem.SliceBuffer(head[:])}, data...)); err != nil {
				return sent, bytes, false, err
			}
			sent++
			bytes += n
		}
	}
	return sent, bytes, room, nil
}
