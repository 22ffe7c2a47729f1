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
)

// firstAlloc is how much memory a message gets before more of it has arrived: the length that a client announces costs
// nothing.
const firstAlloc = 32 << 10

// inbox collects the messages of a client.
type inbox struct {
	// Owned by the reader.
	head   [messageHead]byte
	nhead  uint8
	failed bool  // the rest is dropped
	count  uint8 // complete messages, at most 2
	want   int   // bytes of the message
	data   []byte

	// receiving: a worker passes the messages to a Session, or the last one was passed. The reader sets it; a worker ends it under mu.
	receiving atomic.Bool

	first [1]inMessage // room for a list of one

	mu struct {
		sync.Mutex
		list  []inMessage
		ended error         // after the last message; nil before the end
		wake  chan struct{} // receives after a change; nil if nothing waits
	}
}

// inMessage is a message as it was received.
type inMessage struct {
	flag     byte
	occupies bool // messageCost, besides its bytes
	data     []byte
}

// A client may send many messages of a few bytes before a stream takes them. Those beyond freeMessages count with messageCost, which is
// about what a message takes in the list.
const (
	freeMessages = 16
	messageCost  = 48
)

// Receive implements h2.Exchange.
func (c *call) Receive(r io.Reader, n int) error {
	in := &c.in
	for n > 0 {
		if in.failed {
			_, err := io.CopyN(io.Discard, r, int64(n))
			if c.noType() {
				c.Taken(n) // it is answered at its end
			}
			return err
		}
		if rest := in.head[in.nhead:]; len(rest) > 0 {
			k := min(len(rest), n)
			if _, err := io.ReadFull(r, rest[:k]); err != nil {
				return err
			}
			n -= k
			if in.nhead += uint8(k); k < len(rest) {
				return nil
			}
			c.beginMessage(n)
		}
		if in.failed {
			continue
		}
		k := min(n, in.want-len(in.data))
		have := len(in.data)
		in.grow(have + k)
		if _, err := io.ReadFull(r, in.data[have:]); err != nil {
			return err
		}
		n -= k
		if len(in.data) == in.want {
			c.endMessage()
		}
	}
	return nil
}

// grow makes the message n bytes long.
func (in *inbox) grow(n int) {
	if n > cap(in.data) {
		bigger := make([]byte, n, min(in.want, max(2*n, firstAlloc)))
		copy(bigger, in.data)
		in.data = bigger
		return
	}
	in.data = in.data[:n]
}

// beginMessage begins a message whose first five bytes are there, of which n more bytes can be read.
func (c *call) beginMessage(n int) {
	in := &c.in
	length := binary.BigEndian.Uint32(in.head[1:])
	if most := c.conn.server.o.MaxMessageBytes; int64(length) > int64(most) {
		c.endInbox(status.Errorf(codes.ResourceExhausted, "grpc: received message larger than max (%d vs. %d)", length, most))
		return
	}
	in.want, in.data = int(length), nil
	if c.session == nil && in.want <= cap(c.conn.spare) {
		in.data, c.conn.spare = c.conn.spare, nil
	}
	if in.want <= n && in.want <= len(c.conn.brief) && c.session != nil && c.session.answersNow(in) {
		in.data = c.conn.brief[:0] // endMessage is called before the next message of the connection
	}
	c.Expect(in.want - n)
}

// endMessage passes a complete message on.
func (c *call) endMessage() {
	in := &c.in
	m := inMessage{flag: in.head[0], data: in.data}
	in.nhead, in.data = 0, nil
	in.count = min(in.count+1, 2)
	if c.session != nil {
		if c.answerNow(m) {
			return
		}
		if cap(m.data) == len(c.conn.brief) {
			m.data = bytes.Clone(m.data) // it may be in brief
		}
	}
	in.mu.Lock()
	if m.occupies = len(in.mu.list) >= freeMessages; m.occupies {
		c.Occupy(messageCost)
	}
	if in.mu.list == nil {
		in.mu.list = in.first[:0]
	}
	in.mu.list = append(in.mu.list, m)
	in.notify()
	in.mu.Unlock()
	c.wakeReceiver()
	if in.count > 1 && !c.method.ClientStreams {
		c.endInbox(io.EOF) // it has failed: receive notices that there are two
	}
}

// EndReceive implements h2.Exchange.
func (c *call) EndReceive() {
	switch {
	case c.noType() && c.rejected.asText:
		trailer, _ := c.trailer(c.rejected.err)
		c.Reject(textHeader, []byte(noClientText), trailer)
		return
	case c.noType():
		_, whole := c.trailer(c.rejected.err)
		c.Reject(nil, nil, whole)
		return
	}
	if c.in.failed {
		return
	}
	if c.in.nhead > 0 {
		c.endInbox(status.Error(codes.Internal, io.ErrUnexpectedEOF.Error()))
		return
	}
	c.endInbox(io.EOF)
}

// endInbox notes that no more messages follow, and why. It runs a handler that has waited for its request.
func (c *call) endInbox(err error) {
	in := &c.in
	in.failed = true
	in.mu.Lock()
	in.mu.ended = err
	in.notify()
	in.mu.Unlock()
	c.wakeReceiver()
	if !c.method.ClientStreams && (err != io.EOF || !c.begin()) {
		c.run()
	}
}

// notify wakes the receiver. mu is held.
func (in *inbox) notify() {
	if in.mu.wake != nil {
		select {
		case in.mu.wake <- struct{}{}:
		default:
		}
	}
}

// receive returns the next message, decompressed.
func (c *call) receive() ([]byte, error) {
	in := &c.in
	in.mu.Lock()
	for len(in.mu.list) == 0 && in.mu.ended == nil {
		if in.mu.wake == nil {
			in.mu.wake = make(chan struct{}, 1)
		}
		wake := in.mu.wake
		in.mu.Unlock()
		select {
		case <-wake:
		case <-c.Done():
			return nil, c.ended()
		}
		in.mu.Lock()
	}
	ended, waiting := in.mu.ended, len(in.mu.list)
	var m inMessage
	if waiting > 0 {
		m = in.mu.list[0]
		in.mu.list[0] = inMessage{}
		if in.mu.list = in.mu.list[1:]; len(in.mu.list) == 0 && (c.session != nil || cap(in.mu.list) > freeMessages) {
			in.mu.list = nil // an idle stream needs no memory for it
		}
	}
	in.mu.Unlock()
	if m.occupies {
		c.Vacate(messageCost)
	}
	if c.Err() != nil {
		return nil, c.ended()
	}
	if waiting == 0 {
		if ended == io.EOF && !c.method.ClientStreams && in.count == 0 {
			return nil, status.Error(codes.Internal, "cardinality violation: received no request message from non-client-streaming RPC")
		}
		return nil, ended
	}
	if !c.method.ClientStreams {
		switch {
		case waiting > 1:
			return nil, status.Error(codes.Internal, "cardinality violation: received multiple request messages for non-client-streaming RPC")
		case ended != io.EOF:
			return nil, ended
		}
	}
	c.Taken(len(in.head) + len(m.data))
	return c.open(m)
}

// open returns the content of a message.
func (c *call) open(m inMessage) ([]byte, error) {
	switch m.flag {
	case 0:
		return m.data, nil
	case 1:
	default:
		return nil, status.Errorf(codes.Internal, "grpc: received unexpected payload format %d", m.flag)
	}
	if c.receivesPlain() {
		return nil, status.Error(codes.Internal, "grpc: compressed flag set with identity or empty encoding")
	}
	most := c.conn.server.o.MaxMessageBytes
	r, err := c.special.compressor.Decompress(mem.BufferSlice{mem.SliceBuffer(m.data)}.Reader())
	if err != nil {
		return nil, status.Errorf(codes.Internal, "grpc: failed to decompress the message: %v", err)
	}
	if closer, ok := r.(io.Closer); ok {
		defer closer.Close()
	}
	out, err := io.ReadAll(io.LimitReader(r, int64(most)+1))
	switch {
	case err != nil:
		return nil, status.Errorf(codes.Internal, "grpc: failed to read decompressed data: %v", err)
	case len(out) > most:
		return nil, status.Errorf(codes.ResourceExhausted, "grpc: received message after decompression larger than max %d", most)
	}
	return out, nil
}
