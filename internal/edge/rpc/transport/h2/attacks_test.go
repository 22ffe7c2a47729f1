package h2

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// The tests of this file have the names of attacks on other servers. DESIGN.md lists all attacks.

// heap returns the bytes of the heap that are in use, without what pools keep.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// unguarded connects with any number of frames without effect.
func unguarded(t *testing.T, o Options, settings ...http2.Setting) *client {
	t.Helper()
	return connectThrough(t, o, 1<<30, func(nc net.Conn) net.Conn { return nc }).greet(settings...)
}

// TestCVE202144716: names of header fields are not kept for a connection, whether they are many or
// large (CVE-2022-41717, CVE-2025-53020).
func TestCVE202144716(t *testing.T) {
	c := unguarded(t, Options{})
	send := func(from, n int) {
		for i := from; i < from+n; i++ {
			id := uint32(2*i + 1)
			block := []byte{0x10} // in no table
			name := fmt.Sprintf("n%d-%s", i, strings.Repeat("x", 7_000))
			block = appendString(block, name)
			block = appendString(block, "v")
			must(t, c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true,
				EndStream: true,
				BlockFragment: slices.Concat(c.block(":method", "POST", ":scheme", "http", ":path",
					"/10"), block)}))
			c.awaitEnd(id)
		}
	}
	send(0, 20)
	before := heap()
	send(20, 1000)
	if n := heap() - before; n > 1<<20 {
		t.Errorf("%d bytes are kept after 1,000 requests with other names", n)
	}
}

// appendString appends a text as HPACK has it, not compressed.
func appendString(b []byte, s string) []byte {
	if len(s) < 0x7f {
		return append(append(b, byte(len(s))), s...)
	}
	return append(append(append(b, 0x7f), appendHpackInt(uint64(len(s)-0x7f))...), s...)
}

// TestCVE202227664: a connection that drains ends at an error, and one that has failed at Drain.
func TestCVE202227664(t *testing.T) {
	for _, failFirst := range []bool{false, true} {
		c := connect(t, Options{})
		must(t, c.open(1, "wait", true))
		c.stream(1)
		if failFirst {
			_ = c.conn.link.failConn(http2.ErrCodeProtocol, "first")
		}
		c.conn.Drain()
		if !failFirst {
			must(t, c.WriteData(0, false, []byte("x")))
		}
		if code, _ := c.goAway(); code != http2.ErrCodeProtocol {
			t.Errorf("ended with %v", code)
		}
		c.nc.Close()
		if err := <-c.ends; err == nil {
			t.Error("no reason")
		}
	}
}

// TestCVE202241721: there is no upgrade from HTTP/1, so the body of a request cannot be taken for
// frames.
func TestCVE202241721(t *testing.T) {
	c := connectSilently(t, Options{})
	begun := 0
	c.site.begin = func() { begun++ }
	var frames bytes.Buffer
	w := http2.NewFramer(&frames, nil)
	must(t, w.WriteSettings())
	must(t, w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, EndStream: true,
		BlockFragment: c.block(":method", "POST", ":scheme", "http", ":path", "/10")}))
	_, err := fmt.Fprintf(c.nc,
		"POST / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nContent-Length: %d\r\n\r\n%s%s",
		len(http2.ClientPreface)+frames.Len(), http2.ClientPreface, &frames)
	must(t, err)
	if err := <-c.ends; err == nil || begun > 0 {
		t.Errorf("%v, and %d requests", err, begun)
	}
}

// TestCVE202332731: what a header that is too large adds to the table is there for the next one
// (CVE-2024-7246).
func TestCVE202332731(t *testing.T) {
	c := unguarded(t, Options{MaxHeaderBytes: 8 << 10})
	fields := []string{":method", "POST", ":scheme", "http", ":path", "/10"}
	for i := range 4 { // the limit is passed
		fields = append(fields, fmt.Sprint("large", i), strings.Repeat("y", 2000+i))
	}
	fields = append(fields, ":path", "/77", "last", "one")
	must(t, c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, EndStream: true,
		BlockFragment: c.block(fields...)}))
	c.await("a reset", func(f http2.Frame) bool {
		r, ok := f.(*http2.RSTStreamFrame)
		return ok &&
			r.StreamID == 1
	})
	block := c.block(":method", "POST", ":scheme", "http", ":path", "/77", "last", "one")
	if len(block) != 4 {
		t.Fatalf("the fields are not all in the table: %d bytes", len(block))
	}
	must(t, c.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, EndHeaders: true, EndStream: true,
		BlockFragment: block}))
	if n := c.awaitEnd(3); n != 77+headSize {
		t.Errorf("%d bytes", n)
	}
}

// TestCVE202333953: numbers of HPACK that do not end, or that no machine can count to, are invalid
// (CVE-2023-36478).
func TestCVE202333953(t *testing.T) {
	for name, begin := range map[string]byte{"length of a text": 0x7f, "index": 0xff,
		"size of the table": 0x3f} {
		for _, rest := range [][]byte{bytes.Repeat([]byte{0x80}, 1000), appendHpackInt(1 << 62),
			appendHpackInt(1<<63 - 1)} {
			c := connectThrough(t, Options{}, framesAtOnce,
				func(nc net.Conn) net.Conn { return nc }).greet()
			var block []byte
			if begin == 0x7f {
				block = []byte{0}
			}
			block = append(append(block, begin), rest...)
			must(t, c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block}))
			must(t, c.WriteContinuation(1, true, []byte{1}))
			if code, _ := c.goAway(); code != http2.ErrCodeCompression {
				t.Errorf("%s, %d bytes: ended with %v", name, len(rest), code)
			}
		}
	}
}

// TestCVE202335945: streams that a client resets just before its GOAWAY are forgotten; what it
// sends after that is served.
func TestCVE202335945(t *testing.T) {
	c := unguarded(t, Options{})
	must(t, c.WriteWindowUpdate(0, 1<<30)) // which answers that are reset have used
	for id := uint32(1); id < 400; id += 2 {
		must(t, c.open(id, "bulk", false))
		must(t, c.WriteRSTStream(id, http2.ErrCodeCancel))
		must(t, c.WriteGoAway(id, http2.ErrCodeNo, nil))
	}
	eventually(t, "all handlers have ended", func() bool { return c.site.running.Load() == 0 })
	c.nothingUnread()
	must(t, c.open(401, "10", true))
	c.awaitEnd(401)
}

// TestCVE202132780: settings of any kind may follow a GOAWAY of the client.
func TestCVE202132780(t *testing.T) {
	c := connect(t, Options{})
	must(t, c.WriteGoAway(0, http2.ErrCodeNo, nil))
	must(t, c.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0}))
	must(t, c.WriteGoAway(0, http2.ErrCodeInternal, bytes.Repeat([]byte("x"), 1000)))
	must(t, c.open(1, "10", true))
	c.awaitEnd(1)
}

// TestCVE202132778: the time for resets of streams that wait is not quadratic in their number.
func TestCVE202132778(t *testing.T) {
	c := unguarded(t, Options{MaxUnreadBytes: 1 << 30},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	next := uint32(1)
	round := func(n uint32) time.Duration {
		first := next
		for range n {
			must(t, c.open(next, "10", false)) // its answer waits for the window
			next += 2
		}
		c.ping(1)
		began := time.Now()
		var b bytes.Buffer
		for id := next - 2; ; id -= 2 {
			b.Write(appendReset(nil, id, http2.ErrCodeCancel))
			if id == first {
				break
			}
		}
		_, err := c.nc.Write(b.Bytes())
		must(t, err)
		c.ping(2)
		return time.Since(began)
	}
	const few, factor = 500, 20
	round(few)
	for try := 0; ; try++ {
		small, large := round(few), round(few*factor)
		if large < small*factor*6 {
			return
		}
		if try == 5 {
			t.Fatalf("%d resets take %v, %d take %v", few, small, few*factor, large)
		}
	}
}

// TestCVE202434750: requests that are reset for their headers do not count as open, and the limit
// of open ones holds whether the client acknowledges it or not (CVE-2025-53506).
func TestCVE202434750(t *testing.T) {
	c := unguarded(t, Options{MaxConcurrentStreams: 2, MaxHeaderBytes: 4 << 10})
	id := uint32(1)
	for range 100 {
		must(t, c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true,
			EndStream: true,
			BlockFragment: c.block(":method", "POST", ":scheme", "http", ":path", "/wait", "large",
				strings.Repeat("a", 2500), "more", strings.Repeat("a", 2500))}))
		id += 2
	}
	open := id
	must(t, c.open(id, "echo", false))
	must(t, c.open(id+2, "echo", false))
	must(t, c.open(id+4, "echo", false))
	c.await("a refused stream", func(f http2.Frame) bool {
		r, ok := f.(*http2.RSTStreamFrame)
		if ok && r.StreamID >= open &&
			(r.StreamID != open+4 || r.ErrCode != http2.ErrCodeRefusedStream) {
			t.Fatalf("%v", r)
		}
		return ok && r.StreamID == open+4
	})
	must(t, c.WriteData(open, true, nil))
	c.awaitEnd(open)
	must(t, c.open(id+6, "10", true))
	c.awaitEnd(id + 6)
}

// TestCVE20251948: what a client allows in its settings is not allocated.
func TestCVE20251948(t *testing.T) {
	before := heap()
	c := connect(t, Options{}, http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: 1<<32 - 1},
		http2.Setting{ID: http2.SettingHeaderTableSize, Val: 1<<32 - 1},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1},
		http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1<<24 - 1},
		http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1<<32 - 1})
	must(t, c.open(1, "10", true))
	c.awaitEnd(1)
	if n := heap() - before; n > 1<<20 {
		t.Errorf("a connection takes %d bytes", n)
	}
}

// TestCVE202422201: a connection whose client does not read, so that a write waits, ends when a
// ping is not answered, and is closed.
func TestCVE202422201(t *testing.T) {
	full := &fullConn{closed: make(chan struct{})}
	c := connectThrough(t,
		Options{PingInterval: 10 * time.Millisecond, PingTimeout: 10 * time.Millisecond},
		framesAtOnce, func(nc net.Conn) net.Conn {
			full.Conn = nc
			return full
		}).greet()
	must(t, c.open(1, "bulk", true))
	select {
	case err := <-c.ends:
		if err == nil {
			t.Error("no reason")
		}
	case <-time.After(time.Minute):
		t.Fatal("the connection does not end")
	}
	<-full.closed
	eventually(t, "the handler has ended", func() bool { return c.site.running.Load() == 0 })
}

// TestCVE202621714: a window that is too large ends the connection, of which nothing is left
// (CVE-2025-23085).
func TestCVE202621714(t *testing.T) {
	c := connect(t, Options{})
	must(t, c.open(1, "wait", true))
	c.stream(1)
	must(t, c.WriteWindowUpdate(0, 1<<31-1))
	if code, text := c.goAway(); code != http2.ErrCodeFlowControl || text != "too large window" {
		t.Errorf("ended with %v %q", code, text)
	}
	c.nc.Close()
	var ended *EndedError
	if err := <-c.ends; !errors.As(err, &ended) {
		t.Errorf("%v", err)
	}
	eventually(t, "the handler has ended", func() bool { return c.site.running.Load() == 0 })
}

// TestCVE202627135: frames after the mistake that ends a connection are not looked at, whatever
// they are.
func TestCVE202627135(t *testing.T) {
	c := connect(t, Options{})
	must(t, c.open(1, "wait", true))
	c.stream(1)
	var b bytes.Buffer
	w := http2.NewFramer(&b, nil)
	w.AllowIllegalWrites = true
	must(t, w.WriteData(0, false, []byte("x")))
	for kind := range 0x14 {
		must(t, w.WriteRawFrame(http2.FrameType(kind), 0xff, 1, []byte{1, 2, 3}))
		must(t, w.WriteRawFrame(http2.FrameType(kind), 0, 0, nil))
	}
	b.Write(bytes.Repeat([]byte{0xff}, 100_000))
	_, err := c.nc.Write(b.Bytes())
	must(t, err)
	goAways := 0
	for {
		f, err := c.ReadFrame()
		if err != nil {
			break
		}
		if g, ok := f.(*http2.GoAwayFrame); ok {
			if goAways++; g.ErrCode != http2.ErrCodeProtocol ||
				string(g.DebugData()) != "data on stream 0" {
				t.Errorf("%v %s", g, g.DebugData())
			}
		}
	}
	if goAways != 1 {
		t.Errorf("%d GOAWAYs", goAways)
	}
}

// TestCVE202623918: requests that are reset in the same packet release what they have once. Each
// client counts its buffers at the end.
func TestCVE202623918(t *testing.T) {
	c := unguarded(t, Options{}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	must(t, c.WriteWindowUpdate(0, 1<<30)) // which answers that are reset have used
	var b bytes.Buffer
	w := http2.NewFramer(&b, nil)
	paths := []string{"echo", "bulk", "later", "prompt", "soon", "long", "expire", "keep", "5000"}
	id := uint32(1)
	for range 100 {
		b.Reset()
		for i, path := range paths {
			must(t, w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true,
				BlockFragment: c.block(":method", "POST", ":scheme", "http", ":path", "/"+path)}))
			if i%2 == 0 {
				must(t, w.WriteData(id, i%4 == 0, []byte("body")))
			}
			must(t, w.WriteRSTStream(id, http2.ErrCodeCancel))
			must(t, w.WriteRSTStream(id, http2.ErrCodeNo))
			id += 2
		}
		_, err := c.nc.Write(b.Bytes())
		must(t, err)
	}
	must(t, c.open(id, "10", true))
	c.awaitEnd(id)
	c.nothingUnread()
}

// TestSecondHeaders: headers on an open stream are trailers: they must end it, and do not begin a
// request.
func TestSecondHeaders(t *testing.T) {
	c := connect(t, Options{})
	begun := atomic.Int64{}
	c.site.begin = func() { begun.Add(1) }
	for i, fields := range [][]string{{":method", "POST", ":scheme", "http", ":path", "/10"},
		{":path", "/x"}, {"ok", "x", "Bad", "y"}, {"te", "gzip"}} {
		id := uint32(2*i + 1)
		must(t, c.open(id, "echo", false))
		must(t, c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true,
			EndStream: true, BlockFragment: c.block(fields...)}))
		c.await("a reset", func(f http2.Frame) bool {
			r, ok := f.(*http2.RSTStreamFrame)
			if ok && (r.StreamID != id || r.ErrCode != http2.ErrCodeProtocol) {
				t.Fatalf("%v", r)
			}
			return ok
		})
	}
	if n := begun.Load(); n != 4 {
		t.Errorf("%d requests", n)
	}
}
