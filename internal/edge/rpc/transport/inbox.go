package transport

import (
	"encoding/binary"
	"io"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// firstAlloc is how much memory, in bytes, a message gets at first. It gets more as it arrives, so
// announcing a large length costs the server nothing.
const firstAlloc = 32 << 10

// inbox collects the messages of a client.
type inbox struct {
	// Owned by the reader.
	head   [messageHead]byte
	nhead  uint8
	failed bool  // drop the rest
	count  uint8 // complete messages, at most 2
	want   int   // bytes of the message
	data   []byte

	first [1]inMessage // memory for a list of one message

	mu struct {
		sync.Mutex
		list  []inMessage
		ended error         // follows the last message; nil before the end
		wake  chan struct{} // receives after a change; nil if nobody waits
	}
}

// inMessage is a message as the client sent it.
type inMessage struct {
	flag     byte
	occupies bool // it counts with messageCost besides its bytes
	data     []byte
}

// A client may send many small messages before a stream takes them. Each message beyond
// freeMessages counts with messageCost bytes, about what it takes in the list.
const (
	freeMessages = 16
	messageCost  = 48
)

// messageSink gets the messages of an inbox.
type messageSink interface {
	// messageMemory returns memory for a message of n bytes, or nil. whole says that all bytes of
	// the message can be read now.
	messageMemory(n int, whole bool) []byte
	// addMessage adds a message that is complete.
	addMessage(m inMessage)
	// endMessages notes that no more messages follow, and why.
	endMessages(err error)
}

// Receive implements h2.Exchange.
func (c *call) Receive(r io.Reader, n int) error { return c.readMessages(r, n, c) }

// readMessages divides the next n bytes of the body into messages.
func (c *call) readMessages(r io.Reader, n int, sink messageSink) error {
	in := &c.in
	for n > 0 {
		if in.failed {
			_, err := io.CopyN(io.Discard, r, int64(n))
			if c.header.hasNoType() {
				c.stream.Taken(n) // EndReceive answers it
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
			c.beginMessage(n, sink)
		}
		if in.failed {
			continue
		}
		k := min(n, in.want-len(in.data))
		have := len(in.data)
		in.growMessage(have + k)
		if _, err := io.ReadFull(r, in.data[have:]); err != nil {
			return err
		}
		n -= k
		if len(in.data) == in.want {
			m := inMessage{flag: in.head[0], data: in.data}
			in.nhead, in.data = 0, nil
			in.count = min(in.count+1, 2)
			sink.addMessage(m)
		}
	}
	return nil
}

// growMessage makes the message n bytes long.
func (in *inbox) growMessage(n int) {
	if n > cap(in.data) {
		bigger := make([]byte, n, min(in.want, max(2*n, firstAlloc)))
		copy(bigger, in.data)
		in.data = bigger
		return
	}
	in.data = in.data[:n]
}

// beginMessage begins a message after its head has arrived. n more bytes can be read now.
func (c *call) beginMessage(n int, sink messageSink) {
	in := &c.in
	length := binary.BigEndian.Uint32(in.head[1:])
	if most := c.conn.server.o.MaxMessageBytes; int64(length) > int64(most) {
		sink.endMessages(status.Errorf(codes.ResourceExhausted,
			"grpc: received message larger than max (%d vs. %d)", length, most))
		return
	}
	in.want = int(length)
	in.data = sink.messageMemory(in.want, in.want <= n)
	c.stream.Expect(in.want - n)
}

// messageMemory implements messageSink.
func (c *call) messageMemory(n int, _ bool) (b []byte) {
	if n <= cap(c.conn.spare) {
		b, c.conn.spare = c.conn.spare, nil
	}
	return b
}

// addMessage implements messageSink.
func (c *call) addMessage(m inMessage) {
	c.listMessage(m)
	if c.in.count > 1 && !c.header.method.ClientStreams {
		c.endMessages(io.EOF) // the call fails: nextMessage sees that there are two
	}
}

// listMessage adds a message to the list for nextMessage.
func (c *call) listMessage(m inMessage) {
	in := &c.in
	in.mu.Lock()
	defer in.mu.Unlock()
	if m.occupies = len(in.mu.list) >= freeMessages; m.occupies {
		c.stream.Occupy(messageCost)
	}
	if in.mu.list == nil {
		in.mu.list = in.first[:0]
	}
	in.mu.list = append(in.mu.list, m)
	in.wakeReceiver()
}

// EndReceive implements h2.Exchange.
func (c *call) EndReceive() {
	switch rejected := c.header.rejected; {
	case rejected == nil || !rejected.noType:
		c.endBody(c)
	case rejected.asText:
		trailer, _ := c.header.errorTrailer(c.out, rejected.err)
		c.stream.Reject(textHeader, []byte(noClientText), trailer)
	default:
		_, whole := c.header.errorTrailer(c.out, rejected.err)
		c.stream.Reject(nil, nil, whole)
	}
}

// endBody ends the messages when the body has ended.
func (c *call) endBody(sink messageSink) {
	switch {
	case c.in.failed:
	case c.in.nhead > 0:
		sink.endMessages(status.Error(codes.Internal, io.ErrUnexpectedEOF.Error()))
	default:
		sink.endMessages(io.EOF)
	}
}

// endMessages implements messageSink. It runs a handler that waits for its request.
func (c *call) endMessages(err error) {
	c.in.noteEnd(err)
	if !c.header.method.ClientStreams && (err != io.EOF || !c.tryBegin()) {
		c.startHandler()
	}
}

// noteEnd notes that no more messages follow, and why.
func (in *inbox) noteEnd(err error) {
	in.failed = true
	in.mu.Lock()
	defer in.mu.Unlock()
	in.mu.ended = err
	in.wakeReceiver()
}

// wakeReceiver wakes nextMessage. mu is held.
func (in *inbox) wakeReceiver() {
	if in.mu.wake != nil {
		select {
		case in.mu.wake <- struct{}{}:
		default:
		}
	}
}

// nextMessage waits for the next message, and returns it decompressed.
func (c *call) nextMessage() ([]byte, error) {
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
			return nil, c.endStatus()
		}
		in.mu.Lock()
	}
	ended, waiting := in.mu.ended, len(in.mu.list)
	var m inMessage
	if waiting > 0 {
		m = in.mu.list[0]
		in.mu.list[0] = inMessage{}
		if in.mu.list = in.mu.list[1:]; len(in.mu.list) == 0 &&
			(c.header.method.Open != nil || cap(in.mu.list) > freeMessages) {
			in.mu.list = nil // an idle stream keeps no memory for it
		}
	}
	in.mu.Unlock()
	if m.occupies {
		c.stream.Vacate(messageCost)
	}
	if c.Err() != nil {
		return nil, c.endStatus()
	}
	if waiting == 0 {
		if ended == io.EOF && !c.header.method.ClientStreams && in.count == 0 {
			return nil, status.Error(codes.Internal,
				"cardinality violation: received no request message from non-client-streaming RPC")
		}
		return nil, ended
	}
	if !c.header.method.ClientStreams {
		switch {
		case waiting > 1:
			return nil, status.Error(codes.Internal,
				"cardinality violation: received multiple request messages for non-client-streaming RPC")
		case ended != io.EOF:
			return nil, ended
		}
	}
	c.stream.Taken(len(in.head) + len(m.data))
	return c.decompressMessage(m)
}

// decompressMessage returns the content of a message.
func (c *call) decompressMessage(m inMessage) ([]byte, error) {
	switch m.flag {
	case 0:
		return m.data, nil
	case 1:
	default:
		return nil, status.Errorf(codes.Internal,
			"grpc: received unexpected payload format %d", m.flag)
	}
	if c.header.receivesPlain() {
		return nil, status.Error(codes.Internal,
			"grpc: compressed flag set with identity or empty encoding")
	}
	most := c.conn.server.o.MaxMessageBytes
	r, err := c.header.special.compressor.Decompress(mem.BufferSlice{mem.SliceBuffer(m.data)}.Reader())
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
		return nil, status.Errorf(codes.ResourceExhausted,
			"grpc: received message after decompression larger than max %d", most)
	}
	return out, nil
}
