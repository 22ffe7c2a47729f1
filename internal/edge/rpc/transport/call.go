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

// call is one call of a client: its stream, and the messages that are received. It implements h2.Exchange. It is kept small, like the
// stream.
type call struct {
	h2.Stream
	conn       *clientConn
	session    *session // nil without one
	headerSent bool     // owned by the goroutine that sends
	hasTimeout bool

	in inbox

	// From the header; not changed after Begin.
	method   *Method
	metadata *received  // nil if the call is rejected
	special  *special   // nil for most calls
	rejected *rejection // nil unless it is rejected

	// Owned by the goroutine that sends.
	out *outMetadata // nil if the handler sends none

	// Of a call that begin has got.
	request any
	arrived time.Duration // after epoch

	timeout time.Duration // from the header, if hasTimeout
}

// epoch is the time that call.arrived counts from.
var epoch = time.Now()

// special is what few calls have. It is made by the reader, or by the handler before it sends.
type special struct {
	subtype    string // of the content type
	received   string // the encoding of messages that are received
	compressor encoding.Compressor
	sent       string          // the encoding of answers; owned by the goroutine that sends
	tagged     context.Context // the call with what a stats handler adds
}

// plain is what the other calls have.
var plain special

// peekSpecial returns what is special about the call. It must not be changed.
func (c *call) peekSpecial() *special {
	if c.special == nil {
		return &plain
	}
	return c.special
}

// makeSpecial returns what is special about the call, to be changed.
func (c *call) makeSpecial() *special {
	if c.special == nil {
		c.special = &special{}
	}
	return c.special
}

// receivesPlain reports whether the messages of the client are not compressed, sendsPlain the same of answers.
func (c *call) receivesPlain() bool {
	return c.special == nil || c.special.received == "" || c.special.received == encoding.Identity
}

func (c *call) sendsPlain() bool {
	return c.special == nil || c.special.sent == "" || c.special.sent == encoding.Identity
}

// SendUncompressed disables compression of the answers of a call. A compressed answer is in memory of the transport,
// which no lender counts. A stream must call it before its first answer. Calls made in this process are never compressed.
func SendUncompressed(ctx context.Context) {
	if c, ok := ctx.Value(callKey{}).(*call); ok && !c.headerSent {
		c.makeSpecial().sent = encoding.Identity
	}
}

// rejection is why a call is answered without running a handler.
type rejection struct {
	err    error
	http   int  // the status, 0 for 200
	noType bool // the client is none of gRPC: its request has no content type
	asText bool // it gets the reason as text
	// foreign: the request is none of gRPC, by its content type.
	foreign bool
}

// noType reports whether the client is none of gRPC.
func (c *call) noType() bool { return c.rejected != nil && c.rejected.noType }

type callKey struct{}

// Value implements context.Context.
func (c *call) Value(key any) any {
	switch {
	case key == any(callKey{}):
		return c
	case c.metadata == nil:
		return c.conn.values.Value(key)
	}
	return c.metadata.values.Value(key)
}

// Base implements h2.Exchange.
func (c *call) Base() *h2.Stream { return &c.Stream }

// Start implements h2.Exchange. A call with one request runs when that is complete, so that a slow client occupies no
// goroutine.
func (c *call) Start() {
	if c.rejected != nil {
		c.in.failed = true
		if !c.rejected.noType { // otherwise at its end, as an HTTP server does
			_, whole := c.trailer(c.rejected.err)
			c.Reject(nil, nil, whole)
		}
		return
	}
	if c.hasTimeout {
		c.SetDeadline(c.timeout, lateHeaders)
	}
	switch {
	case c.method.Open != nil:
		c.runSession()
	case c.method.ClientStreams:
		c.run()
	}
}

// run runs the handler, unless the call has ended already.
func (c *call) run() {
	if !c.Hold() {
		return
	}
	s := c.conn.server
	s.handlers.Add(1)
	s.conns.Workers.Run(c.serve)
}

// serve runs the handler and ends the call.
func (c *call) serve() {
	s := c.conn.server
	defer s.handlers.Done()
	end := c.report()
	var err error
	if c.method.Stream != nil {
		err = c.serveStream()
	} else {
		err = c.serveUnary()
	}
	if end != nil {
		end(err)
	}
}

// serveUnary answers the request.
func (c *call) serveUnary() error {
	request := c.request // nil unless begin has decoded it
	if request == nil {
		request = c.method.NewRequest()
		if err := c.RecvMsg(request); err != nil {
			return c.end(err)
		}
		c.noteCall()
	}
	response, err := c.method.Unary(c.Context(), request)
	if err != nil {
		return c.end(err)
	}
	head, data, err := c.encode(response)
	if err != nil {
		return c.end(err)
	}
	c.Answer(c.header(), head, data, c.ok())
	return nil
}

// serveStream runs the handler of a stream.
func (c *call) serveStream() error {
	c.noteCall()
	return c.end(c.method.Stream(c))
}

// end ends the call with the status of an error.
func (c *call) end(err error) error {
	c.beginAnswer()
	if err == nil {
		c.Finish(c.ok(), c.empty())
		return nil
	}
	if _, ok := status.FromError(err); !ok {
		err = status.FromContextError(err).Err()
	}
	c.Finish(c.trailer(err))
	return err
}

// noteCall runs what was requested for the first call of a connection.
func (c *call) noteCall() { c.conn.client.noteCall() }

// Context implements Stream.
func (c *call) Context() context.Context {
	if c.special == nil || c.special.tagged == nil {
		return c
	}
	return c.special.tagged
}

// SendMsg implements Stream.
func (c *call) SendMsg(m any) error { return c.send(m, false) }

// send is SendMsg. more says that another message follows at once.
func (c *call) send(m any, more bool) error {
	head, data, err := c.encode(m)
	if err != nil {
		c.fail(err)
		return err
	}
	var header *h2.Header
	if !c.headerSent {
		header, c.headerSent = c.header(), true
	}
	if c.Send(header, head, data, more) != nil {
		return c.ended()
	}
	return nil
}

// RecvMsg implements Stream.
func (c *call) RecvMsg(m any) error {
	err := c.recv(m)
	if err != nil && err != io.EOF {
		c.fail(err)
	}
	return err
}

// recv is RecvMsg without the end of the call after an error.
func (c *call) recv(m any) error {
	data, err := c.receive()
	if err != nil {
		return err
	}
	size := len(data)
	if err := c.conn.server.o.Codec.Unmarshal(OneBuffer(data), m); err != nil {
		return status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
	}
	if c.conn.server.o.Stats != nil {
		c.conn.server.o.Stats.HandleRPC(c.Context(), &stats.InPayload{RecvTime: time.Now(), Payload: m, Length: size})
	}
	return nil
}

// fail ends the call with an error of receiving or sending, whatever the handler returns later.
func (c *call) fail(err error) { c.Finish(c.trailer(err)) }

// ended returns the status of a call that has ended.
func (c *call) ended() error {
	err := c.Err()
	if err == nil {
		err = context.Canceled // is about to be
	}
	return status.FromContextError(err).Err()
}

// encode encodes an answer, compressed if the client wants that.
func (c *call) encode(m any) (head [5]byte, data mem.BufferSlice, err error) {
	data, err = c.conn.server.o.Codec.Marshal(m)
	if err != nil {
		return head, nil, status.Errorf(codes.Internal, "grpc: error while marshaling: %v", err.Error())
	}
	size := data.Len()
	if !c.sendsPlain() && size > 0 {
		compressed, err := compress(c.special.compressor, data)
		data.Free()
		if err != nil {
			return head, nil, status.Errorf(codes.Internal, "grpc: error while compressing: %v", err.Error())
		}
		head[0], data = 1, compressed
	}
	n := data.Len()
	if n > maxSend {
		data.Free()
		return head, nil, status.Errorf(codes.ResourceExhausted, "trying to send message larger than max (%d vs. %d)", n, maxSend)
	}
	binary.BigEndian.PutUint32(head[1:], uint32(n))
	if c.conn.server.o.Stats != nil {
		c.conn.server.o.Stats.HandleRPC(c.Context(), &stats.OutPayload{Payload: m, Length: size, CompressedLength: n, WireLength: n + len(head), SentTime: time.Now()})
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
