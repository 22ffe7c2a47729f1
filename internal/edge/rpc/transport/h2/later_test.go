package h2

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// pattern is a body that is different at every place and for every stream.
func pattern(id uint32, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(uint32(i)*7 + uint32(i)>>8 + id)
	}
	return b
}

// TestAnswersOfReader: the reader answers requests itself, and reads on while the client reads
// nothing. No byte is lost or changed, whatever part of a write the socket takes.
func TestAnswersOfReader(t *testing.T) {
	const requests = 3000
	c := connectSilently(t, Options{})
	var begun atomic.Int64
	c.site.begin = func() { begun.Add(1) }
	c.must(c.nc.(*net.TCPConn).SetReadBuffer(64 << 10))
	c.must(c.conn.link.socket.plain.(*net.TCPConn).SetWriteBuffer(64 << 10))
	c.greet(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	c.must(c.WriteWindowUpdate(0, 1<<30))
	for i := range uint32(requests) {
		c.must(c.open(2*i+1, pathOf(2*i+1), true))
	}
	eventually(t, "all requests are read", func() bool { return begun.Load() == requests })
	bodies, left := map[uint32][]byte{}, requests
	c.await("all answers", func(f http2.Frame) bool {
		switch f := f.(type) {
		case *http2.DataFrame:
			bodies[f.StreamID] = append(bodies[f.StreamID], f.Data()...)
		case *http2.MetaHeadersFrame:
			size := laterSize(f.StreamID)
			if pathOf(f.StreamID) == "prompt" {
				size = promptSize(f.StreamID)
			}
			if !f.StreamEnded() {
				if got, want := f.RegularFields(),
					promptHeader(f.StreamID).Fields[1:]; pathOf(f.StreamID) == "prompt" &&
					!slices.Equal(got, want) {
					t.Errorf("stream %d: header %v, want %v", f.StreamID, got, want)
				}
				break
			}
			if want := pattern(f.StreamID,
				size); !bytes.Equal(bodies[f.StreamID][headSize:], want) {
				t.Errorf("stream %d: a wrong body of %d bytes, want %d", f.StreamID,
					len(bodies[f.StreamID])-headSize, len(want))
			}
			left--
		}
		return left == 0
	})
	c.nothingUnread()
	eventually(t, "all buffers are free", func() bool { return c.site.pool.used.Load() == 0 })
}

// laterSize is the size of the answer of /later.
func laterSize(id uint32) int { return int(id*37) % 15_000 }

// promptSize is the size of the answer of /prompt. Some are too large to become frames at once.
func promptSize(id uint32) int { return int(id*13) % (copyMost + 500) }

// promptHeader is the header of the answer of /prompt. Now and then there is a new one that enters
// the table of the client.
func promptHeader(id uint32) *Header {
	if id%64 > 1 {
		return &Header{Fields: []hpack.HeaderField{{Name: ":status", Value: "200"},
			{Name: "stream", Value: fmt.Sprint(id), Sensitive: true}}}
	}
	return &Header{Fields: []hpack.HeaderField{{Name: ":status", Value: "200"},
		{Name: "stream", Value: fmt.Sprint(id)}}, Common: true}
}

// pathOf mixes requests whose answers are queued with those whose answers become frames at once.
func pathOf(id uint32) string {
	if id/2%3 == 0 {
		return "later"
	}
	return "prompt"
}

// TestPromptWindows: answers that become frames at once keep to the windows of their stream and of
// the connection.
func TestPromptWindows(t *testing.T) {
	c := connect(t, Options{}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 7})
	c.must(c.open(101, "prompt", true))
	got := 0
	c.await("the window of the stream is full", func(f http2.Frame) bool {
		if d, ok := f.(*http2.DataFrame); ok {
			got += len(d.Data())
		}
		return got >= 7
	})
	c.ping(1)
	if got != 7 {
		t.Fatalf("%d bytes in a window of 7", got)
	}
	c.must(c.WriteWindowUpdate(101, 1<<20))
	if n := c.awaitEnd(101); n != promptSize(101)+headSize-7 {
		t.Errorf("%d bytes more, want %d", n, promptSize(101)+headSize-7)
	}

	c = connect(t, Options{}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	want := 0
	const last = 301
	for id := uint32(101); id <= last; id += 2 {
		want += promptSize(id) + headSize
		c.must(c.open(id, "prompt", true))
	}
	got = 0
	c.must(c.WritePing(false, [8]byte{2}))
	opened := false
	ended := 0
	for ended < 101 {
		f, err := c.ReadFrame()
		c.must(err)
		switch f := f.(type) {
		case *http2.DataFrame:
			if got += len(f.Data()); got > 65535 && !opened {
				t.Fatalf("%d bytes in a window of 65535", got)
			}
			if got == 65535 {
				opened = true
				c.must(c.WriteWindowUpdate(0, 1<<20))
			}
		case *http2.MetaHeadersFrame:
			if f.StreamEnded() {
				ended++
			}
		}
	}
	if got != want || !opened {
		t.Errorf("%d bytes, want %d; the window was used up: %v", got, want, opened)
	}
}

// TestPromptBounded: answers that become frames at once wait for a client that does not read in
// bounded memory; the others are counted with their streams.
func TestPromptBounded(t *testing.T) {
	var nc *blockedConn
	c := connectThrough(t, Options{}, framesAtOnce,
		func(inner net.Conn) net.Conn { nc = newBlockedConn(inner); return nc }).greet()
	c.ping(1)
	nc.block.Store(true)
	c.must(c.WritePing(false, [8]byte{2}))
	<-nc.blocked
	var begun atomic.Int64
	c.site.begin = func() { begun.Add(1) }
	const requests = 300
	for i := range uint32(requests) {
		c.must(c.open(2*i+1, "prompt", true))
	}
	eventually(t, "all requests are answered", func() bool {
		c.conn.link.mu.Lock()
		defer c.conn.link.mu.Unlock()
		open := 0
		for _, s := range c.conn.link.mu.table.streams {
			if s.state.sends() {
				open++
			}
		}
		return begun.Load() == requests && open == 0 &&
			c.conn.link.mu.table.accepted == c.conn.link.mu.table.entered
	})
	c.conn.link.mu.Lock()
	defer c.conn.link.mu.Unlock()
	if n := len(*c.conn.link.mu.out.prompt); n > maxPrompt+copyMost {
		t.Errorf("%d bytes of answers wait", n)
	}
	if c.conn.link.mu.out.prompts == 0 || len(c.conn.link.mu.table.streams) == 0 {
		t.Errorf("%d answers became frames at once, %d wait with their streams",
			c.conn.link.mu.out.prompts, len(c.conn.link.mu.table.streams))
	}
}

// TestRestOfBatch: what follows the bytes that are written already is written, wherever that is.
func TestRestOfBatch(t *testing.T) {
	var whole []byte
	make3 := func() *batch {
		b := &batch{own: pattern(1, 30)}
		b.parts = []part{{10, pattern(2, 20)}, {10, pattern(3, 5)}, {25, pattern(4, 7)}}
		b.refs = 32
		return b
	}
	for _, p := range make3().vector() {
		whole = append(whole, p...)
	}
	if len(whole) != make3().len() {
		t.Fatalf("%d bytes, want %d", len(whole), make3().len())
	}
	for n := range whole {
		here, there := net.Pipe()
		go func() {
			defer here.Close()
			if err := (&socket{nc: here, plain: here}).write(make3(), n); err != nil {
				t.Error(err)
			}
		}()
		if got, err := io.ReadAll(there); err != nil || !bytes.Equal(got, whole[n:]) {
			t.Errorf("after %d of %d bytes: %d bytes, %v", n, len(whole), len(got), err)
		}
	}
}

// TestAttended: streams that are answered without a handler may be reset, and do not count as
// running handlers.
func TestAttended(t *testing.T) {
	c := connect(t, Options{})
	for id := uint32(1); id < 2*maxAbandoned+100; id += 2 {
		c.must(c.open(id, "never", true))
		c.must(c.WriteRSTStream(id, http2.ErrCodeCancel))
	}
	last := uint32(2*maxAbandoned + 101)
	c.must(c.open(last, "later", true))
	c.awaitEnd(last)
	c.nothingUnread()
}

// TestPromptBeforeSettings: answers that became frames under earlier settings precede the
// acknowledgement of new ones, after which a client holds the server to these.
func TestPromptBeforeSettings(t *testing.T) {
	var nc *blockedConn
	c := connectThrough(t, Options{}, framesAtOnce,
		func(inner net.Conn) net.Conn { nc = newBlockedConn(inner); return nc }).greet()
	c.must(c.open(1, "prompt", true)) // its header enters the table
	c.awaitEnd(1)
	nc.block.Store(true)
	c.must(c.WritePing(false, [8]byte{2}))
	<-nc.blocked
	c.must(c.open(65, "prompt", true))
	eventually(t, "an answer has become frames", func() bool {
		c.conn.link.mu.Lock()
		defer c.conn.link.mu.Unlock()
		return c.conn.link.mu.out.prompts == 1
	})
	c.must(c.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	c.must(c.open(67, "prompt", true))
	eventually(t, "the settings and a request are read", func() bool {
		c.conn.link.mu.Lock()
		defer c.conn.link.mu.Unlock()
		return c.conn.link.mu.out.initial == 0 && c.conn.link.mu.table.streams[67] != nil
	})
	nc.unblock()
	answered, acknowledged := false, false
	c.await("the acknowledgement", func(f http2.Frame) bool {
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			answered = answered || f.StreamID == 65 && f.StreamEnded()
		case *http2.SettingsFrame:
			acknowledged = acknowledged || f.IsAck()
		}
		return acknowledged
	})
	if !answered {
		t.Error("an answer for the settings before comes after the acknowledgement")
	}
}

// TestSoon: messages that the reader sends without a wait arrive in order, keep to the windows, and
// are followed by the end.
func TestSoon(t *testing.T) {
	c := connect(t, Options{}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 100})
	var want []byte
	c.must(c.open(1, "soon", false))
	for i := range 50 {
		part := pattern(uint32(i), 1+i)
		want = append(append(want, make([]byte, headSize)...), part...)
		c.must(c.WriteData(1, i == 49, part))
	}
	var got []byte
	read := func(most int) {
		t.Helper()
		c.await("messages", func(f http2.Frame) bool {
			if d, ok := f.(*http2.DataFrame); ok {
				got = append(got, d.Data()...)
			}
			return len(got) >= most
		})
	}
	read(100)
	c.ping(1)
	if len(got) != 100 {
		t.Fatalf("%d bytes in a window of 100", len(got))
	}
	c.must(c.WriteWindowUpdate(1, 1<<20))
	read(len(want))
	c.awaitEnd(1)
	if !bytes.Equal(got, want) {
		t.Error("other messages than were sent")
	}
	c.nothingUnread()
}

// TestSoonBeforeReset: a message that became a frame precedes a reset of its stream.
func TestSoonBeforeReset(t *testing.T) {
	var nc *blockedConn
	c := connectThrough(t, Options{}, framesAtOnce,
		func(inner net.Conn) net.Conn { nc = newBlockedConn(inner); return nc }).greet()
	c.must(c.open(1, "soon", false))
	c.must(c.WriteData(1, false, []byte("first")))
	c.await("the first message",
		func(f http2.Frame) bool { return f.Header().Type == http2.FrameData })
	nc.block.Store(true)
	c.must(c.WritePing(false, [8]byte{2}))
	<-nc.blocked
	c.must(c.WriteData(1, false, []byte("second")))
	c.must(c.WriteWindowUpdate(1, 1<<31-1)) // too large
	eventually(t, "the stream is reset", func() bool {
		c.conn.link.mu.Lock()
		defer c.conn.link.mu.Unlock()
		return c.conn.link.mu.table.streams[1] == nil
	})
	nc.unblock()
	data := false
	c.await("the reset", func(f http2.Frame) bool {
		data = data || f.Header().Type == http2.FrameData
		return f.Header().Type == http2.FrameRSTStream
	})
	if !data {
		t.Error("the reset comes before the message")
	}
	c.ping(3)
}
