package transport

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// TestConnEnded: the reason is reported when the server ends the connection of a client, and not
// when the client leaves.
func TestConnEnded(t *testing.T) {
	type end struct{ client, reason string }
	ends := make(chan end, 10)
	_, addr := startServer(t, true, func(o *Options) {
		o.ConnEnded = func(client net.Addr,
			reason error) {
			ends <- end{client.String(), reason.Error()}
		}
	})
	for _, bad := range []bool{false, true} {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if _, err := io.WriteString(nc, http2.ClientPreface); err != nil {
			t.Fatal(err)
		}
		fr := http2.NewFramer(nc, nc)
		fr.AllowIllegalWrites = true
		if err := fr.WriteSettings(); err != nil {
			t.Fatal(err)
		}
		if !bad {
			nc.Close()
			continue
		}
		if err := fr.WriteData(0, false, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if got, want := <-ends,
			(end{nc.LocalAddr().String(),
				"ended with PROTOCOL_ERROR: data on stream 0"}); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

// TestBrowser: a client that does not speak gRPC gets a text.
func TestBrowser(t *testing.T) {
	_, addr := startServer(t, true, nil)
	r := request{fields: []string{":method", "GET", "content-type", ""}}
	if got := r.exchange(t, addr); !strings.HasPrefix(got,
		":status: 415\ncontent-type: text/plain") || !strings.Contains(got, "data 74686973") {
		t.Errorf("answered with\n%s", got)
	}
}

// TestStopAtOnce: Stop closes all connections at once if its time is over at the beginning.
func TestStopAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, ours bool) {
		entered := make(chan struct{})
		s, addr := startServer(t, ours, func(o *Options) {
			o.Services[0].Methods = append(o.Services[0].Methods,
				unaryMethod("Wait", func(ctx context.Context, _ string) (string, error) {
					close(entered)
					<-ctx.Done()
					return "", ctx.Err()
				}))
		})
		conn := dial(t, addr)
		result := make(chan error, 1)
		go func() {
			_, err := invoke(context.Background(), conn, "Wait", "", grpc.WaitForReady(false))
			result <- err
		}()
		<-entered
		silent, err := net.Dial("tcp", addr) // no handshake
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s.Stop(ctx)
		if err := <-result; err == nil {
			t.Error("the call has succeeded")
		}
		if err := silent.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, silent); err != nil &&
			strings.Contains(err.Error(), "timeout") {
			t.Errorf("a connection without a handshake: %v", err)
		}
	})
}

// TestBrokenWhileSending: a stream that ends because of a mistake of the client, while its handler
// sends, gets one answer: headers, messages and a trailer, or all of it in one block.
func TestBrokenWhileSending(t *testing.T) {
	_, addr := startServer(t, true, func(o *Options) {
		o.Services[0].Methods = append(o.Services[0].Methods,
			Method{Name: "Both", ClientStreams: true, ServerStreams: true,
				Stream: func(s Stream) error {
					sent := make(chan struct{})
					go func() {
						defer close(sent)
						for s.SendMsg(text("x")) == nil {
						}
					}()
					err := s.RecvMsg(text(""))
					<-sent
					return err
				}})
	})
	for range 50 {
		r := request{path: "Both", body: [][]byte{frame(0, []byte{0xff})}, open: true}
		got := r.exchange(t, addr)
		if strings.Count(got, ":status: 200\n") != 1 ||
			strings.Count(got, "grpc-status: 13\n") != 1 {
			t.Fatalf("answered with\n%s",
				got[:min(len(got), 300)]+" ... "+got[max(0, len(got)-500):])
		}
	}
}

// rawFrames opens a connection that sends any frames.
func rawFrames(t *testing.T, addr string) *http2.Framer {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(nc, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	fr := http2.NewFramer(nc, nc)
	fr.AllowIllegalWrites = true
	fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := fr.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return fr
}

// begin begins a call.
func (r *request) begin(t *testing.T, fr *http2.Framer, id uint32, end bool) {
	t.Helper()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range r.header() {
		f.Sensitive = true
		if err := enc.WriteField(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true,
		EndStream: end, BlockFragment: block.Bytes()}); err != nil {
		t.Fatal(err)
	}
}

// TestEmptyMessages: empty messages that a handler does not take occupy memory, which counts like
// unread bodies.
func TestEmptyMessages(t *testing.T) {
	const most, streams = 4 << 20, 40
	taken := make(chan struct{})
	o := Options{Services: testServices(),
		Codec:           NewCodec(slog.New(slog.DiscardHandler), new(noCounter), new(noCounter)),
		MaxMessageBytes: maxTestMessage, MaxConcurrentStreams: 1<<32 - 1}
	o.Services[0].Methods = append(o.Services[0].Methods,
		Method{Name: "Hold", ClientStreams: true, ServerStreams: true,
			Stream: func(s Stream) error {
				<-taken
				for {
					if err := s.RecvMsg(text("")); err == io.EOF {
						return nil
					} else if err != nil {
						return err
					}
				}
			}})
	server := NewServer(o)
	server.conns.MaxUnreadBytes = most
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(l)
	defer func() {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		server.Stop(ctx)
	}()
	addr := l.Addr().String()
	fr := rawFrames(t, addr)
	hold := request{path: "Hold"}
	messages := make([]byte, 16_000) // 3,200
	for i := range uint32(streams) {
		hold.begin(t, fr, 2*i+1, false)
		for range 4 {
			if err := fr.WriteData(2*i+1, false, messages); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := fr.WritePing(false, [8]byte{1}); err != nil {
		t.Fatal(err)
	}
	refused := map[uint32]bool{}
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if r, ok := f.(*http2.RSTStreamFrame); ok && r.ErrCode == http2.ErrCodeRefusedStream {
			refused[r.StreamID] = true
		}
		if p, ok := f.(*http2.PingFrame); ok && p.IsAck() {
			break
		}
	}
	// Each one has 64,000 bytes in 12,800 messages.
	if accepted := streams - len(refused); accepted > most/(64_000+12_000*messageCost)+1 {
		t.Errorf("%d of %d streams are accepted", accepted, streams)
	}
	close(taken)
	for i := range uint32(streams) {
		if !refused[2*i+1] {
			if err := fr.WriteData(2*i+1, true, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	for ended := 0; ended < streams-len(refused); {
		f, err := fr.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if h, ok := f.(*http2.MetaHeadersFrame); ok && h.StreamEnded() {
			ended++
		}
	}
	// Everything is free again.
	hold.begin(t, fr, 2*streams+1, true)
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if f.Header().StreamID != 2*streams+1 {
			continue
		}
		if h, ok := f.(*http2.MetaHeadersFrame); !ok || !h.StreamEnded() ||
			h.PseudoValue("status") != "200" {
			t.Fatalf("%v", f)
		}
		break
	}
}

// TestShortRejections: an answer does not repeat a long text of its request; quoting would make the
// text even longer.
func TestShortRejections(t *testing.T) {
	long := strings.Repeat("\"%", 2000)
	_, addr := startServer(t, true, nil)
	for _, r := range []request{
		{fields: []string{":path", long}},
		{fields: []string{":path", "/" + long + "/x"}},
		{fields: []string{":path", "/" + testService + "/" + long}},
		{path: "Echo", fields: []string{"content-type", long}},
		{path: "Echo", fields: []string{":method", long}},
		{path: "Echo", fields: []string{"grpc-encoding", long}},
		{path: "Echo", fields: []string{"grpc-timeout", long}},
		{path: "Echo", fields: []string{"key-bin", long}},
	} {
		got := r.exchange(t, addr)
		if len(got) > 10*maxEcho || !strings.Contains(got, "grpc-status: ") ||
			!strings.Contains(got, `"%25`) {
			t.Errorf("%s %s: answered with %d bytes\n%s", r.path, r.fields[0], len(got),
				got[:min(len(got), 200)])
		}
	}
}

// TestLongTimeout: a timeout beyond the largest time.Duration works like none, and does not become
// a time in the past.
func TestLongTimeout(t *testing.T) {
	onBoth(t, func(t *testing.T, ours bool) {
		_, addr := startServer(t, ours, func(o *Options) {
			o.Services[0].Methods = append(o.Services[0].Methods,
				unaryMethod("Rest", func(ctx context.Context, _ string) (string, error) {
					d, ok := ctx.Deadline()
					return fmt.Sprintf("%v, after a century: %v", ok,
						time.Until(d) > 100*365*24*time.Hour), ctx.Err()
				}))
		})
		for _, timeout := range []string{"99999999H", "2562047H"} {
			r := request{path: "Rest", fields: []string{"grpc-timeout", timeout}, body: one("")}
			if got := r.exchange(t, addr); !strings.Contains(got,
				fmt.Sprintf("%x", "true, after a century: true")) {
				t.Errorf("timeout %s: answered with\n%s", timeout, got)
			}
		}
	})
}

// TestLate: a call whose deadline passes gets a status for that, before and after its first answer,
// and nothing from its handler later. If answers wait for the client, the stream is reset.
func TestLate(t *testing.T) {
	var running atomic.Int64
	_, addr := startServer(t, true, func(o *Options) {
		o.Services[0].Methods = append(o.Services[0].Methods,
			Method{Name: "Slow", ServerStreams: true, Stream: func(s Stream) error {
				running.Add(1)
				defer running.Add(-1)
				m := new(wrapperspb.StringValue)
				if err := s.RecvMsg(m); err != nil {
					return err
				}
				for range len(m.Value) {
					if err := s.SendMsg(text(strings.Repeat("x", 40_000))); err != nil {
						return err
					}
				}
				<-s.Context().Done()
				if s.SendMsg(m) == nil {
					t.Error("a message is sent after the deadline")
				}
				return nil
			}})
	})
	for _, c := range []struct {
		in   string
		want []string
	}{
		{"", []string{":status: 200\ncontent-type: application/grpc\ngrpc-status: 4\n"}},
		{"one", []string{":status: 200\ncontent-type: application/grpc\n", "grpc-status: 4\n"}},
	} {
		// On a busy machine the answers must have left before the deadline.
		r := request{path: "Slow", fields: []string{"grpc-timeout", "500m"}, body: one(c.in)}
		got := r.exchange(t, addr)
		for _, want := range c.want {
			if !strings.Contains(got, want) || strings.Contains(got, "reset: CANCEL") {
				t.Errorf("%q: answered with\n%s", c.in, got[:min(len(got), 300)])
			}
		}
	}
	fr := rawFrames(t, addr)
	if err := fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize,
		Val: 10}); err != nil {
		t.Fatal(err)
	}
	r := request{path: "Slow", fields: []string{"grpc-timeout", "100m"}}
	r.begin(t, fr, 1, false)
	if err := fr.WriteData(1, true, message("two")); err != nil {
		t.Fatal(err)
	}
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if h, ok := f.(*http2.MetaHeadersFrame); ok && h.StreamEnded() {
			t.Fatal("an answer with a part of a message ends with a status")
		}
		if r, ok := f.(*http2.RSTStreamFrame); ok {
			if r.ErrCode != http2.ErrCodeCancel {
				t.Errorf("%v", r)
			}
			break
		}
	}
	for end := time.Now().Add(time.Minute); running.Load() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a handler is still running")
		}
	}
}
