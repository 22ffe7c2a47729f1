package h2

import (
	"encoding/binary"
	"net"
	"runtime"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// manyFields is a block of so many fields of one byte each, after fields that begin a request.
func (c *client) manyFields(path string, n int) []byte {
	block := append([]byte(nil),
		c.block(":method", "POST", ":scheme", "http", ":path", path, "a", "")...)
	one := c.block("a", "") // is in the table now
	if len(one) != 1 {
		c.t.Fatalf("a field of the table takes %d bytes", len(one))
	}
	for range n {
		block = append(block, one[0])
	}
	return block
}

// TestCVE202649975: a byte may mean a field, of which the server keeps many times the size, and a
// client that lets no answer pass would make it keep the headers of all requests. What is beyond a
// small header counts for MaxUnreadBytes as long as the stream exists, also while its handler runs,
// and after that.
func TestCVE202649975(t *testing.T) {
	for _, path := range []string{"/wait", "/10"} {
		o := Options{MaxHeaderBytes: 64 << 10, MaxUnreadBytes: 1 << 20}
		c := connectThrough(t, o, framesAtOnce, func(nc net.Conn) net.Conn { return nc }).
			greet(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		const requests = 200
		for i := range uint32(requests) {
			must(t, c.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, EndHeaders: true,
				EndStream: true, BlockFragment: c.manyFields(path, 900)}))
		}
		refused := 0
		must(t, c.WritePing(false, [8]byte{9}))
		c.await("the answer to a ping", func(f http2.Frame) bool {
			switch f := f.(type) {
			case *http2.RSTStreamFrame:
				if f.ErrCode != http2.ErrCodeRefusedStream {
					t.Fatalf("reset with %v", f.ErrCode)
				}
				refused++
			case *http2.PingFrame:
				return f.IsAck() && f.Data[0] == 9
			}
			return false
		})
		c.conn.link.mu.Lock()
		kept := len(c.conn.link.mu.table.streams)
		c.conn.link.mu.Unlock()
		// A header of 900 fields of 33 bytes: at most 1 MiB of them, and one.
		if most := 1<<20/(900*33-heldHead) + 1; kept > most || refused != requests-kept {
			t.Errorf("%s: %d streams are kept, more than %d; %d are refused", path,
				kept, most, refused)
		}
	}
}

// TestLargeHeaderTime: the processor time of a header that is too large does not depend on what its
// bytes mean.
func TestLargeHeaderTime(t *testing.T) {
	c := connect(t, Options{MaxHeaderBytes: 64 << 10})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	added := 0
	count := c.conn.reader.head.addField
	c.conn.reader.decoder.SetEmitFunc(func(f hpack.HeaderField) { added++; count(f) })
	must(t, c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, EndStream: true,
		BlockFragment: c.manyFields("/10", 16000)}))
	c.await("a reset", func(f http2.Frame) bool { _, ok := f.(*http2.RSTStreamFrame); return ok })
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
	if most := maxFields + 5; added > most {
		t.Errorf("%d fields were passed on, more than %d", added, most)
	}
}

// TestCVE202241723: a long text in many CONTINUATION frames is looked at once.
func TestCVE202241723(t *testing.T) {
	c := connectThrough(t, Options{}, framesAtOnce,
		func(nc net.Conn) net.Conn { return nc }).greet()
	block := c.block(":method", "POST", ":scheme", "http", ":path", "/10")
	must(t, c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndStream: true,
		BlockFragment: block}))
	const parts, size = 10_000, 80
	// a literal that is in no table
	text := append([]byte{0x00, 1, 'a', 0x7f}, appendHpackInt(parts*size-127)...)
	must(t, c.WriteContinuation(1, false, text))
	part := make([]byte, size)
	for i := range part {
		part[i] = 'x'
	}
	for i := range parts {
		must(t, c.WriteContinuation(1, i == parts-1, part))
	}
	c.awaitEnd(1)
}

// appendHpackInt is the rest of a number whose first bits are all set.
func appendHpackInt(n uint64) []byte { return binary.AppendUvarint(nil, n) }

// TestCVE202627141: frames of types that HTTP/2 does not have, or that are for extensions, are
// ignored.
func TestCVE202627141(t *testing.T) {
	c := connect(t, Options{})
	for kind := 0x0a; kind <= 0xff; kind++ {
		if kind == 0x10 {
			continue // PRIORITY_UPDATE, whose form is checked
		}
		for _, payload := range [][]byte{nil, make([]byte, 10)} {
			must(t, c.WriteRawFrame(http2.FrameType(kind), 0xff, 0, payload))
			must(t, c.WriteRawFrame(http2.FrameType(kind), 0, 1, payload))
		}
	}
	must(t, c.open(1, "10", true))
	c.awaitEnd(1)
}

// TestCVE202633814: a client that allows no frames at all violates the protocol; the server must
// not try to split its headers.
func TestCVE202633814(t *testing.T) {
	c := connect(t, Options{})
	must(t, c.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 0}))
	if code, _ := c.goAway(); code != http2.ErrCodeProtocol {
		t.Errorf("ended with %v", code)
	}
}

// TestHeaderList: an answer whose header or trailer is larger than the client accepts is reset.
func TestHeaderList(t *testing.T) {
	c := connect(t, Options{}, http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: 20})
	must(t, c.open(1, "10", true))
	f := c.await("a reset", func(f http2.Frame) bool {
		switch f.(type) {
		case *http2.MetaHeadersFrame:
			t.Fatal("a header is sent")
		case *http2.RSTStreamFrame:
			return true
		}
		return false
	})
	if code := f.(*http2.RSTStreamFrame).ErrCode; code != http2.ErrCodeInternal {
		t.Errorf("reset with %v", code)
	}
	must(t, c.WriteSettings(http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: 200}))
	must(t, c.open(3, "10", true))
	c.awaitEnd(3)
}
