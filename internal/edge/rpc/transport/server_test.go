package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func dial(t testing.TB, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func invoke(ctx context.Context, conn *grpc.ClientConn, method, in string,
	o ...grpc.CallOption) (string, error) {
	out := new(wrapperspb.StringValue)
	err := conn.Invoke(ctx, "/"+testService+"/"+method, text(in), out, o...)
	return out.Value, err
}

func chat(t testing.TB, ctx context.Context, conn *grpc.ClientConn) grpc.ClientStream {
	t.Helper()
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
		"/"+testService+"/Chat")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestClient makes calls of all kinds concurrently with the client of grpc-go.
func TestClient(t *testing.T) {
	onBoth(t, func(t *testing.T, ours bool) {
		_, addr := startServer(t, ours, nil)
		var wg sync.WaitGroup
		for i := range 4 {
			conn := dial(t, addr)
			for j := range 10 {
				wg.Go(func() {
					for n := range 20 {
						in := strings.Repeat(fmt.Sprint(i, j, n), 1+n*n*10)
						o := []grpc.CallOption{}
						if n%3 == 0 {
							o = append(o, grpc.UseCompressor(gzip.Name))
						}
						ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
						if out, err := invoke(ctx, conn, "Echo", in,
							o...); err != nil || out != in {
							t.Errorf("%d bytes came back as %d, %v", len(in), len(out), err)
						}
						cancel()
					}
				})
			}
			wg.Go(func() {
				s := chat(t, t.Context(), conn)
				for n := range 50 {
					in, out := strings.Repeat("word", 500*(n%40)), new(wrapperspb.StringValue)
					if err := s.SendMsg(text(in)); err != nil {
						t.Error(err)
						return
					}
					if err := s.RecvMsg(out); err != nil || out.Value != in {
						t.Errorf("%d bytes came back as %d, %v", len(in), len(out.Value), err)
						return
					}
				}
				if err := s.CloseSend(); err != nil {
					t.Error(err)
				}
				if err := s.RecvMsg(text("")); err != io.EOF {
					t.Errorf("the end is %v", err)
				}
			})
		}
		wg.Wait()
	})
}

// TestEnds: deadlines and cancellation reach the handler, and its status the client.
func TestEnds(t *testing.T) {
	onBoth(t, func(t *testing.T, ours bool) {
		ended, expired := make(chan error, 1), make(chan error, 1)
		var entered atomic.Bool
		_, addr := startServer(t, ours, func(o *Options) {
			o.Services[0].Methods = append(o.Services[0].Methods,
				Method{Name: "Hold", ClientStreams: true, ServerStreams: true,
					Stream: func(s Stream) error {
						err := s.RecvMsg(text(""))
						ended <- err
						return err
					}}, unaryMethod("Ends", func(ctx context.Context, _ string) (string, error) {
					entered.Store(true)
					<-ctx.Done()
					select {
					case expired <- ctx.Err():
					default: // an earlier call has arrived too
					}
					return "", ctx.Err()
				}))
		})
		conn := dial(t, addr)
		for !entered.Load() { // the time may be over before the call has arrived
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			if _, err := invoke(ctx, conn, "Ends", ""); status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("error %v", err)
			}
			cancel()
		}
		// the client also resets
		if err := <-expired; err != context.DeadlineExceeded && err != context.Canceled {
			t.Errorf("handler: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
			"/"+testService+"/Hold"); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := <-ended; status.Code(err) != codes.Canceled {
			t.Errorf("handler: %v", err)
		}
		// The end of the connection ends its calls.
		other := dial(t, addr)
		if _, err := other.NewStream(t.Context(),
			&grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
			"/"+testService+"/Hold"); err != nil {
			t.Fatal(err)
		}
		// the stream has arrived before
		if _, err := invoke(t.Context(), other, "Echo", ""); err != nil {
			t.Fatal(err)
		}
		other.Close()
		if err := <-ended; status.Code(err) != codes.Canceled {
			t.Errorf("handler: %v", err)
		}
	})
}

// TestSlowReader: a stream that is not read blocks its handler and no other call.
func TestSlowReader(t *testing.T) {
	onBoth(t, func(t *testing.T, ours bool) {
		var sent atomic.Int64
		_, addr := startServer(t, ours, func(o *Options) {
			o.Services[0].Methods = append(o.Services[0].Methods,
				Method{Name: "Endless", ServerStreams: true, Stream: func(s Stream) error {
					for {
						if err := s.SendMsg(text(strings.Repeat("x", 10_000))); err != nil {
							return err
						}
						sent.Add(1)
					}
				}})
		})
		conn := dial(t, addr)
		s, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true},
			"/"+testService+"/Endless")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.SendMsg(text("")), s.CloseSend()); err != nil {
			t.Fatal(err)
		}
		for range 50 {
			if _, err := invoke(t.Context(), conn, "Echo", "hello"); err != nil {
				t.Fatal(err)
			}
		}
		if n := sent.Load(); n > 100 {
			t.Errorf("%d messages were sent to a client that does not read", n)
		}
	})
}

// TestStopFinishes: Stop waits for the calls under way, and rejects new ones.
func TestStopFinishes(t *testing.T) {
	onBoth(t, func(t *testing.T, ours bool) {
		entered, release := make(chan struct{}), make(chan struct{})
		s, addr := startServer(t, ours, func(o *Options) {
			o.Services[0].Methods = append(o.Services[0].Methods,
				unaryMethod("Slow", func(context.Context, string) (string, error) {
					close(entered)
					<-release
					return "done", nil
				}))
		})
		conn := dial(t, addr)
		result := make(chan string, 1)
		go func() {
			out, err := invoke(context.Background(), conn, "Slow", "")
			result <- fmt.Sprint(out, err)
		}()
		<-entered
		idle, err := net.Dial("tcp", addr) // a client without a handshake holds nothing up
		if err != nil {
			t.Fatal(err)
		}
		defer idle.Close()
		stopped := make(chan struct{})
		go func() {
			s.Stop(context.Background())
			close(stopped)
		}()
		for {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				break
			}
			c.Close()
		}
		select {
		case <-stopped:
			t.Error("stopped while a call was under way")
		default:
		}
		close(release)
		if got := <-result; got != "done<nil>" {
			t.Errorf("the call under way: %v", got)
		}
		<-stopped
	})
}

// TestStopCancels: Stop cancels the calls when its time is over.
func TestStopCancels(t *testing.T) {
	onBoth(t, func(t *testing.T, ours bool) {
		s, addr := startServer(t, ours, nil)
		conn := dial(t, addr)
		st := chat(t, t.Context(), conn)
		if err := errors.Join(st.SendMsg(text("a")), st.RecvMsg(text(""))); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s.Stop(ctx)
		if err := st.RecvMsg(text("")); status.Code(err) != codes.Unavailable {
			t.Errorf("error %v", err)
		}
	})
}

// recorder is a stats handler that records what it is notified of.
type recorder struct {
	mu   sync.Mutex
	list []string
}

type tagKey struct{}

func (*recorder) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*recorder) HandleConn(context.Context, stats.ConnStats)                       {}
func (*recorder) TagRPC(ctx context.Context, i *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, tagKey{}, i.FullMethodName)
}

func (r *recorder) HandleRPC(ctx context.Context, s stats.RPCStats) {
	var line string
	switch s := s.(type) {
	case *stats.InHeader:
		line = fmt.Sprint("header ", s.FullMethod, s.LocalAddr != nil, s.RemoteAddr != nil)
	case *stats.Begin:
		line = fmt.Sprint("begin ", s.IsClientStream, s.IsServerStream)
	case *stats.End:
		line = fmt.Sprint("end ", status.Code(s.Error), " of ", ctx.Value(tagKey{}))
	case *stats.InPayload:
		line = fmt.Sprint("in ", s.Length)
	case *stats.OutPayload:
		line = fmt.Sprint("out ", s.Length)
	default:
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, line)
}

// TestHooks: a stats handler sees each call, its context reaches the handler, and the first call of
// a connection is noted.
func TestHooks(t *testing.T) {
	var want []string
	onBoth(t, func(t *testing.T, ours bool) {
		r := &recorder{}
		var made atomic.Int64
		var closed atomic.Int64
		s, addr := startServer(t, ours, func(o *Options) {
			o.Stats = r
			o.CallMade = func(net.Conn) { made.Add(1) }
			o.Services[0].Methods = append(o.Services[0].Methods,
				unaryMethod("Tag", func(ctx context.Context, _ string) (string, error) {
					ClientOf(ctx).AfterClose(func() { closed.Add(1) })
					v := metadata.ValueFromIncomingContext(ctx, "key")
					return fmt.Sprint(ctx.Value(tagKey{}), v), nil
				}), unaryMethod("Cut", func(ctx context.Context, _ string) (string, error) {
					ClientOf(ctx).Cut()
					return "", nil
				}))
		})
		conn := dial(t, addr)
		ctx := metadata.AppendToOutgoingContext(t.Context(), "key", "value")
		for range 2 {
			if out, err := invoke(ctx, conn, "Tag", ""); err != nil ||
				out != "/test.Service/Tag[value]" {
				t.Errorf("%q, %v", out, err)
			}
		}
		if out, err := invoke(t.Context(), conn, "Tag", ""); err != nil ||
			out != "/test.Service/Tag[]" {
			t.Errorf("%q, %v", out, err)
		}
		if _, err := invoke(ctx, conn, "Fail", ""); status.Code(err) != codes.Unavailable {
			t.Error(err)
		}
		st := chat(t, ctx, conn)
		if err := errors.Join(st.SendMsg(text("a")), st.RecvMsg(text("")),
			st.CloseSend()); err != nil {
			t.Error(err)
		}
		if err := st.RecvMsg(text("")); err != io.EOF {
			t.Error(err)
		}
		if made.Load() != 1 {
			t.Errorf("%d first calls", made.Load())
		}
		got := r.ended(5)
		if !ours {
			want = got
		} else if !slices.Equal(got, want) {
			t.Errorf("reported\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if _, err := invoke(ctx, conn, "Cut", ""); status.Code(err) != codes.Unavailable {
			t.Error(err)
		}
		conn.Close()
		s.Stop(t.Context())
		for end := time.Now().Add(time.Minute); closed.Load() != 3; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d of 3 functions were called after the close", closed.Load())
			}
		}
	})
}

// ended waits for the end of n calls, and returns the sorted records.
func (r *recorder) ended(n int) []string {
	for {
		r.mu.Lock()
		list := slices.Sorted(slices.Values(r.list))
		r.mu.Unlock()
		if len(slices.DeleteFunc(slices.Clone(list),
			func(s string) bool { return !strings.HasPrefix(s, "end ") })) == n {
			return list
		}
		time.Sleep(time.Millisecond)
	}
}
