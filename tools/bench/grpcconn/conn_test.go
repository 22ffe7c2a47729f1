package grpcconn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// rawCodec lets the server under test handle messages as bytes.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error)      { return *v.(*[]byte), nil }
func (rawCodec) Unmarshal(data []byte, v any) error { *v.(*[]byte) = bytes.Clone(data); return nil }
func (rawCodec) Name() string                       { return "raw" }

// serve runs a grpc-go server whose methods are: /t/echo (each message back), /t/fail, /t/flood
// (4 MiB messages without end), /t/quit (ends at once without reading).
func serve(t *testing.T) (addr string, flooded *counter, stop func()) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	flooded = new(counter)
	s := grpc.NewServer(grpc.ForceServerCodec(rawCodec{}), grpc.MaxRecvMsgSize(64<<20),
		grpc.UnknownServiceHandler(func(_ any, st grpc.ServerStream) error {
			method, _ := grpc.MethodFromServerStream(st)
			switch method {
			case "/t/fail":
				return status.Error(codes.FailedPrecondition, "no: 100% wrong, ü")
			case "/t/quit":
				return nil
			case "/t/flood":
				b := make([]byte, 32<<10)
				for {
					if err := st.SendMsg(&b); err != nil {
						return err
					}
					flooded.add(1)
				}
			}
			if err := st.SendHeader(metadata.Pairs("some", strings.Repeat("x", 100))); err != nil {
				return err
			}
			for {
				var b []byte
				if err := st.RecvMsg(&b); errors.Is(err, io.EOF) {
					return nil
				} else if err != nil {
					return err
				}
				if err := st.SendMsg(&b); err != nil {
					return err
				}
			}
		}))
	go s.Serve(lis)
	t.Cleanup(s.Stop)
	return lis.Addr().String(), flooded, s.Stop
}

type counter struct {
	mu      sync.Mutex
	n       int
	reached map[int]chan struct{} // closed when n is there
}

func (c *counter) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += n
	for at, ch := range c.reached {
		if c.n >= at {
			close(ch)
			delete(c.reached, at)
		}
	}
}

// await waits until the counter has reached at.
func (c *counter) await(at int) {
	c.mu.Lock()
	if c.n >= at {
		c.mu.Unlock()
		return
	}
	if c.reached == nil {
		c.reached = map[int]chan struct{}{}
	}
	ch := make(chan struct{})
	c.reached[at] = ch
	c.mu.Unlock()
	<-ch
}

func (c *counter) get() int { c.mu.Lock(); defer c.mu.Unlock(); return c.n }

// record stores the calls of a handler.
type record struct {
	mu    sync.Mutex
	msgs  [][]byte
	ends  []Status
	ended chan struct{}
	each  func(n int)
}

func newRecord() *record { return &record{ended: make(chan struct{})} }

func (r *record) Message(_ time.Time, msg []byte) {
	r.mu.Lock()
	r.msgs = append(r.msgs, bytes.Clone(msg))
	n := len(r.msgs)
	r.mu.Unlock()
	if r.each != nil {
		r.each(n)
	}
}

func (r *record) End(_ time.Time, s Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ends = append(r.ends, s); len(r.ends) == 1 {
		close(r.ended)
	}
}

func (r *record) wait(t *testing.T) Status {
	t.Helper()
	select {
	case <-r.ended:
	case <-time.After(time.Minute):
		t.Fatal("no end")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ends) != 1 {
		t.Fatalf("ended %d times", len(r.ends))
	}
	return r.ends[0]
}

func dial(t *testing.T, addr string, o Options) *Conn {
	t.Helper()
	c, err := Dial(context.Background(), addr, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestUnaryOfEverySize(t *testing.T) {
	addr, _, _ := serve(t)
	for _, window := range []int{0, 65535} {
		c := dial(t, addr, Options{StreamWindow: window})
		rng := rand.New(rand.NewPCG(1, uint64(window)))
		sizes := []int{0, 1, 255, 16379, 16380, 65530, 65531, 100_000, 5 << 20}
		for range 200 {
			sizes = append(sizes, rng.IntN(70_000))
		}
		recs := make([]*record, len(sizes))
		msgs := make([][]byte, len(sizes))
		for i, n := range sizes {
			msgs[i] = make([]byte, n)
			for j := range msgs[i] {
				msgs[i][j] = byte(i + j*7)
			}
			recs[i] = newRecord()
			_, err := c.Open(fmt.Sprintf("/t/echo%d", i%3), recs[i], msgs[i], true)
			must(t, err)
		}
		must(t, c.Flush())
		for i, r := range recs {
			if s := r.wait(t); s.Err() != nil {
				t.Fatalf("call %d: %v", i, s)
			}
			if len(r.msgs) != 1 || !bytes.Equal(r.msgs[0], msgs[i]) {
				t.Fatalf("call %d of %d bytes: the answer differs", i, sizes[i])
			}
		}
		if got := len(c.mu.streams); got != 0 {
			t.Fatalf("%d streams left", got)
		}
	}
}

func TestStreamKeepsOrder(t *testing.T) {
	addr, _, _ := serve(t)
	c := dial(t, addr, Options{})
	r := newRecord()
	id, err := c.Open("/t/echo", r, nil, false)
	must(t, err)
	const n = 2000
	for i := range n {
		must(t, c.Send(id, []byte(strings.Repeat("m", i%300)+fmt.Sprint(i)), false))
		if i%7 == 0 {
			must(t, c.Flush())
		}
	}
	must(t, c.CloseSend(id))
	must(t, c.Flush())
	if s := r.wait(t); s.Err() != nil {
		t.Fatal(s)
	}
	if len(r.msgs) != n {
		t.Fatalf("%d answers of %d", len(r.msgs), n)
	}
	for i, m := range r.msgs {
		if want := strings.Repeat("m", i%300) + fmt.Sprint(i); string(m) != want {
			t.Fatalf("answer %d is %q", i, m)
		}
	}
}

func TestHandlerMayCall(t *testing.T) {
	addr, _, _ := serve(t)
	c := dial(t, addr, Options{})
	r := newRecord()
	var id uint32
	opened := make(chan struct{})
	r.each = func(n int) {
		<-opened
		if n < 500 {
			_ = c.Send(id, []byte("again"), false)
		} else {
			_ = c.CloseSend(id)
		}
	}
	id, err := c.Open("/t/echo", r, []byte("first"), false)
	must(t, err)
	close(opened)
	must(t, c.Flush())
	if s := r.wait(t); s.Err() != nil || len(r.msgs) != 500 {
		t.Fatalf("%v after %d messages", s, len(r.msgs))
	}
}

func TestErrors(t *testing.T) {
	addr, _, stop := serve(t)
	c := dial(t, addr, Options{})
	open := func(method string, end bool) *record {
		r := newRecord()
		_, err := c.Open(method, r, []byte("x"), end)
		must(t, err)
		must(t, c.Flush())
		return r
	}
	if s := open("/t/fail", true).wait(t); s.Code != uint32(codes.FailedPrecondition) ||
		s.Message != "no: 100% wrong, ü" {
		t.Fatalf("got %v", s)
	}
	if s := open("/t/quit", false).wait(t); s.Err() != nil {
		t.Fatalf("got %v", s)
	}
	waiting := open("/t/echo", false)
	stop()
	if s := waiting.wait(t); s.Code != Unavailable {
		t.Fatalf("after the server stopped: %v", s)
	}
	<-c.Done()
	if _, err := c.Open("/t/echo", newRecord(), nil, true); err == nil {
		t.Fatal("a dead connection opened a stream")
	}
}

func TestCancelAndClose(t *testing.T) {
	addr, _, _ := serve(t)
	c := dial(t, addr, Options{})
	a, b := newRecord(), newRecord()
	idA, err := c.Open("/t/echo", a, []byte("x"), false)
	must(t, err)
	_, err = c.Open("/t/echo", b, []byte("x"), false)
	must(t, err)
	must(t, c.Flush())
	c.Cancel(idA)
	c.Cancel(idA)
	must(t, c.Flush())
	if s := a.wait(t); s.Code != Canceled {
		t.Fatalf("got %v", s)
	}
	// The connection goes on after the reader was woken.
	d := newRecord()
	_, err = c.Open("/t/echo", d, []byte("y"), true)
	must(t, err)
	must(t, c.Flush())
	if s := d.wait(t); s.Err() != nil {
		t.Fatal(s)
	}
	c.Close()
	if s := b.wait(t); s.Code != Unavailable || !strings.Contains(s.Message, ErrClosed.Error()) {
		t.Fatalf("got %v", s)
	}
}

// steady waits until n has moved, and then does not while the server answers many calls on another
// connection.
func steady(t *testing.T, n *counter, addr string) int {
	n.await(1)
	other := dial(t, addr, Options{})
	for last := -1; ; {
		now := n.get()
		if now == last {
			return now
		}
		last = now
		for range 300 {
			_, err := other.Call(t.Context(), "/t/echo", []byte("x"))
			must(t, err)
		}
	}
}

func TestStalledClientsHoldTheServerBack(t *testing.T) {
	for name, o := range map[string]Options{
		"window": {StreamWindow: 65535, HoldStreamWindow: true},
		"socket": {},
	} {
		t.Run(name, func(t *testing.T) {
			addr, flooded, _ := serve(t)
			c := dial(t, addr, o)
			if name == "socket" {
				c.Pause()
			}
			r := newRecord()
			_, err := c.Open("/t/flood", r, nil, true)
			must(t, err)
			must(t, c.Flush())
			before := steady(t, flooded, addr)
			if name == "window" {
				if n := before * 32 << 10; n > 1<<20 {
					t.Fatalf("server sent %d bytes into a window of 64 KiB", n)
				}
				return
			}
			c.Resume()
			flooded.await(before + 1000)
		})
	}
}

// parts counts the bytes of messages taken in parts.
type parts struct {
	record
	size, lasts int
}

func (p *parts) Part(_ time.Time, b []byte, last bool) {
	p.size += len(b)
	if last {
		p.lasts++
	}
}

func TestParts(t *testing.T) {
	addr, _, _ := serve(t)
	c := dial(t, addr, Options{})
	p := &parts{record: record{ended: make(chan struct{})}}
	id, err := c.Open("/t/echo", p, nil, false)
	must(t, err)
	want := 0
	for i := range 20 {
		n := 40_000 + i*1000
		want += n
		must(t, c.Send(id, make([]byte, n), false))
		must(t, c.Send(id, []byte("short"), false))
	}
	must(t, c.CloseSend(id))
	must(t, c.Flush())
	if s := p.wait(t); s.Err() != nil {
		t.Fatal(s)
	}
	short := len(p.msgs) * 5
	if p.size+short != want+100 {
		t.Fatalf("%d bytes in parts and %d in messages, want %d", p.size, short, want+100)
	}
}

func BenchmarkUnary(b *testing.B) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	answer := make([]byte, 30)
	s := grpc.NewServer(grpc.ForceServerCodec(rawCodec{}),
		grpc.UnknownServiceHandler(func(_ any, st grpc.ServerStream) error {
			var m []byte
			if err := st.RecvMsg(&m); err != nil {
				return err
			}
			return st.SendMsg(&answer)
		}))
	go s.Serve(lis)
	defer s.Stop()
	c, err := Dial(context.Background(), lis.Addr().String(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	msg := make([]byte, 300)
	var wg sync.WaitGroup
	wg.Add(100)
	left := b.N
	var next func(time.Time, Status)
	next = func(_ time.Time, st Status) {
		if st.Err() != nil {
			b.Error(st)
		}
		if left <= 0 {
			wg.Done()
			return
		}
		left--
		if _, err := c.Open("/t/echo", endFunc(next), msg, true); err != nil {
			b.Error(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	c.Pause()
	for range 100 {
		left--
		if _, err := c.Open("/t/echo", endFunc(next), msg, true); err != nil {
			b.Fatal(err)
		}
	}
	c.Resume()
	c.Flush()
	wg.Wait()
}

type endFunc func(time.Time, Status)

func (endFunc) Message(time.Time, []byte)    {}
func (f endFunc) End(at time.Time, s Status) { f(at, s) }
