package h2

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/mem"
)

// site is a handler for tests. By the path, it answers with the body of the request (/echo), with
// that many bytes (/1000), waits for the end of the context (/wait), or sends without end (/bulk).
// /expire has a deadline that is over, /keep does not take its body, and /long expects 80,000 bytes
// in its body. /later and /prompt are answered by the reader, and /never is not answered; they have
// no handler.
type site struct {
	t       testing.TB
	pool    countingPool
	running atomic.Int64 // handlers
	most    atomic.Int64 // the largest number of them
	waiting sync.WaitGroup
	begin   func() // called at the begin of each request; may be nil
}

func (*site) Values() context.Context { return context.Background() }

func (s *site) Begin(r *Request) Exchange {
	if s.begin != nil {
		s.begin()
	}
	return &page{site: s, path: r.Path[1:]}
}

// page is a request to a site.
type page struct {
	Stream
	site *site
	path string
	body bytes.Buffer
}

var (
	okHeader = &Header{Fields: []hpack.HeaderField{{Name: ":status", Value: "200"},
		{Name: "kind", Value: "test"}}, Common: true}
	wholeAnswer = &Header{Fields: []hpack.HeaderField{{Name: ":status", Value: "200"},
		{Name: "done", Value: "yes"}}}
	okTrailer = &Header{Fields: []hpack.HeaderField{{Name: "done", Value: "yes"}}, Common: true}
)

func (p *page) Base() *Stream { return &p.Stream }
func (p *page) Start() {
	switch p.path {
	case "echo", "keep":
	case "expire":
		p.SetDeadline(0, nil)
	case "long":
		p.Expect(80_000)
	case "prompt":
		if p.Attend() {
			m := append(make([]byte, headSize), pattern(p.ID(), promptSize(p.ID()))...)
			p.AnswerPrompt(promptHeader(p.ID()), m, okTrailer)
			clear(m) // it was copied
		}
	case "soon":
		p.Attend()
	case "later", "never":
		if p.Attend() && p.path == "later" {
			p.AnswerLater(okHeader, [5]byte{},
				p.site.pool.buffers(pattern(p.ID(), laterSize(p.ID()))), okTrailer)
		}
	default:
		p.run(p.serve)
	}
}

func (p *page) Receive(r io.Reader, n int) error {
	_, err := io.CopyN(&p.body, r, int64(n))
	if p.path != "keep" {
		p.Taken(n)
	}
	if p.path == "soon" && n > 0 && err == nil { // each part is answered
		var header *Header
		if p.body.Len() == n {
			header = okHeader
		}
		m := append(make([]byte, headSize), p.body.Bytes()[p.body.Len()-n:]...)
		p.SendSoon(header, m)
		clear(m) // it was copied
	}
	return err
}

func (p *page) EndReceive() {
	if p.path == "soon" {
		p.FinishSoon(okTrailer, wholeAnswer)
	}
	if p.path == "echo" || p.path == "long" {
		p.run(p.serve)
	}
}

func (p *page) run(f func()) {
	if !p.Hold() {
		return
	}
	n := p.site.running.Add(1)
	for most := p.site.most.Load(); n > most &&
		!p.site.most.CompareAndSwap(most, n); most = p.site.most.Load() {
	}
	p.site.waiting.Go(func() {
		defer p.site.running.Add(-1)
		f()
	})
}

func (p *page) serve() {
	switch size, err := strconv.Atoi(p.path); {
	case p.path == "echo" || p.path == "long":
		p.Answer(okHeader, [5]byte{}, p.site.pool.buffers(p.body.Bytes()), okTrailer)
		return
	case p.path == "wait":
		<-p.Done()
	case p.path == "bulk":
		for header := okHeader; p.Send(header, [5]byte{}, p.site.pool.buffers(make([]byte, 60_000)),
			false) == nil; header = nil {
		}
	case err == nil:
		header := okHeader
		for size > 0 {
			n := min(size, 10_000)
			if p.Send(header, [5]byte{}, p.site.pool.buffers(make([]byte, n)), false) != nil {
				break
			}
			header, size = nil, size-n
		}
	}
	p.Finish(okTrailer, wholeAnswer)
}

// countingPool counts the buffers that are not free.
type countingPool struct{ used atomic.Int64 }

func (p *countingPool) Get(int) *[]byte { panic("not called") }
func (p *countingPool) Put(b *[]byte) {
	if p.used.Add(-1) < 0 {
		panic("freed twice")
	}
	clear(*b)
}

// buffers returns a copy of b in two buffers that are counted.
func (p *countingPool) buffers(b []byte) mem.BufferSlice {
	var out mem.BufferSlice
	for _, part := range [][]byte{b[:len(b)/3], b[len(b)/3:]} {
		part = append(make([]byte, 0, 2<<10), part...) // smaller ones are not pooled
		p.used.Add(1)
		out = append(out, mem.NewBuffer(&part, p))
	}
	return out
}

// client is a client that sends any frames.
type client struct {
	*http2.Framer
	t    testing.TB
	nc   net.Conn
	site *site
	conn *Conn
	buf  bytes.Buffer
	enc  *hpack.Encoder
	ends chan error // the result of Serve
}

var testWorkers = NewWorkers(16)

// connect starts a connection of a server, and sends the preface and settings.
func connect(t testing.TB, o Options, settings ...http2.Setting) *client {
	t.Helper()
	return connectSilently(t, o).greet(settings...)
}

// greet sends what a connection begins with.
func (c *client) greet(settings ...http2.Setting) *client {
	c.t.Helper()
	if _, err := io.WriteString(c.nc, http2.ClientPreface); err != nil {
		c.t.Fatal(err)
	}
	c.must(c.WriteSettings(settings...))
	return c
}

func connectSilently(t testing.TB, o Options) *client {
	t.Helper()
	return connectThrough(t, o, framesAtOnce/10, func(nc net.Conn) net.Conn { return nc })
}

// connectThrough starts a connection that the server uses through another one, and that may send so
// many frames without effect at once.
func connectThrough(t testing.TB, o Options, most int, wrap func(net.Conn) net.Conn) *client {
	t.Helper()
	return connectAs(t, o, most, wrap, func(c *client) Handler { return c.site })
}

// connectTo starts a connection that is served by a handler.
func connectTo(t testing.TB, handler func(*client) Handler) *client {
	t.Helper()
	return connectAs(t, Options{}, framesAtOnce/10,
		func(nc net.Conn) net.Conn { return nc }, handler)
}

func connectAs(t testing.TB, o Options, most int, wrap func(net.Conn) net.Conn,
	handler func(*client) Handler) *client {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	o.Workers = testWorkers
	c := &client{t: t, nc: nc, site: &site{t: t}, conn: New(wrap(accepted), o),
		ends: make(chan error, 1), Framer: http2.NewFramer(nc, nc)}
	c.enc = hpack.NewEncoder(&c.buf)
	c.AllowIllegalWrites = true
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.conn.reader.guard = newGuard(most)
	h := handler(c)
	go func() { c.ends <- c.conn.Serve(h) }()
	t.Cleanup(func() {
		nc.Close()
		c.conn.Close()
		c.site.waiting.Wait()
		eventually(t, "all buffers are freed", func() bool { return c.site.pool.used.Load() == 0 })
		eventually(t, "no handlers and no streams are left", func() bool {
			c.conn.link.mu.Lock()
			defer c.conn.link.mu.Unlock()
			return c.conn.link.mu.table.abandoned == 0 && len(c.conn.link.mu.table.streams) == 0
		})
	})
	must(t, nc.SetDeadline(time.Now().Add(time.Minute)))
	return c
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (c *client) must(err error) {
	c.t.Helper()
	must(c.t, err)
}

// block compresses fields.
func (c *client) block(fields ...string) []byte {
	c.buf.Reset()
	for i := 0; i < len(fields); i += 2 {
		c.must(c.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	return c.buf.Bytes()
}

// open begins a request.
func (c *client) open(id uint32, path string, end bool) error {
	return c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true, EndStream: end,
		BlockFragment: c.block(":method", "POST", ":scheme", "http", ":path", "/"+path)})
}

// await reads frames until one fits. Others are handled: a window that is used up is opened.
func (c *client) await(what string, fits func(http2.Frame) bool) http2.Frame {
	c.t.Helper()
	for {
		f, err := c.ReadFrame()
		if err != nil {
			c.t.Fatalf("waiting for %s: %v", what, err)
		}
		if fits(f) {
			return f
		}
		if f, ok := f.(*http2.GoAwayFrame); ok && f.ErrCode != http2.ErrCodeNo {
			c.t.Fatalf("waiting for %s: %v %s", what, f, f.DebugData())
		}
	}
}

// awaitEnd reads frames until a stream ends with a trailer, and returns how many bytes of data it
// had.
func (c *client) awaitEnd(id uint32) (data int) {
	c.t.Helper()
	c.await("the end of a stream", func(f http2.Frame) bool {
		if f.Header().StreamID != id {
			return false
		}
		switch f := f.(type) {
		case *http2.DataFrame:
			data += len(f.Data())
		case *http2.MetaHeadersFrame:
			return f.StreamEnded()
		case *http2.RSTStreamFrame:
			c.t.Fatalf("stream %d was reset with %v", id, f.ErrCode)
		}
		return false
	})
	return data
}

// goAway reads frames until the connection ends, and returns the code and text of the last GOAWAY.
func (c *client) goAway() (code http2.ErrCode, text string) {
	c.t.Helper()
	code = 0xff
	for {
		f, err := c.ReadFrame()
		if errors.Is(err, io.EOF) || err != nil && code != 0xff {
			return code, text
		}
		c.must(err)
		if f, ok := f.(*http2.GoAwayFrame); ok {
			code, text = f.ErrCode, string(f.DebugData())
		}
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("never: %s", what)
			return
		}
	}
}
