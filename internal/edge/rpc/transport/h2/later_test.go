package h2

import (
	"bytes"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
)

// pattern is a body that is different at every place and for every stream.
func pattern(id uint32, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(uint32(i)*7 + uint32(i)>>8 + id)
	}
	return b
}

// TestAnswersOfReader: the reader answers requests itself, and reads on while the client reads nothing. No byte is lost or
// changed, whatever part of a write the socket takes.
func TestAnswersOfReader(t *testing.T) {
	const requests = 3000
	c := connectSilently(t, Options{})
	var begun atomic.Int64
	c.site.begin = func() { begun.Add(1) }
	c.must(c.nc.(*net.TCPConn).SetReadBuffer(64 << 10))
	c.must(c.conn.socket.(*net.TCPConn).SetWriteBuffer(64 << 10))
	c.greet(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	c.must(c.WriteWindowUpdate(0, 1<<30))
	for i := range uint32(requests) {
		c.must(c.open(2*i+1, "later", true))
	}
	eventually(t, "all requests are read", func() bool { return begun.Load() == requests })
	bodies, left := map[uint32][]byte{}, requests
	c.await("all answers", func(f http2.Frame) bool {
		switch f := f.(type) {
		case *http2.DataFrame:
			bodies[f.StreamID] = append(bodies[f.StreamID], f.Data()...)
		case *http2.MetaHeadersFrame:
			if !f.StreamEnded() {
				break
			}
			if want := pattern(f.StreamID, laterSize(f.StreamID)); !bytes.Equal(bodies[f.StreamID][headSize:], want) {
				t.Errorf("stream %d: a wrong body of %d bytes, want %d", f.StreamID, len(bodies[f.StreamID])-headSize, len(want))
			}
			left--
		}
		return left == 0
	})
	c.nothingUnread()
	if n := c.site.pool.used.Load(); n != 0 {
		t.Errorf("%d buffers are not free", n)
	}
}

// laterSize is the size of the answer of /later.
func laterSize(id uint32) int { return int(id*37) % 15_000 }

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
			if err := make3().writeFrom(&Conn{nc: here, socket: here}, n); err != nil {
				t.Error(err)
			}
		}()
		if got, err := io.ReadAll(there); err != nil || !bytes.Equal(got, whole[n:]) {
			t.Errorf("after %d of %d bytes: %d bytes, %v", n, len(whole), len(got), err)
		}
	}
}

// TestAttended: streams that are answered without a handler may be reset, and do not count as running handlers.
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
