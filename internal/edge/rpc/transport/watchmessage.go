package transport

import (
	"google.golang.org/grpc/mem"

	"vigil/internal/edge/rpc/wire"
)

// shareFrom is the smallest event, in bytes, that is sent without copying it. Copying a smaller
// event costs no more than an additional buffer.
const shareFrom = 2 << 10

// Encoded is an encoded WatchResponse for SendMsg.
type Encoded struct{ buffers mem.BufferSlice }

// Len returns the size in bytes, 0 after the message was sent.
func (e *Encoded) Len() int { return e.buffers.Len() }

// encodeWatch encodes the first responses of list: all that share their events, which it encodes
// once, or a single one. Watchers of a stream that get the same events are next to each other in a
// list. Shared memory never comes from a pool, so it needs no reference counts.
func encodeWatch(list []wire.WatchResponse) []Encoded {
	n := 1
	for n < len(list) && shareEvents(list[0].Events, list[n].Events) {
		n++
	}
	out := make([]Encoded, n)
	first := &list[0]
	switch {
	case n > 1:
		fronts := 0
		for i := range out {
			fronts += list[i].SizeFront()
		}
		front := make([]byte, 0, fronts)
		tail := eventBuffers(first.Events)
		buffers := make(mem.BufferSlice, 0, n*(1+len(tail)))
		for i := range out {
			at, from := len(front), len(buffers)
			front = list[i].AppendFront(front)
			buffers = append(append(buffers, mem.SliceBuffer(front[at:len(front):len(front)])),
				tail...)
			out[i].buffers = buffers[from:len(buffers):len(buffers)]
		}
	case hasLarge(first.Events):
		out[0].buffers = sliceBuffers(first.Parts(make([][]byte, 0,
			2*len(first.Events)+1), shareFrom))
	default:
		out[0].buffers = encodeWhole(first)
	}
	return out
}

// splitByWatcher returns one response for each watcher.
func splitByWatcher(list []wire.WatchResponse) []wire.WatchResponse {
	var all []wire.WatchResponse
	for i := range list {
		for k := range list[i].Count() {
			all = append(all, list[i].One(k))
		}
	}
	return all
}

// shareEvents reports whether a and b are the same slice, and not empty.
func shareEvents(a, b [][]byte) bool { return len(a) > 0 && len(a) == len(b) && &a[0] == &b[0] }

func hasLarge(events [][]byte) bool {
	for _, ev := range events {
		if len(ev) >= shareFrom {
			return true
		}
	}
	return false
}

func eventBuffers(events [][]byte) mem.BufferSlice {
	n := 1
	if hasLarge(events) {
		n += 2 * len(events)
	}
	return sliceBuffers(wire.EventParts(make([][]byte, 0, n), events, shareFrom))
}

// sliceBuffers wraps memory that is never reused, such as events, which belong to the hub.
func sliceBuffers(parts [][]byte) mem.BufferSlice {
	out := make(mem.BufferSlice, len(parts))
	for i, p := range parts {
		out[i] = mem.SliceBuffer(p)
	}
	return out
}
