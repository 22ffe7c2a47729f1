package h2

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// headsOf decompresses every header block of a client and returns the first one of each stream,
// which is that of its request.
func headsOf(data []byte) map[uint32][]hpack.HeaderField {
	out := map[uint32][]hpack.HeaderField{}
	r := http2.NewFramer(nil, bytes.NewReader(data))
	dec := hpack.NewDecoder(4096, nil)
	for {
		frame, err := r.ReadFrame()
		if _, ok := err.(http2.StreamError); ok {
			continue
		}
		if err != nil {
			return out
		}
		first, ok := frame.(*http2.HeadersFrame)
		if !ok {
			continue
		}
		id, ended, block := first.StreamID, first.HeadersEnded(),
			bytes.Clone(first.HeaderBlockFragment())
		for !ended {
			if frame, err = r.ReadFrame(); err != nil {
				return out
			}
			next, ok := frame.(*http2.ContinuationFrame)
			if !ok {
				return out
			}
			ended, block = next.HeadersEnded(), append(block, next.HeaderBlockFragment()...)
		}
		fields, err := dec.DecodeFull(block)
		if err != nil {
			return out
		}
		if _, ok := out[id]; !ok {
			out[id] = fields
		}
	}
}

// notedHead is the head of a request as a Handler has got it.
type notedHead struct {
	stream       *Stream
	method, path string
	fields       []hpack.HeaderField
	repeated     bool
}

// notedHeads is a Handler that notes the heads of requests.
type notedHeads struct {
	Handler
	list []notedHead
}

func (n *notedHeads) Begin(r *Request) Exchange {
	x := n.Handler.Begin(r)
	n.list = append(n.list,
		notedHead{x.Base(), r.Method, r.Path, slices.Clone(r.Fields), r.Repeated})
	return x
}

// check compares the heads with what a client has sent.
func (n *notedHeads) check(t *testing.T, data []byte) {
	t.Helper()
	sent := headsOf(data)
	for i, h := range n.list {
		id := h.stream.ID()
		want, ok := sent[id]
		if !ok || !slices.Equal(h.fields, want) {
			t.Errorf("request %d has the header %v, sent was %v, %v", id, h.fields, want, ok)
		}
		for _, f := range want {
			if f.Name == ":method" && f.Value != h.method || f.Name == ":path" &&
				f.Value != h.path {
				t.Errorf("request %d is %s %s, sent was %v", id, h.method, h.path, want)
			}
		}
		if h.repeated && (i == 0 || h.path != n.list[i-1].path || h.method != n.list[i-1].method ||
			!slices.Equal(h.fields, n.list[i-1].fields)) {
			t.Errorf("request %d with %v is said to repeat the one before", id, h.fields)
		}
	}
}

// randomHeads are the frames of a client whose header blocks are new, repeated, or repeated after
// the table has changed: blocks of requests, also of rejected ones, of trailers, and of
// streams that have ended.
func randomHeads(r *rand.Rand) []byte {
	var b, head bytes.Buffer
	w := http2.NewFramer(&b, nil)
	w.AllowIllegalWrites = true
	enc := hpack.NewEncoder(&head)
	_ = w.WriteSettings() // a buffer does not fail
	var blocks [][]byte
	compress := func(fields ...string) {
		head.Reset()
		for i := 0; i < len(fields); i += 2 {
			_ = enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1],
				Sensitive: r.IntN(30) == 0})
		}
		blocks = append(blocks, bytes.Clone(head.Bytes()))
	}
	next := uint32(1)
	for i := range 40 + r.IntN(100) {
		known := len(blocks)
		switch k := r.IntN(20); {
		case k < 3 || i == 0:
			fields := []string{":method", []string{"POST", "GET"}[r.IntN(2)], ":scheme", "http",
				":path", []string{"/prompt", "/later", "/never", "/echo", "/0"}[r.IntN(5)]}
			for range r.IntN(4) {
				fields = append(fields,
					[]string{"authorization", "name", "content-length"}[r.IntN(3)],
					fmt.Sprint(r.IntN(3)))
			}
			compress(fields...)
		case k < 4:
			compress("x", fmt.Sprint(r.IntN(5)))
		case k < 5:
			enc.SetMaxDynamicTableSize([]uint32{0, 200, 200, 4096, 4096}[r.IntN(5)])
		case k < 6 && r.IntN(3) == 0: // it may mean other fields now, or none
			blocks = append(blocks, blocks[r.IntN(len(blocks))])
		case next == 1:
		case k < 7:
			_ = w.WriteRSTStream(next-2, http2.ErrCodeCancel)
		case k < 8:
			_ = w.WriteData(next-2, r.IntN(2) == 0, []byte("body"))
		}
		block, times := blocks[len(blocks)-1], r.IntN(4)
		if len(blocks) > known {
			times++ // it may have changed the table
		}
		// otherwise the encoder does not know the table any more
		if !allIndexed(block) && r.IntN(20) > 0 {
			times = min(times, len(blocks)-known)
		}
		for range times {
			id := next
			switch r.IntN(20) {
			case 0: // trailers, or headers of a stream that has ended
				id = max(next, 3) - 2
			case 1:
				next += 4
				id = next - 2
			default:
				next += 2
			}
			p := http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true,
				EndStream: r.IntN(3) > 0}
			if r.IntN(5) == 0 {
				p.PadLength = uint8(r.IntN(20))
			}
			if r.IntN(5) == 0 {
				p.Priority = http2.PriorityParam{StreamDep: id - r.Uint32N(2), Weight: 1}
			}
			if r.IntN(5) > 0 {
				_ = w.WriteHeaders(p)
				continue
			}
			at := r.IntN(len(block) + 1)
			p.BlockFragment, p.EndHeaders = block[:at], false
			_ = w.WriteHeaders(p)
			_ = w.WriteContinuation(id, true, block[at:])
		}
	}
	return b.Bytes()
}

// TestHeads: a handler gets the header that was sent, also if that was not decompressed again.
func TestHeads(t *testing.T) {
	requests, repeated := 0, 0
	for seed := range uint64(500) {
		data := randomHeads(rand.New(rand.NewPCG(seed, 1)))
		n := serveBytes(t, 255, data)
		requests += len(n.list)
		for _, h := range n.list {
			if h.repeated {
				repeated++
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if t.Logf("%d requests, of which %d repeat the one before", requests,
		repeated); repeated < requests/10 || repeated == 0 {
		t.Error("too few requests repeat the one before")
	}
}
