package portmux

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// patience is how long a test waits for something that must come.
const patience = 30 * time.Second

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// serve starts a Mux whose two sides echo what they get, behind their own letter.
func serve(t *testing.T, o Options) (m *Mux, dial func() net.Conn) {
	t.Helper()
	before := runtime.NumGoroutine()
	l := listen(t)
	m, err := New(l, o)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- m.Serve() }()
	side := func(l net.Listener, letter string) {
		for {
			c, err := l.Accept()
			if err != nil {
				if !errors.Is(err, net.ErrClosed) {
					t.Errorf("accept: %v", err)
				}
				return
			}
			go func() {
				defer c.Close()
				if _, err := io.WriteString(c, letter); err != nil {
					return
				}
				io.Copy(c, c)
			}()
		}
	}
	go side(m.HTTP1(), "1")
	go side(m.HTTP2(), "2")
	t.Cleanup(func() {
		m.Close()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		deadline := time.Now().Add(patience)
		for runtime.NumGoroutine() > before {
			if time.Now().After(deadline) {
				buf := make([]byte, 1<<16)
				t.Fatalf("goroutines are left:\n%s", buf[:runtime.Stack(buf, true)])
			}
			runtime.Gosched()
		}
	})
	return m, func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(patience))
		return c
	}
}

// expect reads exactly the wanted bytes.
func expect(t *testing.T, c net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("read %q (%v), want %q", got, err, want)
	}
}

func TestDecides(t *testing.T) {
	_, dial := serve(t, Options{})
	for _, c := range []struct{ side, bytes string }{
		{"2", preface},
		{"2", preface + "and more"},
		{"1", "GET / HTTP/1.1\r\n\r\n"},
		{"1", "POST /v3/kv/put HTTP/1.1\r\n\r\n"},
		{"1", "PRI * HTTP/1.1\r\n\r\n"},
		{"1", "PUT"},
		{"1", "\x00"},
		{"1", preface[:len(preface)-1] + "x"},
		{"1", strings.ToLower(preface)},
	} {
		conn := dial()
		if _, err := io.WriteString(conn, c.bytes); err != nil {
			t.Fatal(err)
		}
		expect(t, conn, c.side+c.bytes)
		// A byte at a time.
		conn = dial()
		for i := range len(c.bytes) {
			if _, err := conn.Write([]byte{c.bytes[i]}); err != nil {
				t.Fatal(err)
			}
		}
		expect(t, conn, c.side+c.bytes)
	}
}

func TestGarbage(t *testing.T) {
	_, dial := serve(t, Options{})
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		b := make([]byte, 1+r.IntN(100))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		copy(b, preface[:r.IntN(len(preface))])
		side := "1"
		switch {
		case bytes.HasPrefix(b, []byte(preface)):
			side = "2"
		case strings.HasPrefix(preface, string(b)):
			continue // undecided
		}
		conn := dial()
		if _, err := conn.Write(b); err != nil {
			t.Fatal(err)
		}
		expect(t, conn, side+string(b))
	}
}

// closed waits until the other side closes the connection.
func closed(t *testing.T, c net.Conn) {
	t.Helper()
	if b, err := io.ReadAll(c); len(b) > 0 || errors.Is(err, net.ErrClosed) || isTimeout(err) {
		t.Fatalf("read %q (%v), want the end", b, err)
	}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

func TestSilentClients(t *testing.T) {
	// They delay no others.
	_, dial := serve(t, Options{})
	dial()
	conn := dial()
	if _, err := io.WriteString(conn, "GET "); err != nil {
		t.Fatal(err)
	}
	expect(t, conn, "1GET ")

	_, dial = serve(t, Options{Timeout: 50 * time.Millisecond})
	conn = inTime(func() (net.Conn, error) {
		c := dial()
		_, err := io.WriteString(c, "GET ")
		if err == nil {
			_, err = io.ReadFull(c, make([]byte, len("1GET ")))
		}
		return c, err
	})
	silent, half := dial(), dial()
	if _, err := io.WriteString(half, preface[:10]); err != nil {
		t.Fatal(err)
	}
	closed(t, silent)
	closed(t, half)
	// The deadline is over once it is decided.
	if _, err := io.WriteString(conn, "still here"); err != nil {
		t.Fatal(err)
	}
	expect(t, conn, "still here")
	// One that leaves early.
	gone := dial()
	if _, err := io.WriteString(gone, "PRI"); err != nil {
		t.Fatal(err)
	}
	gone.Close()
}

// inTime connects again until try has come to its end: a busy machine may take longer than
// Options.Timeout for it.
func inTime[C net.Conn](try func() (C, error)) C {
	for {
		if c, err := try(); err == nil {
			return c
		}
	}
}

func TestEvictsTheOldest(t *testing.T) {
	_, dial := serve(t, Options{MaxPending: 3})
	var silent []net.Conn
	for range 5 {
		silent = append(silent, dial())
	}
	closed(t, silent[0])
	closed(t, silent[1])
	for _, c := range silent[3:] {
		if _, err := io.WriteString(c, preface); err != nil {
			t.Fatal(err)
		}
		expect(t, c, "2"+preface)
	}
}

func TestCloseEndsThePending(t *testing.T) {
	m, dial := serve(t, Options{})
	silent := dial()
	decided := dial()
	if _, err := io.WriteString(decided, "x"); err != nil {
		t.Fatal(err)
	}
	expect(t, decided, "1x")
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	closed(t, silent)
	// What was handed over belongs to others.
	if _, err := io.WriteString(decided, "y"); err != nil {
		t.Fatal(err)
	}
	expect(t, decided, "y")
	if _, err := m.HTTP2().Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept: %v", err)
	}
	m.Close()
	decided.Close()
}

// TestOneSideCloses: connections for a side that is closed are refused, the other goes on.
func TestOneSideCloses(t *testing.T) {
	m, dial := serve(t, Options{})
	m.HTTP1().Close()
	first, second := dial(), dial()
	if _, err := io.WriteString(first, "GET /"); err != nil {
		t.Fatal(err)
	}
	closed(t, first)
	if _, err := io.WriteString(second, preface); err != nil {
		t.Fatal(err)
	}
	expect(t, second, "2"+preface)
}

// flaky fails to accept now and then, as if out of file descriptors.
type flaky struct {
	net.Listener
	n atomic.Int64
}

func (f *flaky) Accept() (net.Conn, error) {
	if f.n.Add(1)%2 == 1 {
		return nil, errors.New("too many open files")
	}
	return f.Listener.Accept()
}

func TestAcceptErrors(t *testing.T) {
	l := listen(t)
	m, err := New(&flaky{Listener: l}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- m.Serve() }()
	for range 3 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(c, "GET")
		conn, err := m.HTTP1().Accept()
		if err != nil {
			t.Fatal(err)
		}
		expect(t, conn, "GET")
		conn.Close()
		c.Close()
	}
	m.Close()
	if err := <-served; err != nil {
		t.Fatal(err)
	}

	// A listener that is closed by others is an error.
	m, err = New(listen(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	m.root.Close() // by others than Close
	if err := m.Serve(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("serve: %v", err)
	}
	m.Close()
	if _, err := New(nil, Options{Timeout: -1, MaxPending: -1}); err == nil ||
		!strings.Contains(err.Error(), "Timeout") || !strings.Contains(err.Error(), "MaxPending") {
		t.Errorf("error %v", err)
	}
}

// TestRealServers puts the two servers behind it that it is made for.
func TestRealServers(t *testing.T) {
	l := listen(t)
	m, err := New(l, Options{})
	if err != nil {
		t.Fatal(err)
	}
	go m.Serve()
	defer m.Close()
	h1 := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		fmt.Fprint(w, r.Proto)
	})}
	go h1.Serve(m.HTTP1())
	defer h1.Close()
	res, err := http.Get("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil || string(body) != "HTTP/1.1" {
		t.Errorf("%q, %v", body, err)
	}

	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, preface)
	if err := http2.NewFramer(c, nil).WriteSettings(); err != nil {
		t.Fatal(err)
	}
	conn, err := m.HTTP2().Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	expectPreface := make([]byte, len(preface))
	if _, err := io.ReadFull(r, expectPreface); err != nil || string(expectPreface) != preface {
		t.Fatalf("%q, %v", expectPreface, err)
	}
	f, err := http2.NewFramer(nil, r).ReadFrame()
	if err != nil || f.Header().Type != http2.FrameSettings {
		t.Errorf("%v, %v", f, err)
	}
}

// TestDrain ends the accepting while connections are in every state that they can be in.
func TestDrain(t *testing.T) {
	root, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(root, Options{Timeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- m.Serve() }()
	var mu sync.Mutex
	got := map[string]int{}
	var accepting sync.WaitGroup
	for name, l := range map[string]net.Listener{"http1": m.HTTP1(), "http2": m.HTTP2()} {
		accepting.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				t.Cleanup(func() { c.Close() })
				mu.Lock()
				got[name]++
				mu.Unlock()
			}
		})
	}
	open := func(said string) net.Conn {
		c, err := net.Dial("tcp", root.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := c.Write([]byte(said)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	silent, half := open(""), open(preface[:10])
	open(preface) // may have made a request, and is served
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		m.mu.Lock()
		n := m.mu.pending.Len()
		m.mu.Unlock()
		mu.Lock()
		decided := got["http2"]
		mu.Unlock()
		if n == 2 && decided == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are undecided, %d are handed over", n, decided)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := m.Drain(ctx); err != nil || ctx.Err() != nil {
		t.Fatalf("%v, %v: it waits for those that are undecided", err, ctx.Err())
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	for _, c := range []net.Conn{silent, half} {
		_ = c.SetReadDeadline(time.Now().Add(patience))
		if n, err := c.Read(make([]byte, 1)); err == nil || n > 0 ||
			errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("an undecided connection is open: %v", err)
		}
	}
	if c, err := net.Dial("tcp", root.Addr().String()); err == nil {
		c.Close()
		t.Error("it still listens")
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	accepting.Wait()
	if got["http2"] != 1 || got["http1"] != 0 {
		t.Errorf("handed over: %v", got)
	}
}

// TestRefused: a client whose protocol no server accepts sees the end of its connection, and no
// reset.
func TestRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(l, Options{})
	if err != nil {
		t.Fatal(err)
	}
	m.HTTP1().Close()
	served := make(chan error, 1)
	go func() { served <- m.Serve() }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "INVALID CONNECTION PREFACE\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, c); n > 0 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if err := errors.Join(m.Close(), <-served); err != nil {
		t.Error(err)
	}
}
