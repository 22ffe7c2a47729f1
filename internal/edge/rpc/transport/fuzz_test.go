package transport

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// sentConn is a connection whose client has sent everything, in pieces, and reads everything.
type sentConn struct {
	net.Conn
	in    *bytes.Reader
	piece int
	mu    sync.Mutex
	out   bytes.Buffer
	ended bool
}

func (c *sentConn) Read(p []byte) (int, error) { return c.in.Read(p[:min(len(p), c.piece)]) }
func (c *sentConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || c.out.Len() > 4<<20 {
		return 0, io.ErrClosedPipe
	}
	return c.out.Write(p)
}
func (c *sentConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	return nil
}
func (*sentConn) SetReadDeadline(time.Time) error  { return nil }
func (*sentConn) SetWriteDeadline(time.Time) error { return nil }
func (*sentConn) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
}
func (*sentConn) LocalAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 2}
}

// FuzzServer: whatever a client sends, the connection ends, all handlers and sessions have ended
// with it, and each call has at most one answer, which begins with a status of HTTP and ends with
// one of gRPC. Each has the header and the messages that were sent.
func FuzzServer(f *testing.F) {
	add := func(list ...request) {
		var b, block bytes.Buffer
		w := http2.NewFramer(&b, nil)
		enc := hpack.NewEncoder(&block)
		_ = w.WriteSettings() // a buffer does not fail
		for i, r := range list {
			block.Reset()
			for _, f := range r.header() {
				_ = enc.WriteField(f)
			}
			id := uint32(2*i + 1)
			_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true,
				EndStream: len(r.body) == 0 && !r.open, BlockFragment: block.Bytes()})
			for k, part := range r.body {
				_ = w.WriteData(id, k == len(r.body)-1 && !r.open, part)
			}
		}
		f.Add(uint8(255), b.Bytes())
		f.Add(uint8(3), b.Bytes())
	}
	for _, r := range requests {
		if len(r.body) < 2 && r.name != "gzip bomb" {
			add(r)
		}
	}
	talk := request{fields: []string{":path", "/test.Talks/Echo"},
		body: [][]byte{message("a"), message("b"), message("end")}}
	filled := request{fields: []string{":path", "/test.Talks/Talk"},
		body: [][]byte{message("50"), message("hold")}}
	add(talk, filled, requests[0], talk)
	for seed := range uint64(5) {
		f.Add(uint8(255), randomCalls(rand.New(rand.NewPCG(seed, 2))))
	}
	f.Fuzz(func(t *testing.T, piece uint8, data []byte) { serveSent(t, piece, data) })
}

// serveSent serves what a client sends after the preface, in pieces, and checks what FuzzServer
// says.
func serveSent(t *testing.T, piece uint8, data []byte) *checks {
	nc := &sentConn{in: bytes.NewReader(append([]byte(http2.ClientPreface), data...)),
		piece: max(int(piece)*64, 1)}
	k := &checks{t: t, sent: sentCalls(data)}
	o := Options{Services: k.services(),
		Codec:           NewCodec(slog.New(slog.DiscardHandler), new(noCounter), new(noCounter)),
		MaxMessageBytes: maxTestMessage, MaxConcurrentStreams: 50, KeepAliveMinTime: 1}
	s := NewServer(o)
	s.serveConn(nc)
	s.handlers.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Stop(ctx)
	for _, e := range k.opened.list {
		if n := e.closes.Load(); n != 1 {
			t.Errorf("a session was closed %d times", n)
		}
	}
	for id, body := range checkAnswers(t, nc.out.Bytes()) {
		c := k.sent[id]
		if path := c.field(":path"); path == "/test.Talks/Echo" && c.field("grpc-encoding") == "" &&
			!bytes.HasPrefix(c.body, body) {
			t.Errorf("call %d was answered with % x, sent was % x", id, body, c.body)
		}
	}
	return k
}

type talkEnds struct {
	mu   sync.Mutex
	list []*talkEnd
}

// checkAnswers checks what a server has sent, up to the last whole frame, and returns the bodies of
// its answers.
func checkAnswers(t *testing.T, out []byte) map[uint32][]byte {
	r := http2.NewFramer(nil, bytes.NewReader(out))
	r.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	bodies, begun, ended := map[uint32][]byte{}, map[uint32]bool{}, map[uint32]bool{}
	for {
		f, err := r.ReadFrame()
		switch {
		case err == io.EOF, err == io.ErrUnexpectedEOF: // closed during a write
			return bodies
		case err != nil:
			t.Fatalf("the server has sent %v (%v)", err, r.ErrorDetail())
		}
		id := f.Header().StreamID
		switch f := f.(type) {
		case *http2.DataFrame:
			if !begun[id] || ended[id] {
				t.Fatalf("data outside of an answer on stream %d", id)
			}
			bodies[id] = append(bodies[id], f.Data()...)
		case *http2.MetaHeadersFrame:
			grpcStatus := false
			for _, h := range f.RegularFields() {
				grpcStatus = grpcStatus || h.Name == "grpc-status"
			}
			if first := f.PseudoValue("status") != ""; ended[id] || first == begun[id] ||
				f.StreamEnded() != grpcStatus {
				t.Fatalf("headers of stream %d, begun %v, ended %v: %v", id, begun[id],
					ended[id], f.Fields)
			}
			begun[id], ended[id] = true, f.StreamEnded()
		}
	}
}
