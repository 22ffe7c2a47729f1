package rpc

import (
	"google.golang.org/grpc/mem"

	"vigil/internal/edge/rpc/wire"
)

// shareFrom is the size from which an event is handed to the transport as it is. Copying a smaller
// one costs no more than another buffer does.
const shareFrom = 2 << 10

// watchMessage is an encoded WatchResponse.
type watchMessage struct{ buffers mem.BufferSlice }

// encodeWatch encodes the first responses of list: as many as have the same events, which are then
// encoded once, or one. Watchers of one stream that get the same come one after another. Nothing that
// is shared is from a pool, so no count of references is kept.
func encodeWatch(list []wire.WatchResponse) []watchMessage {
	n := 1
	for n < len(list) && sameEvents(list[0].Events, list[n].Events) {
		n++
	}
	out := make([]watchMessage, n)
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
			buffers = append(append(buffers, mem.SliceBuffer(front[at:len(front):len(front)])), tail...)
			out[i].buffers = buffers[from:len(buffers):len(buffers)]
		}
	case hasLarge(first.Events):
		out[0].buffers = sliceBuffers(first.Parts(make([][]byte, 0, 2*len(first.Events)+1), shareFrom))
	default:
		out[0].buffers = whole(first)
	}
	return out
}

// sameEvents reports whether a and b are the same slice, and not empty.
func sameEvents(a, b [][]byte) bool { return len(a) > 0 && len(a) == len(b) && &a[0] == &b[0] }

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

// sliceBuffers hands memory to the transport that is never reused. Events belong to the hub.
func sliceBuffers(parts [][]byte) mem.BufferSlice {
	out := make(mem.BufferSlice, len(parts))
	for i, p := range parts {
		out[i] = mem.SliceBuffer(p)
	}
	return out
}
