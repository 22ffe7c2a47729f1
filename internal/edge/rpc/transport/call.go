package transport

import (
	"context"
	"encoding/binary"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"vigil/internal/edge/rpc/transport/h2"
)

// call is one call of a client: its stream and the messages that the client has sent. It implements
// h2.Exchange. It is kept small, because a client may have very many calls that do nothing.
type call struct {
	stream     h2.Stream
	conn       *clientConn
	headerSent bool // owned by the goroutine that sends

	in     inbox
	header callHeader

	// Owned by the goroutine that sends.
	out *outMetadata // nil if the handler sends none

	// Set by tryBegin.
	request any
	arrived time.Duration // after epoch
}

// epoch is the zero of call.arrived.
var epoch = time.Now()

// SendUncompressed disables compression of a call's answers: a compressed answer is in memory of
// the transport, which no lender counts. A stream must call it before its first answer. Calls made
// in this process are never compressed.
func SendUncompressed(ctx context.Context) {
	if c, ok := ctx.Value(callKey{}).(*call); ok && !c.headerSent {
		c.header.makeSpecial().sent = encoding.Identity
	}
}

type callKey struct{}

// Value implements context.Context.
func (c *call) Value(key any) any {
	switch {
	case key == any(callKey{}):
		return c
	case c.header.metadata == nil:
		return c.conn.values.Value(key)
	}
	return c.header.metadata.values.Value(key)
}

// Deadline implements context.Context.
func (c *call) Deadline() (time.Time, bool) { return c.stream.Deadline() }

// Done implements context.Context.
func (c *call) Done() <-chan struct{} { return c.stream.Done() }

// Err implements context.Context.
func (c *call) Err() error { return c.stream.Err() }

// AfterFunc does what h2.Stream.AfterFunc does.
func (c *call) AfterFunc(f func()) (stop func() bool) { return c.stream.AfterFunc(f) }

// Base implements h2.Exchange.
func (c *call) Base() *h2.Stream { return &c.stream }

// Start implements h2.Exchange. A call with one request runs when its request is complete, so a
// slow client occupies no goroutine.
func (c *call) Start() {
	if c.header.rejected != nil {
		c.in.failed = true
		if !c.header.rejected.noType { // otherwise EndReceive answers, as an HTTP server does
			_, whole := c.header.errorTrailer(c.out, c.header.rejected.err)
			c.stream.Reject(nil, nil, whole)
		}
		return
	}
	c.startDeadline()
	if c.header.method.ClientStreams {
		c.startHandler()
	}
}

// startDeadline starts the timer of the call's deadline, if it has one.
func (c *call) startDeadline() {
	if c.header.hasTimeout {
		c.stream.SetDeadline(c.header.timeout, lateHeaders)
	}
}

// startHandler runs the handler on a worker, unless the call has ended.
func (c *call) startHandler() {
	if !c.stream.Hold() {
		return
	}
	s := c.conn.server
	s.handlers.Add(1)
	s.conns.Workers.Run(c.runHandler)
}

// runHandler runs the handler, and ends the call with its result.
func (c *call) runHandler() {
	s := c.conn.server
	defer s.handlers.Done()
	end := c.reportCall()
	var err error
	if c.header.method.Stream != nil {
		err = c.serveStream()
	} else {
		err = c.serveUnary()
	}
	if end != nil {
		end(err)
	}
}

// serveUnary answers the one request of the call.
func (c *call) serveUnary() error {
	request := c.request // nil unless begin has decoded it
	if request == nil {
		request = c.header.method.NewRequest()
		if err := c.RecvMsg(request); err != nil {
			return c.endWith(err)
		}
		c.noteCall()
	}
	response, err := c.header.method.Unary(c.Context(), request)
	if err != nil {
		return c.endWith(err)
	}
	head, data, err := c.encodeAnswer(response)
	if err != nil {
		return c.endWith(err)
	}
	c.stream.Answer(c.header.answerHeader(c.out), head, data, okTrailer(c.out))
	return nil
}

// serveStream runs the handler of a stream.
func (c *call) serveStream() error {
	c.noteCall()
	return c.endWith(c.header.method.Stream(c))
}

// endWith ends the call with the status of err, and returns that status as an error.
func (c *call) endWith(err error) error {
	c.sendHandlerHeader()
	if err == nil {
		c.stream.Finish(okTrailer(c.out), c.header.emptyAnswer(c.out))
		return nil
	}
	if _, ok := status.FromError(err); !ok {
		err = status.FromContextError(err).Err()
	}
	c.stream.Finish(c.header.errorTrailer(c.out, err))
	return err
}

// noteCall runs Client.firstCall if this is the first call of its connection.
func (c *call) noteCall() { c.conn.client.noteCall() }

// Context implements Stream.
func (c *call) Context() context.Context {
	if c.header.special == nil || c.header.special.tagged == nil {
		return c
	}
	return c.header.special.tagged
}

// SendMsg implements Stream.
func (c *call) SendMsg(m any) error { return c.sendMessage(m, false) }

// sendMessage encodes and sends a message. more says that another message follows at once.
func (c *call) sendMessage(m any, more bool) error {
	head, data, err := c.encodeAnswer(m)
	if err != nil {
		c.failWith(err)
		return err
	}
	var header *h2.Header
	if !c.headerSent {
		header, c.headerSent = c.header.answerHeader(c.out), true
	}
	if c.stream.Send(header, head, data, more) != nil {
		return c.endStatus()
	}
	return nil
}

// RecvMsg implements Stream.
func (c *call) RecvMsg(m any) error {
	err := c.receiveInto(m)
	if err != nil && err != io.EOF {
		c.failWith(err)
	}
	return err
}

// receiveInto decodes the next message into m. Unlike RecvMsg, it does not end the call after an
// error.
func (c *call) receiveInto(m any) error {
	data, err := c.nextMessage()
	if err != nil {
		return err
	}
	size := len(data)
	if err := c.conn.server.o.Codec.Unmarshal(OneBuffer(data), m); err != nil {
		return status.Errorf(codes.Internal,
			"grpc: failed to unmarshal the received message: %v", err)
	}
	if c.conn.server.o.Stats != nil {
		c.conn.server.o.Stats.HandleRPC(c.Context(),
			&stats.InPayload{RecvTime: time.Now(), Payload: m, Length: size})
	}
	return nil
}

// failWith ends the call with an error of receiving or sending. What the handler returns later is
// ignored.
func (c *call) failWith(err error) { c.stream.Finish(c.header.errorTrailer(c.out, err)) }

// endStatus returns the status of a call whose context has ended, or is about to.
func (c *call) endStatus() error {
	err := c.Err()
	if err == nil {
		err = context.Canceled // is about to be
	}
	return status.FromContextError(err).Err()
}

// encodeAnswer encodes an answer, and compresses it if the client compresses its requests.
func (c *call) encodeAnswer(m any) (head [5]byte, data mem.BufferSlice, err error) {
	data, err = c.conn.server.o.Codec.Marshal(m)
	if err != nil {
		return head, nil, status.Errorf(codes.Internal,
			"grpc: error while marshaling: %v", err.Error())
	}
	size := data.Len()
	if !c.header.sendsPlain() && size > 0 {
		compressed, err := compress(c.header.special.compressor, data)
		data.Free()
		if err != nil {
			return head, nil, status.Errorf(codes.Internal,
				"grpc: error while compressing: %v", err.Error())
		}
		head[0], data = 1, compressed
	}
	n := data.Len()
	if n > maxSend {
		data.Free()
		return head, nil, status.Errorf(codes.ResourceExhausted,
			"trying to send message larger than max (%d vs. %d)", n, maxSend)
	}
	binary.BigEndian.PutUint32(head[1:], uint32(n))
	if c.conn.server.o.Stats != nil {
		c.conn.server.o.Stats.HandleRPC(c.Context(),
			&stats.OutPayload{Payload: m, Length: size, CompressedLength: n,
				WireLength: n + len(head), SentTime: time.Now()})
	}
	return head, data, nil
}

func compress(z encoding.Compressor, data mem.BufferSlice) (mem.BufferSlice, error) {
	var out mem.BufferSlice
	w, err := z.Compress(mem.NewWriter(&out, pool))
	if err == nil {
		for _, b := range data {
			if _, err = w.Write(b.ReadOnlyData()); err != nil {
				break
			}
		}
		if e := w.Close(); err == nil {
			err = e
		}
	}
	if err != nil {
		out.Free()
		return nil, err
	}
	return out, nil
}
