package h2

import "google.golang.org/grpc/mem"

// headSize is the largest number of bytes in front of the buffers of one Send.
const headSize = 5

// sendQuota is how many bytes of a stream may be queued. A sender waits while there are more.
const sendQuota = 64 << 10

// bodyQuota is the same for bodies without messages: the next part is queued when the one before is on its way.
const bodyQuota = 1

// sendQueue is what a stream has to send. It is guarded by link.mu.
type sendQueue struct {
	window   int64   // how many bytes the client accepts
	header   *Header // precedes the messages; nil if it is not due
	bytes    int     // in messages
	messages []message
	first    [1]message    // room for one message
	trailer  *Header       // follows the messages of an answer that is complete
	room     chan struct{} // receives when there is room for more; nil if no sender waits
	quota    int32         // sendQuota or bodyQuota, whichever the last sender obeys
	begun    bool          // a header was queued
	source   sourceState
}

// sourceState is what the scheduler knows of a stream that is filled by its Filler.
type sourceState uint8

const (
	sourceEmpty sourceState = iota // Fill has queued all there was
	sourceWoken                    // the stream is in scheduler.sources: there may be more
	sourceFull                     // there may be more, and no room for it
)

// message is a part of a body: a few bytes, and buffers.
type message struct {
	head  [headSize]byte
	nhead uint8 // bytes of the head that were not sent
	data  mem.BufferSlice
	off   int // bytes of the first buffer that were sent
}

// addMessage adds a message of n bytes, after header if that is not nil.
func (q *sendQueue) addMessage(header *Header, m message, n int) {
	if header != nil {
		q.header, q.begun = header, true
	}
	if q.messages == nil {
		q.messages = q.first[:0]
	}
	q.messages = append(q.messages, m)
	q.bytes += n
}

// isFull reports whether a sender must wait for room.
func (q *sendQueue) isFull() bool { return q.bytes >= int(q.quota) }

// wakeSender wakes the sender that waits for room, if there is one.
func (q *sendQueue) wakeSender() {
	if q.room != nil {
		select {
		case q.room <- struct{}{}:
		default:
		}
	}
}

// moveBytes moves the first n bytes to a batch.
func (q *sendQueue) moveBytes(b *batch, n int) {
	q.bytes -= n
	for n > 0 {
		m := &q.messages[0]
		if m.nhead > 0 {
			k := min(int(m.nhead), n)
			from := headSize - int(m.nhead)
			b.own = append(b.own, m.head[from:from+k]...)
			m.nhead -= uint8(k)
			n -= k
		}
		for n > 0 && len(m.data) > 0 {
			buf := m.data[0]
			rest := buf.ReadOnlyData()[m.off:]
			k := min(len(rest), n)
			b.addBuffer(rest[:k])
			n -= k
			if m.off += k; k == len(rest) {
				b.free = append(b.free, buf)
				m.data, m.off = m.data[1:], 0
			}
		}
		if m.nhead == 0 && len(m.data) == 0 {
			*m = message{}
			if q.messages = q.messages[1:]; len(q.messages) == 0 {
				q.messages = q.first[:0]
			}
		}
	}
}

// discardMessages frees all messages. If there is a write, it may refer to buffers of which a part was taken: they are returned, and
// must be freed after it. The others are freed at once, since a client that does not read can let a write wait for long.
func (q *sendQueue) discardMessages(writing bool) (inUse mem.BufferSlice) {
	for i := range q.messages {
		m := &q.messages[i]
		data := m.data
		if writing && m.off > 0 {
			inUse = append(inUse, data[0])
			data = data[1:]
		}
		data.Free()
	}
	q.messages, q.first, q.bytes = nil, [1]message{}, 0
	return inUse
}
