package transport

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"vigil/internal/edge/rpc/transport/h2"
)

// Begun says how Method.Begin handled a call.
type Begun int

const (
	// Declined: Begin did nothing, and Method.Unary is called.
	Declined Begun = iota
	// Answered: Begin returned the answer.
	Answered
	// Started: the answer follows, by Answers.Add.
	Started
)

// Metadata returns the metadata of a call in Begin. The caller must not change them.
func Metadata(ctx context.Context) metadata.MD {
	if c, ok := ctx.(*call); ok {
		return c.header.metadata.md
	}
	return nil
}

// Pending is a call that has no answer yet. It has the size of a pointer. After the answer another
// call uses its memory: keep neither a Pending nor its context.
type Pending struct{ c *call }

// Context returns the context of the call. The call must be answered even if its context has ended.
func (p Pending) Context() context.Context { return p.c }

// Request returns the decoded request, which Method.NewRequest made.
func (p Pending) Request() any { return p.c.request }

// Method returns the method of the call.
func (p Pending) Method() *Method { return p.c.header.method }

// Arrived returns when the request was complete.
func (p Pending) Arrived() time.Time { return epoch.Add(p.c.arrived) }

// Last reports whether the request is the last thing that was read from the connection. Only
// Method.Begin may call it.
func (p Pending) Last() bool { return p.c.conn.http2.NothingRead() }

// Handle runs the handler of a call that was started, unless the call or the server has ended. The
// handler answers the call then, and Answers must not.
func (p Pending) Handle() {
	s := p.c.conn.server
	s.mu.Lock()
	if s.mu.ended {
		s.mu.Unlock()
		return
	}
	s.handlers.Add(1) // Stop may wait for handlers already, and must wait for this one too
	s.mu.Unlock()
	defer s.handlers.Done()
	p.c.startHandler()
}

// maxBegin is the largest request, in bytes, that the reader of a connection decodes itself.
const maxBegin = 64 << 10

// tryBegin tries to answer or start the call on the goroutine of the reader. It returns false if
// the handler must run.
func (c *call) tryBegin() bool {
	in, s := &c.in, c.conn.server
	if c.header.method.Begin == nil || s.o.Stats != nil || in.count != 1 ||
		!c.header.receivesPlain() {
		return false
	}
	m := in.mu.list[0] // without the lock: no handler has begun
	if m.flag != 0 || len(m.data) > maxBegin {
		return false
	}
	request := c.header.method.NewRequest()
	if s.o.Codec.decode(m.data, request) != nil {
		return false // the handler finds the mistake again, and reports it
	}
	s.o.Codec.countReceived(m.data)
	if !c.stream.Attend() {
		return true // the client has reset it
	}
	in.mu.list = nil
	c.stream.Taken(len(in.head) + len(m.data))
	c.request, c.arrived = request, time.Since(epoch)
	c.noteCall()
	response, how := c.header.method.Begin(c, request, Pending{c})
	switch how {
	case Answered:
		method, conn := c.header.method, c.conn
		if c.answerLater(response, nil) && method.Free != nil {
			method.Free(request)
			if cap(m.data) <= maxSpare {
				conn.spare = m.data[:0]
			}
		}
	case Declined:
		return false
	}
	return true // a call that was started belongs to those who answer it
}

// answerLater queues the answer of the call, or the error that ends it, and does not write. If over
// is true, nothing refers to the call, its request and its answer any more, and the caller must not
// use the call.
func (c *call) answerLater(response any, err error) (over bool) {
	if err == nil {
		if answered, over := c.answerPrompt(response); answered {
			return over
		}
	}
	if err == nil {
		head, data, failed := c.encodeAnswer(response)
		if failed == nil {
			c.stream.AnswerLater(c.header.answerHeader(c.out), head, data, trailerOK)
			return false
		}
		err = failed
	}
	if _, ok := status.FromError(err); !ok {
		err = status.FromContextError(err).Err()
	}
	c.stream.FinishLater(c.header.errorTrailer(c.out, err))
	return false
}

// maxSpare is the largest message, in bytes, whose memory a connection keeps for the next message.
const maxSpare = 1 << 10

// maxPrompt is the largest message, in bytes, of an answer that becomes frames at once.
const maxPrompt = 1 << 10

// prompts has buffers for such messages.
var prompts = sync.Pool{New: func() any { return new(make([]byte, 0, messageHead+maxPrompt)) }}

// answerPrompt answers the call if the message is small. For over see answerLater.
func (c *call) answerPrompt(response any) (ok, over bool) {
	if c.conn.server.o.Stats != nil || !c.header.sendsPlain() {
		return false, false
	}
	buf := prompts.Get().(*[]byte)
	m, ok := c.conn.server.o.Codec.appendSmall((*buf)[:0], response, maxPrompt)
	if ok {
		if over = c.stream.AnswerPrompt(c.header.answerHeader(c.out), m, trailerOK); over {
			c.recycle()
		}
		*buf = m
	}
	prompts.Put(buf)
	return ok, over
}

// calls keeps ended calls for reuse. Most calls are short, so this saves the garbage collector most
// of its work.
var calls = sync.Pool{New: func() any { return new(call) }}

// recycle gives the memory of an answered call to another call. The caller must not use the call
// any more. The request belongs to the service, which may keep it.
func (c *call) recycle() {
	*c = call{}
	calls.Put(c)
}

// Answers answers calls that were started, and writes all answers of a connection together. One
// goroutine uses it.
type Answers struct{ conns map[*h2.Conn]struct{} }

// Add queues the answer of a call. Flush must follow.
func (a *Answers) Add(p Pending, response any, err error) {
	if a.conns == nil {
		a.conns = map[*h2.Conn]struct{}{}
	}
	a.conns[p.c.conn.http2] = struct{}{}
	p.c.answerLater(response, err)
}

// Flush writes the queued answers. It does not wait for any client.
func (a *Answers) Flush() {
	for c := range a.conns {
		c.Flush()
	}
	clear(a.conns)
}
