package h2

import (
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/mem"

	"vigil/internal/allocs"
)

// replayConn is a connection whose client has sent frames, and reads everything.
type replayConn struct {
	net.Conn
	in []byte
}

func (c *replayConn) Read(p []byte) (int, error) {
	if len(c.in) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.in)
	c.in = c.in[n:]
	return n, nil
}
func (*replayConn) Write(p []byte) (int, error)      { return len(p), nil }
func (*replayConn) Close() error                     { return nil }
func (*replayConn) SetReadDeadline(time.Time) error  { return nil }
func (*replayConn) SetWriteDeadline(time.Time) error { return nil }

// brief is a request that the reader answers at its end with a few bytes.
type brief struct{ Stream }

func (b *brief) Base() *Stream { return &b.Stream }
func (b *brief) Start()        {}
func (b *brief) Receive(r io.Reader, n int) error {
	b.Taken(n)
	_, err := io.ReadFull(r, briefBody[:n])
	return err
}
func (b *brief) EndReceive() {
	if b.Attend() {
		b.AnswerPrompt(okHeader, briefAnswer, okTrailer)
	}
}

var briefBody, briefAnswer = make([]byte, 300), make([]byte, 60)

// spring is a stream that has one buffer whenever it is filled.
type spring struct {
	Stream
	piece mem.Buffer
	data  mem.BufferSlice
}

func (s *spring) Base() *Stream { return &s.Stream }
func (s *spring) Start() {
	if s.Hold() {
		s.Notify(false)
	}
}
func (s *spring) Receive(r io.Reader, n int) error { return discard(r, n) }
func (s *spring) EndReceive()                      {}
func (s *spring) Ended()                           { s.Finish(nil, nil) }
func (s *spring) Fill(int) {
	_, _ = s.Queue(nil, append(s.data[:0], s.piece))
}

// hotHandler makes briefs, and springs for requests without an end.
type hotHandler struct {
	site
	springs []*Stream
}

func (h *hotHandler) Begin(r *Request) Exchange {
	if r.Ended || r.Path == "/brief" {
		return &brief{}
	}
	s := &spring{piece: mem.SliceBuffer(make([]byte, 300)), data: make(mem.BufferSlice, 0, 1)}
	h.springs = append(h.springs, &s.Stream)
	return s
}

// hotConn is a connection that is driven by hand.
type hotConn struct {
	*Conn
	nc   *replayConn
	h    *hotHandler
	enc  *hpack.Encoder
	head writerOf
	next uint32
}

type writerOf struct{ b []byte }

func (w *writerOf) Write(p []byte) (int, error) { w.b = append(w.b, p...); return len(p), nil }

func newHotConn() *hotConn {
	c := &hotConn{nc: &replayConn{}, h: &hotHandler{}, next: 1}
	c.Conn = New(c.nc, Options{Workers: testWorkers})
	c.enc = hpack.NewEncoder(&c.head)
	c.reader.handler, c.link.values, c.link.mu.state = c.h, c.h.Values(), connOpen
	c.link.mu.out.window, c.link.mu.out.initial = 1<<30, 1<<30
	return c
}

// request is the frames of a request on the next stream, whose number is not set.
func (c *hotConn) request(path string) (frames []byte, numbers []int) {
	c.head.b = c.head.b[:0]
	for _, f := range []hpack.HeaderField{{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"}, {Name: ":path", Value: path},
		{Name: ":authority", Value: "test"}, {Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"}} {
		if err := c.enc.WriteField(f); err != nil {
			panic(err)
		}
	}
	frames = append(appendFrame(nil, len(c.head.b), http2.FrameHeaders, http2.FlagHeadersEndHeaders,
		0), c.head.b...)
	numbers = []int{5}
	if path == "/brief" {
		numbers = append(numbers, len(frames)+5)
		frames = append(appendFrame(frames, 300, http2.FrameData, http2.FlagDataEndStream, 0),
			make([]byte, 300)...)
	}
	return frames, numbers
}

// read lets the connection read frames, and waits until everything is written.
func (c *hotConn) read(frames []byte, count int) {
	c.nc.in = frames
	for range count {
		if err := c.reader.readFrame(); err != nil {
			panic(err)
		}
	}
	c.reader.in.beforeRead()
	c.idle()
}

func (c *hotConn) idle() {
	for busy := true; busy; runtime.Gosched() {
		c.link.mu.Lock()
		busy = c.link.mu.writing || len(c.link.mu.out.sources) > 0
		c.link.mu.Unlock()
	}
}

func hot() map[string]func() {
	c := newHotConn()
	first, _ := c.request("/brief")
	binary.BigEndian.PutUint32(first[5:], 1)
	binary.BigEndian.PutUint32(first[len(first)-300-4:], 1)
	c.read(first, 2) // the fields enter the table
	c.next = 3
	one, numbers := c.request("/brief")
	all := make([]byte, 0, 100*len(one))
	for range 100 {
		all = append(all, one...)
	}
	w := newHotConn()
	for range 100 {
		begin, _ := w.request("/spring")
		binary.BigEndian.PutUint32(begin[5:], w.next)
		w.read(begin, 1)
		w.next += 2
	}
	return map[string]func(){
		"100 requests, answered by the reader": func() {
			for i := range 100 {
				for _, at := range numbers {
					binary.BigEndian.PutUint32(all[i*len(one)+at:], c.next)
				}
				c.next += 2
			}
			c.read(all, 200)
		},
		"output of 100 streams": func() {
			WakeAll(w.h.springs)
			w.idle()
			w.link.mu.Lock()
			w.link.mu.out.window = 1 << 30
			for _, s := range w.link.mu.table.streams {
				s.out.window = 1 << 30
			}
			w.link.mu.Unlock()
		},
	}
}

func BenchmarkHot(b *testing.B) { allocs.Benchmark(b, hot()) }

//vigil:norace
func TestAllocations(t *testing.T) { allocs.Test(t, "h2", hot()) }
