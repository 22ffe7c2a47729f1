package h2

import (
	"bytes"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/mem"
)

// countedBuffer is a buffer that counts how often it is freed.
type countedBuffer struct {
	mem.SliceBuffer
	freed *int
}

func (b countedBuffer) Free() { *b.freed++ }

// randomMessage returns a message, and what a client receives of it.
func randomMessage(random *rand.Rand, buffers, freed *int) (m message, n int, bytes []byte) {
	if random.IntN(3) > 0 {
		m.nhead = uint8(random.IntN(headSize + 1))
		for i := range m.head {
			m.head[i] = byte(random.Uint32())
		}
		bytes = append(bytes, m.head[headSize-int(m.nhead):]...)
	}
	for range random.IntN(4) {
		b := make([]byte, random.IntN(1<<random.IntN(16)))
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		m.data = append(m.data, countedBuffer{b, freed})
		*buffers++
		bytes = append(bytes, b...)
	}
	return m, len(bytes), bytes
}

// content returns the bytes of a batch as they are written.
func content(b *batch) []byte { return bytes.Join(b.vector(), nil) }

// TestSendQueue: the bytes of messages leave in order, whatever the sizes of the pieces, and each
// buffer is freed once.
func TestSendQueue(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for round := range 200 {
		var q sendQueue
		var want, got []byte
		buffers, freed := 0, 0
		for range 1 + random.IntN(10) {
			m, n, b := randomMessage(random, &buffers, &freed)
			q.addMessage(nil, m, n)
			want = append(want, b...)
		}
		b := &batch{inPlace: random.IntN(2) == 0}
		for stop := random.IntN(len(want) + 1); len(got) < stop; {
			q.moveBytes(b, 1+random.IntN(stop-len(got)))
			got = append(got, content(b)...)
			b.clear()
		}
		if !bytes.Equal(got, want[:len(got)]) || q.bytes != len(want)-len(got) {
			t.Fatalf("seed %d, round %d: %d bytes are not those of the messages, %d of %d are left",
				seed, round, len(got), q.bytes, len(want))
		}
		writing := random.IntN(2) == 0
		inUse := q.discardMessages(writing)
		if !writing && len(inUse) > 0 || len(inUse) > 1 {
			t.Fatalf("seed %d, round %d: %d buffers are kept for a write, which there is: %v", seed,
				round, len(inUse), writing)
		}
		inUse.Free()
		if freed > buffers || freed < buffers-1 && len(got) == len(want) {
			t.Fatalf("seed %d, round %d: %d of %d buffers were freed", seed, round, freed, buffers)
		}
	}
}

// schedulerClient receives what a scheduler writes, and holds it to the windows.
type schedulerClient struct {
	t      *testing.T
	frames *http2.Framer
	in     bytes.Buffer
	window int64
	stream map[uint32]*receivedStream
}

type receivedStream struct {
	window  int64
	body    []byte
	headers int
	ended   bool
}

func newSchedulerClient(t *testing.T, streams []*Stream) *schedulerClient {
	c := &schedulerClient{t: t, window: initialWindow, stream: map[uint32]*receivedStream{}}
	c.frames = http2.NewFramer(nil, &c.in)
	c.frames.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for _, s := range streams {
		c.stream[s.id] = &receivedStream{window: s.out.window}
	}
	return c
}

func (c *schedulerClient) receive(b *batch) {
	c.t.Helper()
	c.in.Write(content(b))
	for {
		f, err := c.frames.ReadFrame()
		if err == io.EOF {
			return
		}
		if err != nil {
			c.t.Fatal(err)
		}
		r := c.stream[f.Header().StreamID]
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			if r.headers++; r.ended {
				c.t.Fatalf("headers after the end of stream %d", f.StreamID)
			}
			r.ended = f.StreamEnded()
		case *http2.DataFrame:
			n := int64(len(f.Data()))
			r.window -= n
			c.window -= n
			if r.ended || r.headers == 0 || r.window < 0 || c.window < 0 || n > maxFrame {
				c.t.Fatalf("%d bytes on stream %d, whose window is %d, that of the connection %d",
					n, f.StreamID, r.window, c.window)
			}
			r.body = append(r.body, f.Data()...)
			r.ended = f.StreamEnded()
		}
	}
}

// TestScheduler: whatever streams queue and a client allows, every byte is written once and in
// order, within the windows.
func TestScheduler(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	header := &Header{Fields: []hpack.HeaderField{{Name: ":status", Value: "200"}}, Common: true}
	trailer := &Header{Fields: []hpack.HeaderField{{Name: "grpc-status", Value: "0"}}, Common: true}
	d := newScheduler()
	var streams []*Stream
	sent := map[uint32][]byte{}
	buffers, freed := 0, 0
	for i := range uint32(20) {
		s := &Stream{id: 2*i + 1, state: halfIdle}
		s.out.window = random.Int64N(200_000)
		streams = append(streams, s)
	}
	c := newSchedulerClient(t, streams)
	write := func() {
		b := &batch{inPlace: random.IntN(2) == 0}
		d.takeFrames(b)
		for b.len() < batchBytes {
			s := d.nextTurn()
			if s == nil {
				break
			}
			if d.writeTurn(b, s) == turnLast {
				s.state.move(streamRemove)
				d.unschedule(s)
				s.out.discardMessages(true).Free()
			}
		}
		c.receive(b)
		b.clear()
	}
	for range 3000 {
		s := streams[random.IntN(len(streams))]
		switch random.IntN(5) {
		case 0, 1:
			if !s.state.sends() {
				break
			}
			m, n, b := randomMessage(random, &buffers, &freed)
			var h *Header
			if !s.out.begun {
				h = header
			}
			s.out.addMessage(h, m, n)
			sent[s.id] = append(sent[s.id], b...)
			d.schedule(s)
		case 2:
			n := random.Int64N(100_000)
			if !s.state.gone() && d.openStreamWindow(s, n) {
				c.stream[s.id].window += n
			}
		case 3:
			n := random.Int64N(100_000)
			if d.openWindow(n) {
				c.window += n
			}
		case 4:
			write()
		}
		if random.IntN(1000) == 0 && s.out.begun && s.state.sends() {
			s.state.move(streamFinish)
			s.out.trailer = trailer
			d.schedule(s)
		}
	}
	// The client opens everything.
	d.openWindow(1 << 30)
	c.window += 1 << 30
	for _, s := range streams {
		if s.state.gone() {
			continue
		}
		d.openStreamWindow(s, 1<<28)
		c.stream[s.id].window += 1 << 28
		if s.state.sends() && s.out.begun {
			s.state.move(streamFinish)
			s.out.trailer = trailer
			d.schedule(s)
		}
	}
	for d.hasOutput() {
		write()
	}
	for _, s := range streams {
		if r := c.stream[s.id]; !bytes.Equal(r.body, sent[s.id]) ||
			s.out.begun && (!r.ended || r.headers != 2) {
			t.Errorf("seed %d: stream %d: %d of %d bytes, %d headers, ended %v", seed, s.id,
				len(r.body), len(sent[s.id]), r.headers, r.ended)
		}
	}
	if freed != buffers {
		t.Errorf("seed %d: %d of %d buffers were freed", seed, freed, buffers)
	}
}

// TestSchedulerTurns: streams have turns of a frame each, those first that have waited for the
// window of the connection.
func TestSchedulerTurns(t *testing.T) {
	d := newScheduler()
	var streams []*Stream
	for i := range uint32(4) {
		s := &Stream{id: 2*i + 1, state: halfIdle}
		s.out.window = 1 << 20
		s.out.addMessage(nil,
			message{data: mem.BufferSlice{mem.SliceBuffer(make([]byte, 3*maxFrame))}}, 3*maxFrame)
		streams = append(streams, s)
	}
	turns := func(n int) (ids []uint32) {
		for range n {
			s := d.nextTurn()
			if s == nil {
				return ids
			}
			d.writeTurn(&batch{}, s)
			ids = append(ids, s.id)
		}
		return ids
	}
	equal := func(got []uint32, want ...uint32) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Fatalf("turns of %v, want %v", got, want)
		}
	}
	d.window = 5 * maxFrame
	for _, s := range streams[:3] {
		d.schedule(s)
	}
	equal(turns(10), 1, 3, 5, 1, 3, 5, 1) // the last two find the window of the connection used up
	d.schedule(streams[3])
	d.openWindow(100 * maxFrame)
	equal(turns(10), 3, 5, 1, 7, 5, 7, 7)
}
