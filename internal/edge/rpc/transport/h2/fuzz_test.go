package h2

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// memConn is a connection whose client has sent everything, in pieces, and reads everything.
type memConn struct {
	net.Conn
	in    *bytes.Reader
	piece int
	mu    sync.Mutex
	out   bytes.Buffer
	ended bool
}

func (c *memConn) Read(p []byte) (int, error) { return c.in.Read(p[:min(len(p), c.piece)]) }
func (c *memConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || c.out.Len() > 4<<20 {
		return 0, io.ErrClosedPipe
	}
	return c.out.Write(p)
}
func (c *memConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	return nil
}
func (*memConn) SetReadDeadline(time.Time) error  { return nil }
func (*memConn) SetWriteDeadline(time.Time) error { return nil }

// mixed serves sources below /fill and pages elsewhere.
type mixed struct {
	*site
	mu   sync.Mutex
	made []*source
}

func (m *mixed) Begin(r *Request) Exchange {
	if r.Path != "/fill" {
		return m.site.Begin(r)
	}
	s := &source{site: m.site, piece: 3000}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made = append(m.made, s)
	s.produced.Store(100_000)
	return &awake{s}
}

// awake is a source that has output from the beginning.
type awake struct{ *source }

func (a *awake) Start() {
	a.source.Start()
	a.Wake()
}

// fuzzSeeds are beginnings of connections after the preface.
func fuzzSeeds() map[string][]byte {
	out := map[string][]byte{}
	build := func(name string, f func(w *http2.Framer, block func(...string) []byte)) {
		var b, head bytes.Buffer
		enc := hpack.NewEncoder(&head)
		w := http2.NewFramer(&b, nil)
		w.AllowIllegalWrites = true
		// a buffer does not fail
		_ = w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000})
		f(w, func(fields ...string) []byte {
			head.Reset()
			for i := 0; i < len(fields); i += 2 {
				_ = enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
			}
			return bytes.Clone(head.Bytes())
		})
		out[name] = b.Bytes()
	}
	open := func(w *http2.Framer, block func(...string) []byte, id uint32, path string, end bool) {
		_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true, EndStream: end,
			BlockFragment: block(":method", "POST", ":scheme", "http", ":path", path,
				"name", "value")})
	}
	build("echo", func(w *http2.Framer, block func(...string) []byte) {
		open(w, block, 1, "/echo", false)
		_ = w.WriteData(1, false, []byte("hello"))
		_ = w.WriteDataPadded(1, true, []byte("world"), make([]byte, 10))
		open(w, block, 3, "/5000", true)
		_ = w.WriteWindowUpdate(3, 10000)
		_ = w.WriteWindowUpdate(0, 10000)
		_ = w.WritePing(false, [8]byte{1})
		_ = w.WriteSettingsAck()
	})
	build("fill", func(w *http2.Framer, block func(...string) []byte) {
		open(w, block, 1, "/fill", false)
		_ = w.WriteWindowUpdate(1, 70_000)
		_ = w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0},
			http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0})
		_ = w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 90_000},
			http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: 1})
		open(w, block, 3, "/fill", false)
		_ = w.WriteRSTStream(3, http2.ErrCodeCancel)
		_ = w.WriteData(1, true, nil)
	})
	build("soon", func(w *http2.Framer, block func(...string) []byte) {
		open(w, block, 1, "/soon", false)
		for i := range 5 {
			_ = w.WriteData(1, false, make([]byte, 1+i))
			_ = w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize,
				Val: uint32(10 * i)})
		}
		_ = w.WriteWindowUpdate(1, 1<<31-1)
		open(w, block, 3, "/soon", false)
		_ = w.WriteData(3, true, []byte("last"))
	})
	build("prompt", func(w *http2.Framer, block func(...string) []byte) {
		for id := uint32(65); id < 95; id += 4 {
			open(w, block, id, "/prompt", true)
			open(w, block, id+2, "/later", true)
		}
		_ = w.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0},
			http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10})
		for id := uint32(301); id < 310; id += 2 {
			open(w, block, id, "/prompt", true)
		}
		_ = w.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 100},
			http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
		open(w, block, 321, "/prompt", true)
	})
	build("errors", func(w *http2.Framer, block func(...string) []byte) {
		open(w, block, 1, "/wait", false)
		_ = w.WriteWindowUpdate(1, 0)
		open(w, block, 3, "/bulk", false)
		_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, EndHeaders: true, EndStream: true,
			BlockFragment: block("trailer", "x")})
		open(w, block, 5, "/long", false)
		_ = w.WriteData(5, false, make([]byte, 16000))
		_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 7,
			BlockFragment: block(":method", "POST")})
		_ = w.WriteContinuation(7, true,
			block(":scheme", "http", ":path", "/keep", "content-length", "7"))
		_ = w.WriteData(7, true, []byte("1234567"))
		_ = w.WritePriority(9, http2.PriorityParam{StreamDep: 1})
		_ = w.WriteGoAway(0, http2.ErrCodeNo, nil)
		_ = w.WriteRawFrame(0x77, 0, 0, []byte{1})
		_ = w.WriteRawFrame(http2.FrameRSTStream, 0, 1, []byte{0, 0, 0, 8})
		open(w, block, 2, "/echo", true)
	})
	return out
}

// FuzzConn: whatever a client sends, the connection ends, nothing is left, handlers have got the
// headers that were sent, and what the server has sent are valid frames.
func FuzzConn(f *testing.F) {
	for _, b := range fuzzSeeds() {
		f.Add(uint8(255), b)
		f.Add(uint8(1), b)
	}
	for seed := range uint64(5) {
		f.Add(uint8(255), randomHeads(rand.New(rand.NewPCG(seed, 2))))
	}
	f.Fuzz(func(t *testing.T, piece uint8, data []byte) { serveBytes(t, piece, data) })
}

// serveBytes serves what a client sends after the preface, in pieces, and checks what FuzzConn
// says.
func serveBytes(t *testing.T, piece uint8, data []byte) *notedHeads {
	nc := &memConn{in: bytes.NewReader(append([]byte(http2.ClientPreface), data...)),
		piece: max(int(piece)*64, 1)}
	h := &mixed{site: &site{t: t}}
	n := &notedHeads{Handler: h}
	c := New(nc, Options{Workers: testWorkers, MaxHeaderBytes: 16 << 10, MaxConcurrentStreams: 50,
		MaxUnreadBytes: 1 << 20})
	_ = c.Serve(n)
	h.waiting.Wait()
	eventually(t, "all buffers are freed", func() bool { return h.pool.used.Load() == 0 })
	for _, s := range h.made {
		if s.ctx.notified {
			eventually(t, "the end is noted", func() bool { return s.ended.Load() == 1 })
		}
	}
	eventually(t, "nothing is left", func() bool {
		c.link.mu.Lock()
		defer c.link.mu.Unlock()
		return len(c.link.mu.table.streams) == 0 && c.link.mu.table.abandoned == 0 &&
			c.link.unread.Load() == 0 && c.link.mu.promises.given == 0 && !c.link.mu.writing
	})
	checkOutput(t, nc.out.Bytes())
	n.check(t, data)
	return n
}

// checkOutput checks that a server has sent whole valid frames, up to the last one.
func checkOutput(t *testing.T, out []byte) {
	r := http2.NewFramer(nil, bytes.NewReader(out))
	r.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	ended := map[uint32]bool{}
	for {
		f, err := r.ReadFrame()
		switch {
		case err == io.EOF, err == io.ErrUnexpectedEOF: // closed during a write
			return
		case err != nil:
			t.Fatalf("the server has sent %v (%v)", err, r.ErrorDetail())
		}
		id := f.Header().StreamID
		switch f := f.(type) {
		case *http2.DataFrame:
			if ended[id] || len(f.Data()) > maxFrame {
				t.Fatalf("data on ended stream %d", id)
			}
		case *http2.MetaHeadersFrame:
			if ended[id] {
				t.Fatalf("headers on ended stream %d", id)
			}
			ended[id] = f.StreamEnded()
		}
	}
}
