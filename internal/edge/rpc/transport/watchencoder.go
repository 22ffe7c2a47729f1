package transport

import (
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"vigil/internal/edge/rpc/wire"
)

// WatchEncoder encodes the responses of watch streams. Watchers of one key usually have the same
// ids on their streams, so it keeps the last encoding for streams that get equal responses. The
// zero value is ready. One goroutine at a time uses it.
type WatchEncoder struct {
	last  []wire.WatchResponse
	data  mem.BufferSlice // of last
	bytes int
}

// Queue queues responses for a client. Only Session.Fill may call it. It returns how many responses
// it has queued, their bytes, and whether there is room for more.
func (e *WatchEncoder) Queue(p Peer, list []wire.WatchResponse) (sent, bytes int,
	room bool, err error) {
	return p.queueWatch(e, list)
}

// frameResponses encodes responses, each after its message head. It returns their size without the
// heads.
func (e *WatchEncoder) frameResponses(list []wire.WatchResponse) (data mem.BufferSlice,
	bytes int, err error) {
	if len(e.data) > 0 && slices.EqualFunc(list, e.last, sameResponse) {
		e.data.Ref()
		return slices.Clone(e.data), e.bytes, nil
	}
	data, bytes, err = frameWatch(list)
	if err == nil {
		e.keepLast(list, data, bytes)
	}
	return data, bytes, err
}

// keepLast keeps encoded responses if they are small and other streams may get them too. It
// releases those that it kept before.
func (e *WatchEncoder) keepLast(list []wire.WatchResponse, data mem.BufferSlice, bytes int) {
	e.data.Free()
	clear(e.last)
	clear(e.data)
	e.last, e.data = e.last[:0], e.data[:0]
	if bytes > maxPooled || len(list[0].Events) == 0 {
		return
	}
	data.Ref()
	e.last, e.data, e.bytes = append(e.last, list...), append(e.data, data...), bytes
}

// sameResponse reports whether two responses with events have the same encoding.
func sameResponse(a, b wire.WatchResponse) bool {
	return shareEvents(a.Events, b.Events) && a.WatchID == b.WatchID && a.Header == b.Header &&
		a.Fragment == b.Fragment &&
		a.Created == b.Created && a.Canceled == b.Canceled &&
		a.CompactRevision == b.CompactRevision && a.Reason == b.Reason &&
		slices.Equal(a.Also, b.Also)
}

// frameBytes is about how many bytes of small messages share a buffer.
const frameBytes = 32 << 10

// frameWatch encodes responses, each after its message head. It returns their size without the
// heads.
func frameWatch(list []wire.WatchResponse) (out mem.BufferSlice, bytes int, err error) {
	for len(list) > 0 {
		if hasLarge(list[0].Events) {
			data, n, err := frameLarge(&list[0])
			if err != nil {
				out.Free()
				return nil, 0, err
			}
			out = append(out, data...)
			bytes += n
			list = list[1:]
			continue
		}
		n, size, messages := 0, 0, 0
		for n < len(list) && (n == 0 || size < frameBytes && !hasLarge(list[n].Events)) {
			size += list[n].SizeEach() + list[n].Count()*messageHead
			messages += list[n].Count()
			n++
		}
		var buf *[]byte
		pooled := !mem.IsBelowBufferPoolingThreshold(size) && size <= maxPooled
		if pooled {
			buf = pool.Get(size)
		} else {
			buf = new(make([]byte, 0, size))
		}
		*buf = (*buf)[:0]
		for i := range list[:n] {
			*buf = appendMessages(*buf, &list[i])
		}
		if pooled {
			out = append(out, mem.NewBuffer(buf, pool))
		} else {
			out = append(out, mem.SliceBuffer(*buf))
		}
		bytes += size - messages*messageHead
		list = list[n:]
	}
	return out, bytes, nil
}

// frameLarge encodes a response with large events without copying the events.
func frameLarge(m *wire.WatchResponse) (out mem.BufferSlice, bytes int, err error) {
	events := eventBuffers(m.Events)
	tail := events.Len()
	for i := range m.Count() {
		one := m.One(i)
		size := one.SizeFront() + tail
		if size > maxSend {
			return nil, 0, status.Errorf(codes.ResourceExhausted,
				"trying to send message larger than max (%d vs. %d)", size, maxSend)
		}
		front := appendMessageHead(make([]byte, 0, messageHead+one.SizeFront()), size)
		out = append(append(out, mem.SliceBuffer(one.AppendFront(front))), events...)
		bytes += size
	}
	return out, bytes, nil
}

// messageHead is the size of a message head, in bytes: a flag and the size of the message.
const messageHead = 5

func appendMessageHead(b []byte, size int) []byte {
	return append(b, 0, byte(size>>24), byte(size>>16), byte(size>>8), byte(size))
}

// appendMessages appends the messages of a response, one for each watcher.
func appendMessages(b []byte, m *wire.WatchResponse) []byte {
	at := len(b)
	b = m.AppendTo(appendMessageHead(b, 0))
	putMessageSize(b[at:])
	first := b[at:]
	for i, id := range m.Also {
		at = len(b)
		if m.SameSize(id) {
			b = append(b, first...)
			m.PutWatchID(b[at+messageHead:], id)
			continue
		}
		one := m.One(1 + i)
		b = one.AppendTo(appendMessageHead(b, 0))
		putMessageSize(b[at:])
	}
	return b
}

// putMessageSize writes the size of a message into its head.
func putMessageSize(b []byte) {
	size := len(b) - messageHead
	b[1], b[2], b[3], b[4] = byte(size>>24), byte(size>>16), byte(size>>8), byte(size)
}
