package h2

import (
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// flood sends frames in a loop until the server closes the connection, while the answers are read.
func flood(t *testing.T, c *client, send func(i uint32) error) {
	t.Helper()
	type end struct {
		code http2.ErrCode
		text string
	}
	ended := make(chan end, 1)
	go func() {
		var e end
		e.code = 0xff
		for {
			f, err := c.ReadFrame()
			if err != nil {
				ended <- e
				return
			}
			if f, ok := f.(*http2.GoAwayFrame); ok {
				e = end{f.ErrCode, string(f.DebugData())}
			}
		}
	}()
	i := uint32(0)
	for ; i < 3_000_000; i++ {
		if send(i) != nil {
			break
		}
	}
	select {
	case e := <-ended:
		if e.code != http2.ErrCodeEnhanceYourCalm {
			t.Errorf("ended with %v %q after %d frames, want ENHANCE_YOUR_CALM", e.code, e.text, i)
		}
		t.Logf("ended after %d frames: %s", i, e.text)
	case <-time.After(time.Minute):
		t.Fatalf("not ended after %d frames", i)
	}
}

// TestFloods: clients that send frames without effect lose their connection, whose memory stays
// bounded.
func TestFloods(t *testing.T) {
	for _, row := range []struct {
		name string
		send func(c *client, i uint32) error
	}{
		{"CVE-2019-9512 ping flood",
			func(c *client, i uint32) error { return c.WritePing(false, [8]byte{byte(i)}) }},
		{"CVE-2019-9515 settings flood", func(c *client, i uint32) error {
			return c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize,
				Val: 1000 + i%2})
		}},
		{"CVE-2020-11080 large settings", func(c *client, i uint32) error {
			list := make([]http2.Setting, maxFrame/6)
			for k := range list {
				list[k] = http2.Setting{ID: []http2.SettingID{http2.SettingHeaderTableSize,
					http2.SettingInitialWindowSize, 0x99}[k%3], Val: uint32(k)}
			}
			return c.WriteSettings(list...)
		}},
		{"CVE-2019-9513 priority churn", func(c *client, i uint32) error {
			return c.WritePriority(2*i+3, http2.PriorityParam{StreamDep: 2*i + 1, Weight: byte(i)})
		}},
		{"CVE-2019-9518 empty data frames", func(c *client, i uint32) error {
			if i == 0 {
				return c.open(1, "echo", false)
			}
			return c.WriteData(1, false, nil)
		}},
		{"CVE-2023-44487 rapid reset", func(c *client, i uint32) error {
			if err := c.open(2*i+1, "wait", true); err != nil {
				return err
			}
			return c.WriteRSTStream(2*i+1, http2.ErrCodeCancel)
		}},
		{"CVE-2025-8671 made you reset", func(c *client, i uint32) error {
			if err := c.open(2*i+1, "wait", true); err != nil {
				return err
			}
			return c.WriteWindowUpdate(2*i+1, 0)
		}},
		{"CVE-2019-9514 reset flood", func(c *client, i uint32) error {
			return c.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, EndHeaders: true,
				BlockFragment: c.block("Upper", "case")})
		}},
		{"VU#421644 CVE-2023-45288 continuation flood", func(c *client, i uint32) error {
			if i == 0 {
				return c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1,
					BlockFragment: c.block(":method", "POST")})
			}
			return c.WriteContinuation(1, false,
				c.block("name", string(make([]byte, 0, 10))+"value"))
		}},
		{"continuation flood with empty frames", func(c *client, i uint32) error {
			if i == 0 {
				return c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1,
					BlockFragment: c.block(":method", "POST")})
			}
			return c.WriteContinuation(1, false, nil)
		}},
		{"window update flood", func(c *client, i uint32) error {
			if i == 0 {
				return c.open(1, "wait", false)
			}
			if i%2 == 0 {
				return c.WriteRawFrame(http2.FrameWindowUpdate, 0, 1, []byte{0, 0, 0, 1})
			}
			return c.WriteRawFrame(http2.FrameWindowUpdate, 0, 0, []byte{0, 0, 0, 1})
		}},
		{"unknown frames", func(c *client,
			i uint32) error {
			return c.WriteRawFrame(0x77, 0, 0, nil)
		}},
		{"CVE-2019-9511 data dribble", func(c *client, i uint32) error {
			if i == 0 {
				return c.open(1, "10000000", false)
			}
			return c.WriteWindowUpdate(1, 1)
		}},
		{"refused streams", func(c *client, i uint32) error { return c.open(2*i+1, "wait", true) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			o := Options{PingMinTime: time.Nanosecond}
			settings := []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 0}}
			if row.name == "refused streams" {
				o.MaxConcurrentStreams = 10
			}
			c := connectAs(t, o, framesAtOnce/10, func(nc net.Conn) net.Conn { return nc },
				func(c *client) Handler {
					c.conn.reader.guard.rate = 0 // so that a slow machine's flood is one too
					return c.site
				}).greet(settings...)
			flood(t, c, func(i uint32) error { return row.send(c, i) })
			if most := c.site.most.Load(); most > maxAbandoned+1 {
				t.Errorf("%d handlers were running", most)
			}
			eventually(t, "handlers of the connection end",
				func() bool { return c.site.running.Load() == 0 })
		})
	}
}

// TestTooManyPings: pings that are more frequent than the policy of gRPC allows end the connection.
func TestTooManyPings(t *testing.T) {
	c := connect(t, Options{})
	for range 4 {
		c.must(c.WritePing(false, [8]byte{}))
	}
	if code, text := c.goAway(); code != http2.ErrCodeEnhanceYourCalm || text != "too_many_pings" {
		t.Errorf("ended with %v %q", code, text)
	}
	// Each ping is allowed after an answer.
	c = connect(t, Options{})
	for id := uint32(1); id < 100; id += 2 {
		c.must(c.open(id, "10", true))
		c.awaitEnd(id)
		c.must(c.WritePing(false, [8]byte{}))
	}
	c.await("an acknowledgement",
		func(f http2.Frame) bool { p, ok := f.(*http2.PingFrame); return ok && p.IsAck() })
}

// TestUnreadAnswers: what a client causes and does not read is bounded (CVE-2019-9517,
// CVE-2019-9512, CVE-2016-1546).
func TestUnreadAnswers(t *testing.T) {
	c := connect(t, Options{PingMinTime: time.Nanosecond},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
	c.must(c.WriteWindowUpdate(0, 1<<31-1-65535))
	for id := uint32(1); id < 40; id += 2 {
		c.must(c.open(id, "100000000", true))
	}
	must(t, c.nc.SetWriteDeadline(time.Now().Add(time.Second)))
	// until the server does not read any more, or the strikes are too many
	for c.WritePing(false, [8]byte{}) == nil {
	}
	c.conn.link.mu.Lock()
	defer c.conn.link.mu.Unlock()
	if n := len(c.conn.link.mu.out.control); n > maxControl+100 {
		t.Errorf("%d bytes of frames without data are queued", n)
	}
	for id, s := range c.conn.link.mu.table.streams {
		if s.out.bytes > sendQuota+20_000 {
			t.Errorf("stream %d has %d bytes in memory", id, s.out.bytes)
		}
	}
}

// TestHeaderBomb: small blocks that mean large headers, and large tables (CVE-2016-6581,
// CVE-2016-1544).
func TestHeaderBomb(t *testing.T) {
	c := connect(t, Options{MaxHeaderBytes: 64 << 10},
		http2.Setting{ID: http2.SettingHeaderTableSize, Val: 1<<32 - 1})
	big := string(make([]byte, 0)) + stringOf(3000)
	fields := []string{":method", "POST", ":scheme", "http", ":path", "/10", "bomb", big}
	for range 8000 {
		fields = append(fields, "bomb", big)
	}
	block := c.block(fields...)
	if len(block) > 16000 {
		t.Fatalf("the block has %d bytes", len(block))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c.must(c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, EndStream: true,
		BlockFragment: block}))
	f := c.await("a reset",
		func(f http2.Frame) bool { _, ok := f.(*http2.RSTStreamFrame); return ok })
	if code := f.(*http2.RSTStreamFrame).ErrCode; code != http2.ErrCodeFrameSize {
		t.Errorf("reset with %v", code)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 8<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
	// The connection still works, with the tables of both sides.
	c.must(c.open(3, "10", true))
	c.awaitEnd(3)
	c.conn.link.mu.Lock()
	defer c.conn.link.mu.Unlock()
	if n := c.conn.link.mu.out.encoder.enc.MaxDynamicTableSize(); n > 4096 {
		t.Errorf("a table of %d bytes", n)
	}
}

func stringOf(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'x'
	}
	return string(b)
}

// TestLargeString: a header field that is announced with a length beyond the limit is rejected
// before it is stored.
func TestLargeString(t *testing.T) {
	c := connect(t, Options{MaxHeaderBytes: 8 << 10})
	block := append([]byte{0}, 0x7f)
	block = binary.AppendUvarint(block, 1<<27)
	c.must(c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true,
		BlockFragment: block}))
	if code, _ := c.goAway(); code != http2.ErrCodeCompression {
		t.Errorf("ended with %v", code)
	}
}

// TestSlowClients: a connection without a complete handshake is closed.
func TestSlowClients(t *testing.T) {
	for _, begin := range []string{"", "PRI * HTTP/2.0\r\n", http2.ClientPreface,
		http2.ClientPreface + "\x00\x00\x06"} {
		c := connectSilently(t, Options{HandshakeTimeout: 20 * time.Millisecond})
		if _, err := io.WriteString(c.nc, begin); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, c.nc); err != nil {
			t.Errorf("after %q: %v", begin, err)
		}
		if err := <-c.ends; err == nil {
			t.Errorf("after %q: no error", begin)
		}
	}
	c := connectSilently(t, Options{})
	if _, err := io.WriteString(c.nc, "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := <-c.ends; err == nil {
		t.Error("HTTP/1 has no error")
	}
}

// TestSilentClient: a client that does not answer a ping is closed; one that answers is not.
func TestSilentClient(t *testing.T) {
	c := connect(t, Options{PingInterval: 10 * time.Millisecond, PingTimeout: time.Minute})
	for range 3 {
		f := c.await("a ping",
			func(f http2.Frame) bool { p, ok := f.(*http2.PingFrame); return ok && !p.IsAck() })
		c.must(c.WritePing(true, f.(*http2.PingFrame).Data))
	}
	c = connect(t, Options{PingInterval: 10 * time.Millisecond, PingTimeout: 10 * time.Millisecond})
	if err := <-c.ends; err == nil {
		t.Error("no error")
	}
}
