package transport

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
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
func (*sentConn) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }
func (*sentConn) LocalAddr() net.Addr              { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 2} }

// FuzzServer: whatever a client sends, the connection ends, all handlers and sessions have ended with it, and each call has at most one
// answer, which begins with a status of HTTP and ends with one of gRPC.
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
			_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true, EndStream: len(r.body) == 0 && !r.open, BlockFragment: block.Bytes()})
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
	talk := request{fields: []string{":path", "/test.Talks/Echo"}, body: [][]byte{message("a"), message("b"), message("end")}}
	filled := request{fields: []string{":path", "/test.Talks/Talk"}, body: [][]byte{message("50"), message("hold")}}
	add(talk, filled, requests[0], talk)
	f.Fuzz(func(t *testing.T, piece uint8, data []byte) {
		nc := &sentConn{in: bytes.NewReader(append([]byte(http2.ClientPreface), data...)), piece: max(int(piece)*64, 1)}
		opened := &talkEnds{}
		o := Options{Services: append(testServices(), fuzzTalks(opened)), Codec: NewCodec(slog.New(slog.DiscardHandler), new(noCounter), new(noCounter)), MaxMessageBytes: maxTestMessage, MaxConcurrentStreams: 50, KeepAliveMinTime: 1, Own: true}
		s := newOwnServer(o)
		s.serveConn(nc)
		s.handlers.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s.Stop(ctx)
		for _, e := range opened.list {
			if n := e.closes.Load(); n != 1 {
				t.Errorf("a session was closed %d times", n)
			}
		}
		checkAnswers(t, nc.out.Bytes())
	})
}

// talkEnd is a session that answers each message, and counts how often it is closed.
type talkEnd struct {
	peer   Peer
	closes atomic.Int32
}

func (s *talkEnd) Receive(m any) {
	if s.peer.SendMsg(m) != nil {
		s.peer.End(nil)
	}
}
func (s *talkEnd) EndReceive() { s.peer.End(nil) }
func (s *talkEnd) Fill(int)    {}
func (s *talkEnd) Close(error) { s.closes.Add(1) }

type talkEnds struct {
	mu   sync.Mutex
	list []*talkEnd
}

func fuzzTalks(opened *talkEnds) Service {
	talks := talkService(nil, nil)
	for i := range talks.Methods {
		talks.Methods[i].Open = func(p Peer) (Session, error) {
			s := &talkEnd{peer: p}
			opened.mu.Lock()
			opened.list = append(opened.list, s)
			opened.mu.Unlock()
			return s, nil
		}
	}
	return talks
}

// checkAnswers checks what a server has sent, up to the last whole frame.
func checkAnswers(t *testing.T, out []byte) {
	r := http2.NewFramer(nil, bytes.NewReader(out))
	r.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	begun, ended := map[uint32]bool{}, map[uint32]bool{}
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
			if !begun[id] || ended[id] {
				t.Fatalf("data outside of an answer on stream %d", id)
			}
		case *http2.MetaHeadersFrame:
			grpcStatus := false
			for _, h := range f.RegularFields() {
				grpcStatus = grpcStatus || h.Name == "grpc-status"
			}
			if first := f.PseudoValue("status") != ""; ended[id] || first == begun[id] || f.StreamEnded() != grpcStatus {
				t.Fatalf("headers of stream %d, begun %v, ended %v: %v", id, begun[id], ended[id], f.Fields)
			}
			begun[id], ended[id] = true, f.StreamEnded()
		}
	}
}
