package h2

import "google.golang.org/grpc/mem"

// headSize is the size of a message head, in bytes.
const headSize = 5

// sendQuota is how many bytes a stream may have queued. A sender waits while there are more.
const sendQuota = 64 << 10

// bodyQuota is the quota of bodies without messages: the next part is queued when the part before
// is on its way.
const bodyQuota = 1

// sendQueue has the output of a stream. link.mu guards it.
type sendQueue struct {
	window   int64   // how many bytes the client accepts
	header   *Header // precedes the messages; nil if none is due
	bytes    int     // in messages
	messages []message
	first    [1]message    // memory for a queue of one message
	trailer  *Header       // follows the messages once the answer is complete
	room     chan struct{} // receives when there is room; nil if no sender waits
	quota    int32         // sendQuota or bodyQuota, as the last sender chose
	begun    bool          // a header was queued
	source   sourceState
}

// sourceState says what the scheduler knows about a stream whose Filler fills it.
type sourceState uint8

const (
	sourceEmpty sourceState = iota // Fill has queued everything
	sourceWoken                    // the stream is in scheduler.sources and may have more
	sourceFull                     // the stream may have more, and there is no room
)

// message is a part of a body: a head and buffers.
type message struct {
	head  [headSize]byte
	nhead uint8 // bytes of the head that were not sent
	data  mem.BufferSlice
	off   int // bytes of the first buffer that were sent
}

// addMessage adds a message of n bytes, after header if header is not nil.
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

// discardMessages frees all messages. A running write may refer to a buffer that was moved in part:
// discardMessages returns such a buffer, and the caller frees it after the write. It frees all
// others at once, because a write may wait for long if the client does not read.
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
