package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"vigil/internal/edge/rpc/wire"
)

// talk is a session that answers each message: in Receive, or in Fill for a text that begins with a
// number, of which it queues so many responses.
type talk struct {
	peer    Peer
	closed  chan error
	closes  atomic.Int32
	due     atomic.Int64 // responses to be queued
	sent    int64        // owned by Fill
	encoder WatchEncoder // the same
	filling atomic.Int32
	taking  atomic.Int32
	fault   atomic.Bool // calls were concurrent
}

func (s *talk) Receive(m any) {
	if s.taking.Add(1) > 1 {
		s.fault.Store(true)
	}
	defer s.taking.Add(-1)
	switch text := m.(*wrapperspb.StringValue).Value; text {
	case "end":
		s.peer.End(nil)
	case "fail":
		s.peer.End(status.Error(codes.Aborted, "failed"))
	case "hold":
		<-s.peer.Context().Done()
	default:
		var n int64
		if _, err := fmt.Sscan(text, &n); err == nil {
			s.due.Add(n)
			s.peer.Wake()
			return
		}
		_ = s.peer.SendMsg(m) // it fails after the end
	}
}

func (s *talk) EndReceive() { s.peer.End(nil) }

func (s *talk) Fill(int) {
	if s.filling.Add(1) > 1 {
		s.fault.Store(true)
	}
	defer s.filling.Add(-1)
	for n := s.due.Load(); s.sent < n; {
		var list []wire.WatchResponse
		for id := s.sent; len(list) < 10 && id < n; {
			// One of 33 is sent by reference. Most are for several watchers.
			size := 100
			if id/3%33 == 3 {
				size = 3000
			}
			m := wire.WatchResponse{WatchID: id,
				Events: [][]byte{make([]byte, size), make([]byte, 3)}}
			for id++; id%3 != 0 && id < n; id++ {
				m.Also = append(m.Also, id)
			}
			list = append(list, m)
		}
		sent, _, room, err := s.encoder.Queue(s.peer, list)
		s.sent += int64(sent)
		if err != nil || !room {
			return
		}
	}
}

func (s *talk) Close(reason error) {
	s.closes.Add(1)
	s.closed <- reason
}

// talkService has the methods Talk and Echo, which open sessions. Those of Talk have three
// responses to be filled, from before they are open; those of Echo are for messages that are
// answered in Receive, since a session sends in one way only. One that is to be rejected does not
// open.
func talkService(opened chan *talk, reject *atomic.Bool) Service {
	method := func(name string, due int64) Method {
		return Method{Name: name, ClientStreams: true, ServerStreams: true,
			NewRequest: func() any { return new(wrapperspb.StringValue) },
			Open: func(p Peer) (Session, error) {
				if reject.Load() {
					return nil, status.Error(codes.PermissionDenied, "not open")
				}
				s := &talk{peer: p, closed: make(chan error, 10)}
				if s.due.Store(due); due > 0 {
					p.Wake() // before it is open
					if c, ok := p.(*sessionCall); ok {
						// until the writer has seen it
						for early := false; !early; runtime.Gosched() {
							c.mu.Lock()
							early = c.mu.early
							c.mu.Unlock()
						}
					}
				}
				opened <- s
				return s, nil
			}}
	}
	return Service{"test.Talks", []Method{method("Talk", 3), method("Echo", 0)}}
}

// rawBytes is a codec for messages as they are.
type rawBytes struct{}

func (rawBytes) Name() string { return "proto" }
func (rawBytes) Marshal(v any) ([]byte, error) {
	return *v.(*[]byte), nil
}
func (rawBytes) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), b...)
	return nil
}

func receiveWithin[T any](t *testing.T, from chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(time.Minute):
		t.Fatal("nothing arrives")
		panic("not reached")
	}
}

// TestSession: what a session sends arrives, and each end of a stream is notified once with its
// reason.
func TestSession(t *testing.T) {
	onBoth(t, func(t *testing.T, ours bool) {
		opened := make(chan *talk, 10)
		var reject atomic.Bool
		_, addr := startServer(t, ours,
			func(o *Options) { o.Services = append(o.Services, talkService(opened, &reject)) })
		cc, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer cc.Close()
		begin := func(method string, opts ...grpc.CallOption) (grpc.ClientStream, *talk,
			context.CancelFunc) {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			opts = append(opts, grpc.ForceCodec(rawBytes{}))
			s, err := cc.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
				"/test.Talks/"+method, opts...)
			if err != nil {
				t.Fatal(err)
			}
			return s, receiveWithin(t, opened), cancel
		}
		send := func(s grpc.ClientStream, text string) {
			t.Helper()
			b := append([]byte{0x0a, byte(len(text))}, text...)
			if err := s.SendMsg(&b); err != nil && err != io.EOF {
				t.Fatal(err)
			}
		}
		recv := func(s grpc.ClientStream, from, n int64) {
			t.Helper()
			for id := from; id < from+n; id++ {
				var b []byte
				if err := s.RecvMsg(&b); err != nil {
					t.Fatal(err)
				}
				m := wire.WatchResponse{WatchID: id,
					Events: [][]byte{make([]byte, 100), make([]byte, 3)}}
				if id/3%33 == 3 {
					m.Events[0] = make([]byte, 3000)
				}
				if want := string(m.AppendTo(nil)); string(b) != want {
					t.Fatalf("response %d has %d bytes, want %d", id, len(b), len(want))
				}
			}
		}
		finish := func(s grpc.ClientStream, x *talk, code codes.Code) {
			t.Helper()
			for {
				var b []byte
				err := s.RecvMsg(&b)
				if err == nil {
					continue
				}
				if err == io.EOF {
					err = nil
				}
				if status.Code(err) != code {
					t.Errorf("ended with %v, want %v", err, code)
				}
				break
			}
			if reason := receiveWithin(t, x.closed); status.Code(reason) != code {
				t.Errorf("closed because of %v, want %v", reason, code)
			}
		}
		t.Run("fill", func(t *testing.T) {
			for each, opts := range map[int64][]grpc.CallOption{500: nil,
				10: {grpc.UseCompressor("gzip")}} {
				s, x, cancel := begin("Talk", opts...)
				defer cancel()
				recv(s, 0, 3)
				for i := range int64(10) {
					send(s, fmt.Sprint(each))
					recv(s, 3+each*i, each)
				}
				if err := s.CloseSend(); err != nil {
					t.Fatal(err)
				}
				finish(s, x, codes.OK)
				if x.fault.Load() {
					t.Error("Fill was called concurrently")
				}
			}
		})
		t.Run("end", func(t *testing.T) {
			s, x, cancel := begin("Echo")
			defer cancel()
			for range 300 {
				send(s, "hello")
			}
			send(s, "end")
			finish(s, x, codes.OK)
			if x.fault.Load() {
				t.Error("Receive was called concurrently")
			}
		})
		t.Run("fail", func(t *testing.T) {
			s, x, cancel := begin("Talk")
			defer cancel()
			send(s, "fail")
			finish(s, x, codes.Aborted)
		})
		t.Run("ended by another goroutine", func(t *testing.T) {
			s, x, cancel := begin("Echo")
			defer cancel()
			send(s, "hold")
			send(s, "hello")
			if c, ok := x.peer.(*sessionCall); ok { // it waits until the first one is handled
				for waiting := 0; waiting == 0 && !x.fault.Load(); runtime.Gosched() {
					c.in.mu.Lock()
					if waiting = len(c.in.mu.list); x.taking.Load() == 0 {
						waiting = 0
					}
					c.in.mu.Unlock()
				}
			}
			if x.fault.Load() {
				t.Error("Receive was called concurrently")
			}
			x.peer.End(status.Error(codes.Unavailable, "stopped"))
			finish(s, x, codes.Unavailable)
		})
		t.Run("no message", func(t *testing.T) {
			s, x, cancel := begin("Talk")
			defer cancel()
			b := []byte{0x0a, 0xff}
			if err := s.SendMsg(&b); err != nil {
				t.Fatal(err)
			}
			for {
				if err := s.RecvMsg(&b); status.Code(err) == codes.Internal {
					break
				} else if err != nil {
					t.Fatal(err)
				}
			}
			var received *ReceiveError
			reason := receiveWithin(t, x.closed)
			if !ours && status.Code(reason) == codes.Canceled {
				return // grpc-go ends the context before it reports the error
			}
			if !errors.As(reason, &received) || status.Code(reason) != codes.Internal {
				t.Errorf("closed because of %v", reason)
			}
		})
		t.Run("canceled", func(t *testing.T) {
			for range 50 {
				s, x, cancel := begin("Talk")
				send(s, "10")
				cancel()
				if reason := receiveWithin(t, x.closed); status.Code(reason) != codes.Canceled {
					t.Errorf("closed because of %v", reason)
				}
				runtime.Gosched()
				if n := x.closes.Load(); n != 1 {
					t.Errorf("closed %d times", n)
				}
			}
		})
		t.Run("rejected", func(t *testing.T) {
			reject.Store(true)
			defer reject.Store(false)
			s, err := cc.NewStream(t.Context(),
				&grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/test.Talks/Talk",
				grpc.ForceCodec(rawBytes{}))
			if err != nil {
				t.Fatal(err)
			}
			var b []byte
			if err := s.RecvMsg(&b); status.Code(err) != codes.PermissionDenied {
				t.Errorf("ended with %v", err)
			}
		})
	})
}

// TestSessionsAtStop: Stop ends sessions, and returns after their last call.
func TestSessionsAtStop(t *testing.T) {
	onBoth(t, func(t *testing.T, ours bool) {
		opened := make(chan *talk, 100)
		var reject atomic.Bool
		server, addr := startServer(t, ours,
			func(o *Options) { o.Services = append(o.Services, talkService(opened, &reject)) })
		cc, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer cc.Close()
		var list []*talk
		for range 20 {
			if _, err := cc.NewStream(t.Context(),
				&grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
				"/test.Talks/Talk"); err != nil {
				t.Fatal(err)
			}
			list = append(list, receiveWithin(t, opened))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		server.Stop(ctx)
		for _, x := range list {
			if n := x.closes.Load(); n != 1 {
				t.Errorf("a session was closed %d times", n)
			}
		}
	})
}

// promptTalk is a talk that answers texts that begin with "now" without a wait.
type promptTalk struct {
	talk
	answered atomic.Int32
}

func (s *promptTalk) Answer(message, to []byte) ([]byte, bool) {
	var m wrapperspb.StringValue
	if proto.Unmarshal(message, &m) != nil || !strings.HasPrefix(m.Value, "now") {
		return to, false
	}
	s.answered.Add(1)
	if m.Value == "now large" {
		return append(to, make([]byte, maxPrompt+1)...), true
	}
	return append(to, message...), true
}

// TestPromptSession: messages that are answered without a wait, and others, are answered in order;
// those of a client that does not read wait.
func TestPromptSession(t *testing.T) {
	onBoth(t, func(t *testing.T, ours bool) {
		opened := make(chan *promptTalk, 10)
		_, addr := startServer(t, ours, func(o *Options) {
			o.Services = append(o.Services,
				Service{"test.Prompt",
					[]Method{{Name: "Echo", ClientStreams: true, ServerStreams: true,
						NewRequest: func() any { return new(wrapperspb.StringValue) },
						Open: func(p Peer) (Session, error) {
							s := &promptTalk{talk: talk{peer: p, closed: make(chan error, 10)}}
							opened <- s
							return s, nil
						}}}})
		})
		cc, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer cc.Close()
		begin := func() (grpc.ClientStream, *promptTalk) {
			t.Helper()
			s, err := cc.NewStream(t.Context(),
				&grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/test.Prompt/Echo")
			if err != nil {
				t.Fatal(err)
			}
			return s, receiveWithin(t, opened)
		}
		s, x := begin()
		texts := make(chan string, 100_000)
		blocked := make(chan struct{})
		go func() {
			defer close(blocked)
			for i := range 5000 {
				text := fmt.Sprintf("now %d %0100d", i, 0)
				if i%10 == 3 {
					text = fmt.Sprintf("later %d", i)
				}
				if err := s.SendMsg(wrapperspb.String(text)); err != nil {
					t.Error(err)
					return
				}
				texts <- text
			}
			if err := s.CloseSend(); err != nil {
				t.Error(err)
			}
		}()
		if c, ok := x.peer.(*sessionCall); ok {
			for waiting := 0; waiting == 0; runtime.Gosched() { // until answers wait for the client
				c.in.mu.Lock()
				waiting = len(c.in.mu.list)
				c.in.mu.Unlock()
			}
			if n := x.answered.Load(); n > 2500 {
				t.Errorf("%d answers for a client that does not read", n)
			}
		}
		for range 5000 {
			var m wrapperspb.StringValue
			if err := s.RecvMsg(&m); err != nil {
				t.Fatal(err)
			}
			if want := receiveWithin(t, texts); m.Value != want {
				t.Fatalf("%q, want %q", m.Value, want)
			}
		}
		if err := s.RecvMsg(new(wrapperspb.StringValue)); err != io.EOF {
			t.Errorf("ended with %v", err)
		}
		<-blocked
		if n := x.answered.Load(); ours && n == 0 || x.fault.Load() {
			t.Errorf("%d answers without a wait; concurrent calls: %v", n, x.fault.Load())
		}
		if reason := receiveWithin(t, x.closed); reason != nil {
			t.Errorf("closed because of %v", reason)
		}
		if !ours {
			return
		}
		s, x = begin()
		for {
			if err := s.SendMsg(wrapperspb.String("now large")); err != nil && err != io.EOF {
				t.Fatal(err)
			}
			err := s.RecvMsg(new(wrapperspb.StringValue))
			if err == nil { // it was answered by Receive
				continue
			}
			if status.Code(err) != codes.Internal {
				t.Errorf("ended with %v", err)
			}
			break
		}
		if reason := receiveWithin(t, x.closed); status.Code(reason) != codes.Internal {
			t.Errorf("closed because of %v", reason)
		}
	})
}

// TestBriefMessages: messages that a session declines to answer at once stay as they are, whatever
// else arrives on the connection.
func TestBriefMessages(t *testing.T) {
	onBoth(t, func(t *testing.T, ours bool) {
		_, addr := startServer(t, ours, func(o *Options) {
			o.Services = append(o.Services,
				Service{"test.Prompt",
					[]Method{{Name: "Echo", ClientStreams: true, ServerStreams: true,
						NewRequest: func() any { return new(wrapperspb.StringValue) },
						Open: func(p Peer) (Session, error) {
							return &promptTalk{talk: talk{peer: p, closed: make(chan error, 10)}},
								nil
						}}}})
		})
		cc, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer cc.Close()
		var running sync.WaitGroup
		for i := range 8 {
			s, err := cc.NewStream(t.Context(),
				&grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/test.Prompt/Echo")
			if err != nil {
				t.Fatal(err)
			}
			running.Go(func() {
				for k := range 500 {
					want := fmt.Sprintf("%s %d %d", []string{"now", "later"}[i%2], i, k)
					var m wrapperspb.StringValue
					if err := s.SendMsg(wrapperspb.String(want)); err != nil {
						t.Error(err)
						return
					}
					if err := s.RecvMsg(&m); err != nil || m.Value != want {
						t.Errorf("%q, %v, want %q", m.Value, err, want)
						return
					}
				}
			})
		}
		running.Wait()
	})
}

// byteCounter counts bytes.
type byteCounter struct{ n atomic.Int64 }

func (c *byteCounter) Add(n float64) { c.n.Add(int64(n)) }

// TestPromptSessionCounts: the bytes of a message count once, whether it is answered without a wait
// or that is declined.
func TestPromptSessionCounts(t *testing.T) {
	onBoth(t, func(t *testing.T, ours bool) {
		received, sent := new(byteCounter), new(byteCounter)
		_, addr := startServer(t, ours, func(o *Options) {
			o.Codec = NewCodec(slog.New(slog.DiscardHandler), received, sent)
			o.Services = append(o.Services,
				Service{"test.Prompt",
					[]Method{{Name: "Echo", ClientStreams: true, ServerStreams: true,
						NewRequest: func() any { return new(wrapperspb.StringValue) },
						Open: func(p Peer) (Session, error) {
							return &promptTalk{talk: talk{peer: p, closed: make(chan error, 10)}},
								nil
						}}}})
		})
		cc, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer cc.Close()
		s, err := cc.NewStream(t.Context(),
			&grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/test.Prompt/Echo")
		if err != nil {
			t.Fatal(err)
		}
		want := int64(0)
		for i := range 50 {
			m := wrapperspb.String([]string{"now", "later"}[i%2])
			want += int64(proto.Size(m))
			if err := s.SendMsg(m); err != nil {
				t.Fatal(err)
			}
			if err := s.RecvMsg(new(wrapperspb.StringValue)); err != nil {
				t.Fatal(err)
			}
		}
		if in, out := received.n.Load(), sent.n.Load(); in != want || out != want {
			t.Errorf("%d bytes received and %d sent, want %d", in, out, want)
		}
	})
}
