package h2

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// silentConn is a connection whose client has sent some bytes, and takes nothing.
type silentConn struct {
	net.Conn
	in bytes.Buffer
}

func (c *silentConn) Read(p []byte) (int, error)       { return c.in.Read(p) }
func (c *silentConn) Close() error                     { return nil }
func (c *silentConn) SetReadDeadline(time.Time) error  { return nil }
func (c *silentConn) SetWriteDeadline(time.Time) error { return nil }

// plainHandler has exchanges that note what the reader tells them.
type plainHandler struct{ begun []*plainExchange }

func (h *plainHandler) Values() context.Context { return context.Background() }

func (h *plainHandler) Begin(r *Request) Exchange {
	x := &plainExchange{path: r.Path}
	h.begun = append(h.begun, x)
	return x
}

type plainExchange struct {
	Stream
	path  string
	body  []byte
	ended bool
}

func (x *plainExchange) Base() *Stream { return &x.Stream }
func (x *plainExchange) Start()        {}
func (x *plainExchange) EndReceive()   { x.ended = true }

func (x *plainExchange) Receive(r io.Reader, n int) error {
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	x.body = append(x.body, b...)
	return err
}

// TestReader drives a reader by hand: what it notes in the table and the scheduler, while there is
// no writer.
func TestReader(t *testing.T) {
	nc := &silentConn{}
	c := New(nc, Options{Workers: testWorkers})
	h := &plainHandler{}
	c.reader.handler, c.link.values = h, h.Values()
	c.link.mu.state = connOpen
	c.link.mu.writing = true // nothing is written
	client := http2.NewFramer(&nc.in, nil)
	client.AllowIllegalWrites = true
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	open := func(id uint32, end bool) {
		block.Reset()
		for _, f := range []hpack.HeaderField{{Name: ":method", Value: "POST"},
			{Name: ":scheme", Value: "http"}, {Name: ":path", Value: "/x"}} {
			must(t, enc.WriteField(f))
		}
		must(t, client.WriteHeaders(http2.HeadersFrameParam{StreamID: id,
			BlockFragment: block.Bytes(), EndHeaders: true, EndStream: end}))
	}
	read := func() error {
		t.Helper()
		err := c.reader.readFrame()
		if _, ends := c.reader.clientMistake(err); !ends && (nc.in.Len() > 0 || !c.NothingRead()) {
			t.Fatal("a frame was not read to its end")
		}
		return err
	}
	table, out := &c.link.mu.table, &c.link.mu.out

	open(1, false)
	must(t, read())
	if s := table.streams[1]; s == nil || s.state != openIdle || len(h.begun) != 1 ||
		h.begun[0].path != "/x" {
		t.Fatalf("stream 1 is %v, %d requests have begun", s, len(h.begun))
	}
	must(t, client.WriteData(1, false, []byte("abc")))
	must(t, read())
	must(t, client.WriteData(1, true, []byte("de")))
	must(t, read())
	if x := h.begun[0]; string(x.body) != "abcde" || !x.ended || x.state != halfIdle ||
		x.charged.Load() < 5 {
		t.Errorf("the body is %q, ended %v, state %d, charged %d", x.body, x.ended, x.state,
			x.charged.Load())
	}
	must(t, client.WriteWindowUpdate(0, 1000))
	must(t, read())
	must(t, client.WriteWindowUpdate(1, 100))
	must(t, read())
	if out.window != initialWindow+1000 || h.begun[0].out.window != initialWindow+100 {
		t.Errorf("the windows are %d and %d", out.window, h.begun[0].out.window)
	}
	must(t, client.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10}))
	must(t, read())
	if out.initial != 10 || h.begun[0].out.window != 110 {
		t.Errorf("the windows are %d for new streams, %d for an old one", out.initial,
			h.begun[0].out.window)
	}
	before := len(out.control)
	must(t, client.WritePing(false, [8]byte{7}))
	must(t, read())
	if len(out.control) != before+9+8 {
		t.Errorf("%d bytes are queued for a ping", len(out.control)-before)
	}
	must(t, client.WriteRSTStream(1, http2.ErrCodeCancel))
	must(t, read())
	if !h.begun[0].state.gone() || h.begun[0].Err() != context.Canceled || !table.isEmpty() ||
		c.link.unread.Load() != 0 {
		t.Errorf("after a reset: state %d, %v, the table is empty: %v, %d bytes unread",
			h.begun[0].state, h.begun[0].Err(), table.isEmpty(), c.link.unread.Load())
	}

	// Mistakes: of a stream, and of the connection.
	var stream http2.StreamError
	open(3, true)
	must(t, read())
	must(t, client.WriteData(3, false, []byte("late")))
	if err := read(); !errors.As(err, &stream) || stream.Code != http2.ErrCodeStreamClosed ||
		stream.StreamID != 3 {
		t.Errorf("data after the end: %v", err)
	}
	must(t, client.WriteData(9, false, []byte("x")))
	if failed, ok := c.reader.clientMistake(read()); !ok || failed.code != http2.ErrCodeProtocol {
		t.Errorf("data on an idle stream: %v", failed)
	}
	if _, ok := c.reader.clientMistake(io.ErrUnexpectedEOF); ok {
		t.Error("a lost connection is the client's mistake")
	}
}
