package h2

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// TestAnswers: bodies of all sizes are returned, whatever the windows are.
func TestAnswers(t *testing.T) {
	for _, window := range []uint32{1 << 10, 65535, 1 << 30} {
		c := connect(t, Options{}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
		c.must(c.WriteWindowUpdate(0, 1<<30))
		id := uint32(1)
		for _, size := range []int{0, 1, 100, 5000, 50_000} {
			body := bytes.Repeat([]byte{byte(size), 2, 3, 4, 5}, size/5)
			c.must(c.open(id, "echo", false))
			for at := 0; at < len(body); at += 16000 {
				c.must(c.WriteDataPadded(id, false, body[at:min(at+16000, len(body))],
					make([]byte, at%200)))
			}
			c.must(c.WriteData(id, true, nil))
			c.must(c.WriteWindowUpdate(id, 1<<20))
			var got []byte
			c.await("the answer", func(f http2.Frame) bool {
				switch f := f.(type) {
				case *http2.DataFrame:
					got = append(got, f.Data()...)
				case *http2.MetaHeadersFrame:
					return f.StreamEnded()
				}
				return false
			})
			if len(got) != len(body)+headSize || !bytes.Equal(got[headSize:], body) {
				t.Errorf("window %d: a body of %d bytes came back with %d", window, len(body),
					len(got)-headSize)
			}
			id += 2
		}
	}
}

// TestFairness: a stream that is not read blocks no other, and large answers share the connection
// with small ones.
func TestFairness(t *testing.T) {
	c := connect(t, Options{}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	c.must(c.WriteWindowUpdate(0, 1<<30))
	for id := uint32(1); id < 100; id += 2 {
		c.must(c.open(id, "1000000", true)) // never read
	}
	for id := uint32(101); id < 121; id += 2 {
		c.must(c.open(id, "10000000", true))
		c.must(c.WriteWindowUpdate(id, 1<<30))
	}
	c.must(c.open(201, "100", true))
	c.must(c.WriteWindowUpdate(201, 1<<20))
	large, after := 0, false
	c.await("the small answer", func(f http2.Frame) bool {
		if h, ok := f.(*http2.MetaHeadersFrame); ok && h.StreamID == 201 {
			if after {
				return h.StreamEnded()
			}
			after, large = true, 0 // the request has arrived
		}
		if d, ok := f.(*http2.DataFrame); ok && d.StreamID != 201 {
			large += len(d.Data())
		}
		return false
	})
	if large > 30*maxFrame {
		t.Errorf("%d bytes of large answers were sent during a small one", large)
	}
}

// TestConnectionWindow: streams wait for the window of the connection, and those without data do
// not.
func TestConnectionWindow(t *testing.T) {
	c := connect(t, Options{}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	c.must(c.open(1, "65531", true)) // with 7 heads it fills the window
	got := 0
	c.await("the window is full", func(f http2.Frame) bool {
		if d, ok := f.(*http2.DataFrame); ok {
			got += len(d.Data())
		}
		return got == 65535
	})
	c.must(c.open(3, "10", true))
	c.must(c.open(5, "0", true))
	c.awaitEnd(5)
	c.must(c.open(7, "50", true))
	c.must(c.WriteRSTStream(7, http2.ErrCodeCancel)) // a stalled stream that is gone
	c.must(c.WriteWindowUpdate(0, 1000))
	if n := c.awaitEnd(3); n != 10+headSize {
		t.Errorf("%d bytes", n)
	}
}

// TestErrors: frames that the protocol forbids end the stream or the connection with the code that
// it names.
func TestErrors(t *testing.T) {
	raw := func(kind http2.FrameType, flags http2.Flags, id uint32, payload ...byte) func(*client) {
		return func(c *client) { c.must(c.WriteRawFrame(kind, flags, id, payload)) }
	}
	headers := func(id uint32, end bool, fields ...string) func(*client) {
		return func(c *client) {
			c.must(c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true,
				EndStream: end, BlockFragment: c.block(fields...)}))
		}
	}
	request := []string{":method", "POST", ":scheme", "http", ":path", "/echo"}
	with := func(fields ...string) []string {
		return append(request[:len(request):len(request)],
			fields...)
	}
	open := func(path string, end bool) func(*client) {
		return func(c *client) { c.must(c.open(1, path, end)) }
	}
	number := func(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	for _, row := range []struct {
		name   string
		stream bool // the stream ends, and not the connection
		code   http2.ErrCode
		send   []func(*client)
	}{
		{"data on stream 0", false, http2.ErrCodeProtocol,
			[]func(*client){raw(http2.FrameData, 0, 0, 1)}},
		{"data on an idle stream", false, http2.ErrCodeProtocol,
			[]func(*client){raw(http2.FrameData, 0, 5, 1)}},
		{"reset of an idle stream", false, http2.ErrCodeProtocol,
			[]func(*client){raw(http2.FrameRSTStream, 0, 5, number(8)...)}},
		{"window of an idle stream", false, http2.ErrCodeProtocol,
			[]func(*client){raw(http2.FrameWindowUpdate, 0, 5, number(8)...)}},
		{"continuation of nothing", false, http2.ErrCodeProtocol,
			[]func(*client){raw(http2.FrameContinuation, 4, 1)}},
		{"push promise", false, http2.ErrCodeProtocol,
			[]func(*client){raw(http2.FramePushPromise, 4, 1, number(2)...)}},
		{"even stream", false, http2.ErrCodeProtocol,
			[]func(*client){headers(2, true, request...)}},
		{"stream number falls", false, http2.ErrCodeProtocol,
			[]func(*client){headers(101, false, request...), headers(1, false, request...)}},
		{"headers are interrupted", false, http2.ErrCodeProtocol,
			[]func(*client){raw(http2.FrameHeaders, 0, 1),
				raw(http2.FramePing, 0, 0, make([]byte, 8)...)}},
		{"invalid compression", false, http2.ErrCodeCompression,
			[]func(*client){raw(http2.FrameHeaders, 4, 1, 0xff, 0xff, 0xff)}},
		{"ping of 7 bytes", false, http2.ErrCodeFrameSize,
			[]func(*client){raw(http2.FramePing, 0, 0, make([]byte, 7)...)}},
		{"frame too large", false, http2.ErrCodeFrameSize,
			[]func(*client){raw(http2.FrameData, 0, 1, make([]byte, maxFrame+1)...)}},
		{"padding too long", false, http2.ErrCodeProtocol,
			[]func(*client){open("echo", false),
				raw(http2.FrameData, http2.FlagDataPadded, 1, 5, 0, 0)}},
		{"window of the connection too large", false, http2.ErrCodeFlowControl,
			[]func(*client){raw(http2.FrameWindowUpdate, 0, 0, number(1<<31-1)...)}},
		{"initial window too large", false, http2.ErrCodeFlowControl,
			[]func(*client){func(c *client) {
				c.must(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize,
					Val: 1 << 31}))
			}}},
		{"invalid setting", false, http2.ErrCodeProtocol, []func(*client){func(c *client) {
			c.must(c.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 2}))
		}}},
		{"more data than the window of the connection", false, http2.ErrCodeFlowControl,
			[]func(*client){func(c *client) {
				c.conn.link.mu.Lock()
				defer c.conn.link.mu.Unlock()
				c.must(c.WriteRawFrame(http2.FrameData, 0, 1, nil))
			}, func(c *client) {}}},
		{"window of a stream too large", true, http2.ErrCodeFlowControl,
			[]func(*client){open("wait", true),
				raw(http2.FrameWindowUpdate, 0, 1, number(1<<31-1)...)}},
		{"window grows by nothing", true, http2.ErrCodeProtocol,
			[]func(*client){open("wait", true), raw(http2.FrameWindowUpdate, 0, 1, number(0)...)}},
		{"data after the end", true, http2.ErrCodeStreamClosed,
			[]func(*client){open("wait", true), raw(http2.FrameData, 0, 1, 1)}},
		{"headers after the end", true, http2.ErrCodeStreamClosed,
			[]func(*client){open("wait", true), headers(1, true, "a", "b")}},
		{"trailers that do not end", true, http2.ErrCodeProtocol,
			[]func(*client){open("echo", false), headers(1, false, "a", "b")}},
		{"depends on itself", true, http2.ErrCodeProtocol,
			[]func(*client){open("wait", true), raw(http2.FramePriority, 0, 1, 0, 0, 0, 1, 5)}},
		{"data after the client's reset", true, http2.ErrCodeStreamClosed,
			[]func(*client){open("wait", true), raw(http2.FrameRSTStream, 0, 1, number(8)...),
				raw(http2.FrameData, 0, 1, 1)}},
		{"more than the window", true, http2.ErrCodeFlowControl,
			[]func(*client){open("wait", false), func(c *client) {
				s := c.stream(1)
				s.recv.Store(9)
			}, raw(http2.FrameData, 0, 1, make([]byte, 10)...)}},
		{"upper case", true, http2.ErrCodeProtocol,
			[]func(*client){headers(1, true, with("Name", "x")...)}},
		{"empty name: CVE-2019-9516", true, http2.ErrCodeProtocol,
			[]func(*client){headers(1, true, with("", "x")...)}},
		{"invalid value", true, http2.ErrCodeProtocol,
			[]func(*client){headers(1, true, with("name", "a\r\nb")...)}},
		{"no path", true, http2.ErrCodeProtocol, []func(*client){headers(1, true, request[:4]...)}},
		{"two methods", true, http2.ErrCodeProtocol,
			[]func(*client){headers(1, true, with(":method", "GET")...)}},
		{"two authorities", true, http2.ErrCodeProtocol,
			[]func(*client){headers(1, true, with(":authority", "a", ":authority", "b")...)}},
		{"a field of an answer", true, http2.ErrCodeProtocol,
			[]func(*client){headers(1, true, with(":status", "200")...)}},
		{"late pseudo field", true, http2.ErrCodeProtocol,
			[]func(*client){headers(1, true, "a", "b", ":method", "POST")}},
		{"connection field", true, http2.ErrCodeProtocol,
			[]func(*client){headers(1, true, with("connection", "close")...)}},
		{"te", true, http2.ErrCodeProtocol,
			[]func(*client){headers(1, true, with("te", "gzip")...)}},
		{"length without a body", true, http2.ErrCodeProtocol,
			[]func(*client){headers(1, true, with("content-length", "5")...)}},
		{"longer than its length", true, http2.ErrCodeProtocol,
			[]func(*client){headers(1, false, with("content-length", "2")...),
				raw(http2.FrameData, 0, 1, 1, 2, 3)}},
		{"shorter than its length", true, http2.ErrCodeProtocol,
			[]func(*client){headers(1, false, with("content-length", "2")...),
				raw(http2.FrameData, 1, 1, 1)}},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := connect(t, Options{})
			if row.name == "more data than the window of the connection" {
				c.conn.reader.recv = 0 // the reader waits for the first byte
				row.send = []func(*client){raw(http2.FrameData, 0, 1, 1)}
			}
			for _, send := range row.send {
				send(c)
			}
			if !row.stream {
				if code, text := c.goAway(); code != row.code {
					t.Errorf("ended with %v %q, want %v", code, text, row.code)
				}
				return
			}
			f := c.await("a reset",
				func(f http2.Frame) bool { _, ok := f.(*http2.RSTStreamFrame); return ok })
			if code := f.(*http2.RSTStreamFrame).ErrCode; code != row.code {
				t.Errorf("reset with %v, want %v", code, row.code)
			}
			c.must(c.open(301, "10", true))
			c.awaitEnd(301)
		})
	}
}

// stream returns a stream of the server when it is open.
func (c *client) stream(id uint32) (s *Stream) {
	c.t.Helper()
	eventually(c.t, "the stream is open", func() bool {
		c.conn.link.mu.Lock()
		defer c.conn.link.mu.Unlock()
		s = c.conn.link.mu.table.streams[id]
		return s != nil
	})
	return s
}

// TestLateFrames: frames for a stream that the server has ended while the client was sending are
// dropped.
func TestLateFrames(t *testing.T) {
	c := connect(t, Options{})
	c.must(c.open(1, "10", false))
	c.awaitEnd(1)
	f := c.await("a reset",
		func(f http2.Frame) bool { _, ok := f.(*http2.RSTStreamFrame); return ok })
	if code := f.(*http2.RSTStreamFrame).ErrCode; code != http2.ErrCodeNo {
		t.Errorf("reset with %v", code)
	}
	c.must(c.WriteData(1, false, make([]byte, 100)))
	c.must(c.WriteWindowUpdate(1, 5))
	c.must(c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, EndStream: true,
		BlockFragment: c.block("a", "b")}))
	c.must(c.WriteRSTStream(1, http2.ErrCodeCancel))
	c.must(c.open(3, "10", true))
	c.awaitEnd(3)
}

// TestRefused: requests beyond the limit are refused, and accepted again when others have ended.
func TestRefused(t *testing.T) {
	c := connect(t, Options{MaxConcurrentStreams: 2})
	for id := uint32(1); id < 7; id += 2 {
		c.must(c.open(id, "wait", true))
	}
	f := c.await("a reset",
		func(f http2.Frame) bool {
			_,
				ok := f.(*http2.RSTStreamFrame)
			return ok
		}).(*http2.RSTStreamFrame)
	if f.StreamID != 5 || f.ErrCode != http2.ErrCodeRefusedStream {
		t.Errorf("%v", f)
	}
	c.must(c.WriteRSTStream(1, http2.ErrCodeCancel))
	c.must(c.open(7, "10", true))
	c.awaitEnd(7)
}

// TestDrain: requests that were sent before the client knew are answered, and the connection is
// closed after the last one.
func TestDrain(t *testing.T) {
	c := connect(t, Options{})
	c.must(c.open(1, "echo", false))
	c.stream(1)
	c.conn.Drain()
	isGoAway := func(f http2.Frame) bool { _, ok := f.(*http2.GoAwayFrame); return ok }
	if f := c.await("the first GOAWAY", isGoAway).(*http2.GoAwayFrame); f.LastStreamID != 1<<31-1 {
		t.Errorf("%v", f)
	}
	c.must(c.open(3, "10", true))
	c.awaitEnd(3)
	c.must(c.WritePing(true, drainPing))
	if f := c.await("the second GOAWAY", isGoAway).(*http2.GoAwayFrame); f.LastStreamID != 3 ||
		f.ErrCode != http2.ErrCodeNo {
		t.Errorf("%v", f)
	}
	c.must(c.open(5, "10", true)) // ignored
	c.must(c.WriteData(1, true, []byte("last")))
	if n := c.awaitEnd(1); n != 4+headSize {
		t.Errorf("%d bytes", n)
	}
	if f, err := c.ReadFrame(); err == nil {
		t.Errorf("%v after the end", f)
	}
	c.nc.Close()
	if err := <-c.ends; err != nil {
		t.Error(err)
	}
	// A connection that has sent nothing is closed.
	c = connectSilently(t, Options{})
	c.conn.Drain()
	if err := <-c.ends; err == nil {
		t.Error("no error")
	}
}

// TestDrainReset: the reset of the last request of a connection that drains reaches the client.
func TestDrainReset(t *testing.T) {
	c := connect(t, Options{})
	c.must(c.open(1, "wait", true))
	s := c.stream(1)
	c.conn.Drain()
	c.must(c.WritePing(true, drainPing))
	for range 2 {
		c.await("a GOAWAY", isGoAwayWith(http2.ErrCodeNo))
	}
	eventually(t, "the GOAWAY is written", func() bool {
		c.conn.link.mu.Lock()
		defer c.conn.link.mu.Unlock()
		return !c.conn.link.mu.writing
	})
	s.Reset(http2.ErrCodeInternal)
	f := c.await("the reset",
		func(f http2.Frame) bool {
			_,
				ok := f.(*http2.RSTStreamFrame)
			return ok
		}).(*http2.RSTStreamFrame)
	if f.StreamID != 1 || f.ErrCode != http2.ErrCodeInternal {
		t.Errorf("%v", f)
	}
	if f, err := c.ReadFrame(); err == nil {
		t.Errorf("%v after the end", f)
	}
}

// TestContext: a stream is a context that ends with its deadline, its reset, or its connection.
func TestContext(t *testing.T) {
	c := connect(t, Options{})
	c.must(c.open(1, "wait", true))
	c.must(c.open(3, "wait", true))
	c.must(c.open(5, "wait", true))
	first, second, third := c.stream(1), c.stream(3), c.stream(5)
	derived, cancel := context.WithTimeoutCause(first, time.Hour, errors.New("not this"))
	defer cancel()
	stop := context.AfterFunc(second, func() { t.Error("was stopped") })
	if !stop() || stop() {
		t.Error("stop is wrong")
	}
	c.must(c.WriteRSTStream(1, http2.ErrCodeCancel))
	<-derived.Done()
	if context.Cause(derived) != context.Canceled || first.Err() != context.Canceled {
		t.Errorf("ended with %v", context.Cause(derived))
	}
	second.expire()
	<-second.Done()
	if second.Err() != context.DeadlineExceeded {
		t.Errorf("ended with %v", second.Err())
	}
	c.conn.Close()
	<-third.Done()
	called := make(chan struct{})
	context.AfterFunc(third, func() { close(called) })
	<-called
}

// TestRandom sends random requests, resets and windows; every buffer is freed once, and no stream
// is left.
func TestRandom(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1))
			c := connect(t, Options{MaxConcurrentStreams: 20},
				http2.Setting{ID: http2.SettingInitialWindowSize, Val: r.Uint32N(100_000)})
			read := make(chan struct{})
			go func() {
				defer close(read)
				for {
					if _, err := c.ReadFrame(); err != nil {
						return
					}
				}
			}()
			next := uint32(1)
			for range 400 {
				id := max(next, 40) - 40 + 2*r.Uint32N(20) | 1
				switch k := r.IntN(10); {
				case k < 4:
					path := []string{"echo", "wait", "0", "10", "5000", "200000"}[r.IntN(6)]
					end := r.IntN(2) == 0
					if err := c.open(next, path, end); err != nil {
						t.Fatal(err)
					}
					if path == "echo" && !end {
						c.must(c.WriteData(next, r.IntN(2) == 0, make([]byte, r.IntN(16000))))
					}
					next += 2
				case id >= next:
				case k < 6:
					c.must(c.WriteRSTStream(id, http2.ErrCodeCancel))
				case k < 9:
					c.must(c.WriteWindowUpdate(id, 1+r.Uint32N(100_000)))
				default:
					c.must(c.WriteWindowUpdate(0, 1+r.Uint32N(100_000)))
				}
			}
			if r.IntN(2) == 0 {
				c.conn.Drain()
			}
			c.nc.Close()
			<-read
			<-c.ends
		})
	}
}

// TestRepeatedHeader: a header of the same bytes as the one before has the same fields, unless the
// table has changed between them.
func TestRepeatedHeader(t *testing.T) {
	c := connect(t, Options{})
	id := uint32(1)
	answer := func(size int, block ...byte) {
		t.Helper()
		must(t, c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true,
			EndStream: true, BlockFragment: block}))
		if n := c.awaitEnd(id) - headSize; n != size {
			t.Errorf("request %d got %d bytes, want %d", id, n, size)
		}
		id += 2
	}
	const post, http, newest, older = 0x83, 0x86, 0x80 | 62, 0x80 | 63
	// enters the table
	path := func(p string) []byte { return append([]byte{post, http, 0x44, byte(len(p))}, p...) }
	same := []byte{post, http, newest}
	answer(11, path("/11")...)
	for range 3 {
		answer(11, same...)
	}
	answer(22, path("/22")...)
	for range 3 {
		answer(22, same...)
	}
	answer(11, post, http, older)
	answer(11, post, http, older)
	answer(22, same...)
	answer(22, path("/22")...) // enters it again
	answer(22, path("/22")...)
	answer(22, post, http, older)
	answer(11, post, http, 0x80|65)
	// Trailers between them.
	for range 2 {
		must(t, c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true,
			BlockFragment: same}))
		must(t, c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true,
			EndStream: true, BlockFragment: []byte{0x80 | 19}}))
		c.awaitEnd(id)
		id += 2
	}
	answer(22, same...)
	answer(22, same...)
	// The table is emptied.
	answer(33, append([]byte{0x20}, path("/33")...)...)
	must(t, c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true, EndStream: true,
		BlockFragment: same}))
	if code, _ := c.goAway(); code != http2.ErrCodeCompression {
		t.Errorf("ended with %v", code)
	}
}

// TestTableSizeTwice: a client may change the size of its table twice between two headers. The
// decoder of golang.org/x/net, which clients in Go have, accepts a second change in a header only
// if the table is empty.
func TestTableSizeTwice(t *testing.T) {
	c := connect(t, Options{})
	for id := uint32(1); id < 20; id += 2 {
		must(t, c.open(id, "prompt", true))
		c.awaitEnd(id)
		size := func(n uint32) http2.Setting {
			return http2.Setting{ID: http2.SettingHeaderTableSize, Val: n}
		}
		must(t, c.WriteSettings(size(200+id), size(4096)))
	}
}
