package h2http

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"vigil/internal/edge/rpc/transport/h2"
)

// handler serves the requests of a connection of package h2.
type handler struct{ *Conn }

func (handler) Values() context.Context { return context.Background() }

// serveOwn serves a handler with this package, and returns the address.
func serveOwn(t testing.TB, h http.Handler, o h2.Options) string {
	t.Helper()
	l := listen(t)
	o.Workers = h2.NewWorkers(16)
	var serving sync.WaitGroup
	var mu sync.Mutex
	var conns []*h2.Conn
	serving.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			c := h2.New(nc, o)
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			web := &Conn{Handler: h, Logger: slog.New(slog.DiscardHandler),
				Remote: nc.RemoteAddr().String(), Local: nc.LocalAddr()}
			web.Run = func(f func()) { serving.Go(f) }
			serving.Go(func() { _ = c.Serve(handler{web}) }) // of a test that ends its connections
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		serving.Wait() // so do all handlers
		o.Workers.Close()
	})
	return l.Addr().String()
}

// serveOther serves a handler with net/http.
func serveOther(t testing.TB, h http.Handler) string {
	t.Helper()
	l := listen(t)
	s := &http.Server{Handler: h, Protocols: protocols(),
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return l.Addr().String()
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func protocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}

func newClient(t testing.TB) *http.Client {
	tr := &http.Transport{Protocols: protocols(), ExpectContinueTimeout: time.Minute,
		DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: time.Minute}
}

// answers are what handlers of the test do.
var answers = map[string]http.HandlerFunc{
	"/nothing": func(http.ResponseWriter, *http.Request) {},
	"/hello":   func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") },
	"/html": func(w http.ResponseWriter,
		_ *http.Request) {
		io.WriteString(w, "<html><body>x")
	},
	"/error": func(w http.ResponseWriter,
		_ *http.Request) {
		http.Error(w, "no", http.StatusTeapot)
	},
	"/empty": func(w http.ResponseWriter,
		_ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	},
	"/found": func(w http.ResponseWriter,
		r *http.Request) {
		http.Redirect(w, r, "/hello?x=1", http.StatusFound)
	},
	"/same": func(w http.ResponseWriter,
		_ *http.Request) {
		w.WriteHeader(http.StatusNotModified)
	},
	"/notfound": http.NotFound,
	"/typed": func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Add("X-Many", "a")
		h.Add("X-Many", "b")
		h.Set("Connection", "close")
		h["Set-Cookie"] = []string{"a=b", "c=d"}
		w.WriteHeader(http.StatusAccepted)
		h.Set("X-Late", "not sent")
		io.WriteString(w, "{}")
	},
	"/encoded": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		io.WriteString(w, "not really")
	},
	"/length": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		io.WriteString(w, "0123456789")
	},
	"/flushed": func(w http.ResponseWriter, _ *http.Request) {
		for i := range 5 {
			fmt.Fprint(w, i)
			w.(http.Flusher).Flush()
		}
	},
	"/flushed-first": func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		io.WriteString(w, "after")
	},
	"/large": func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		rest := pattern(n)
		for size := 1; len(rest) > 0; size = size*3 + 1 {
			k := min(size, len(rest))
			if n, err := w.Write(rest[:k]); n != k || err != nil {
				return
			}
			rest = rest[k:]
		}
	},
	"/echo": func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%x %d %v", sha256.Sum256(b), len(b), err)
	},
	"/ignore": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "body not read") },
	"/request": func(w http.ResponseWriter, r *http.Request) {
		var fields []string
		for name, values := range r.Header {
			if name != "User-Agent" {
				fields = append(fields, fmt.Sprintf("%s=%q", name, values))
			}
		}
		slices.Sort(fields)
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		addr, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		fmt.Fprintln(w, r.Method, r.URL, r.RequestURI, r.Proto, r.Host != "", r.ContentLength, host,
			addr != nil, r.TLS, fields, r.Cookies())
	},
	"/panic": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	"/late-write": func(w http.ResponseWriter, r *http.Request) {
		must(http.NewResponseController(w).SetWriteDeadline(time.Now().Add(-time.Second)))
		<-r.Context().Done()
	},
	"/in-time": func(w http.ResponseWriter, _ *http.Request) {
		c := http.NewResponseController(w)
		must(c.SetWriteDeadline(time.Now().Add(time.Hour)))
		must(c.SetReadDeadline(time.Now().Add(time.Hour)))
		must(c.SetWriteDeadline(time.Time{}))
		must(c.EnableFullDuplex())
		io.WriteString(w, "in time")
	},
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

func mux() http.Handler {
	m := http.NewServeMux()
	for path, h := range answers {
		m.Handle(path, h)
	}
	return m
}

// show describes an answer.
func show(res *http.Response, err error) string {
	if err != nil {
		var stream http2.StreamError
		if errors.As(err, &stream) {
			return "reset " + stream.Code.String()
		}
		text := err.Error() // of the copy in net/http, whose type is not exported
		if _, after, ok := strings.Cut(text, "; "); ok {
			return "reset " + strings.TrimSuffix(after, "; received from peer")
		}
		return text
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		_, e := fmt.Sscan(show(nil, err))
		return fmt.Sprint(res.StatusCode, " ", show(nil, err), e != nil)
	}
	res.Header.Del("Date")
	var fields []string
	for _, name := range slices.Sorted(maps.Keys(res.Header)) {
		fields = append(fields, fmt.Sprintf("%s=%q", name, res.Header[name]))
	}
	return fmt.Sprintf("%d %v length %d: %d %x", res.StatusCode, fields, res.ContentLength, len(b),
		sha256.Sum256(b))
}

// TestSameAnswers: a handler has the same requests, and its client the same answers, as with
// net/http.
func TestSameAnswers(t *testing.T) {
	client := newClient(t)
	client.CheckRedirect = func(*http.Request,
		[]*http.Request) error {
		return http.ErrUseLastResponse
	}
	own, other := "http://"+serveOwn(t, mux(), h2.Options{}), "http://"+serveOther(t, mux())
	type request struct {
		method, path string
		body         io.Reader
		header       http.Header
	}
	var requests []func() request
	for _, path := range slices.Sorted(maps.Keys(answers)) {
		for _, method := range []string{"GET", "POST", "HEAD"} {
			if path == "/request" && method == "HEAD" {
				continue // its answer has the port
			}
			requests = append(requests,
				func() request { return request{method: method, path: path} })
		}
	}
	for _, n := range []int{0, 1, 100, 4095, 4096, 4097, 16 << 10, 64 << 10, 1 << 20, 3 << 20} {
		requests = append(requests,
			func() request {
				return request{method: "POST", path: "/echo",
					body: bytes.NewReader(pattern(n))}
			},
			func() request {
				return request{method: "PUT", path: "/echo",
					body: struct{ io.Reader }{bytes.NewReader(pattern(n))}}
			}, // of unknown length
			func() request {
				return request{method: "POST", path: "/ignore",
					body: bytes.NewReader(pattern(n))}
			},
			func() request {
				return request{method: "POST", path: "/echo", body: bytes.NewReader(pattern(n)),
					header: http.Header{"Expect": {"100-continue"}}}
			},
			func() request { return request{method: "GET", path: fmt.Sprint("/large?n=", n)} })
	}
	requests = append(requests,
		func() request {
			return request{method: "DELETE", path: "/request?a=b&c=%20/x",
				header: http.Header{"Cookie": {"a=b; c=d", "e=f"}, "X-Y": {"1", "2"}}}
		},
		func() request { return request{method: "OPTIONS", path: "/request"} },
		func() request {
			return request{method: "POST", path: "/request",
				body: strings.NewReader("12345")}
		},
		func() request { return request{method: "GET", path: "//a//../b"} },
	)
	for _, make := range requests {
		var got [2]string
		var name string
		for i, base := range []string{own, other} {
			m := make()
			name = m.method + " " + m.path
			r, err := http.NewRequest(m.method, base+m.path, m.body)
			if err != nil {
				t.Fatal(err)
			}
			if m.header != nil {
				r.Header = m.header
			}
			got[i] = show(client.Do(r))
		}
		if got[0] != got[1] && !strings.HasSuffix(name, "/request") {
			t.Errorf("%s: answered with\n%s, net/http with\n%s", name, got[0], got[1])
		}
	}
	// What the handler has seen of the request.
	for _, m := range []string{"GET", "OPTIONS", "DELETE"} {
		var got [2]string
		for i, base := range []string{own, other} {
			r, err := http.NewRequest(m, base+"/request?a=b", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Add("Cookie", "a=b; c=d")
			r.Header["X-Y"] = []string{"1", "2"}
			res, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := io.ReadAll(res.Body)
			res.Body.Close()
			got[i] = string(b)
		}
		if got[0] != got[1] {
			t.Errorf("the request is\n%s, with net/http\n%s", got[0], got[1])
		}
	}
}

// TestPanic: a handler that panics resets its stream, also after the beginning of its answer, and
// the connection goes on.
func TestPanic(t *testing.T) {
	begun := make(chan struct{})
	m := http.NewServeMux()
	m.HandleFunc("/panic", func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		<-begun
		panic("a mistake")
	})
	m.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
	base, client := "http://"+serveOwn(t, m, h2.Options{}), newClient(t)
	res, err := client.Get(base + "/panic")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	close(begun)
	if _, err := io.ReadAll(res.Body); err == nil ||
		!strings.Contains(err.Error(), "INTERNAL_ERROR") {
		t.Errorf("the answer has ended with %v", err)
	}
	if res, err := client.Get(base); err != nil || res.StatusCode != 200 {
		t.Errorf("after a panic: %v, %v", res, err)
	}
}

// TestContinue: a client that waits for consent gets it.
func TestContinue(t *testing.T) {
	addr := serveOwn(t, mux(), h2.Options{})
	got := 0
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, _ textproto.MIMEHeader) error { got = code; return nil },
	})
	r, err := http.NewRequestWithContext(ctx, "POST", "http://"+addr+"/echo",
		strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Expect", "100-continue")
	res, err := newClient(t).Do(r)
	if err != nil || res.StatusCode != 200 || got != 100 {
		t.Errorf("%v, %v, %d", res, err, got)
	}
	res.Body.Close()
}

// TestConversation: both directions are open at once, and the handler notices that the client is
// gone.
func TestConversation(t *testing.T) {
	gone := make(chan error, 1)
	addr := serveOwn(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		buf := make([]byte, 1<<10)
		for {
			n, err := r.Body.Read(buf)
			if n > 0 {
				w.Write(buf[:n])
				c.Flush()
			}
			if err != nil {
				<-r.Context().Done()
				_, e := w.Write(make([]byte, 10_000))
				gone <- e
				return
			}
		}
	}), h2.Options{})
	in, out := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "POST", "http://"+addr, in)
	if err != nil {
		t.Fatal(err)
	}
	go out.Write([]byte("first"))
	res, err := newClient(t).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	for _, text := range []string{"first", "second", "third"} {
		if text != "first" {
			go out.Write([]byte(text))
		}
		got := make([]byte, len(text))
		if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != text {
			t.Fatalf("%q, %v", got, err)
		}
	}
	cancel()
	out.CloseWithError(context.Canceled) // net/http reads on before it resets the stream
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("writing for a client that is gone: %v", err)
	}
}

// rawConn is a client of frames.
type rawConn struct {
	*http2.Framer
	nc    net.Conn
	block bytes.Buffer
	enc   *hpack.Encoder
}

func dialRaw(t testing.TB, addr string, settings ...http2.Setting) *rawConn {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	must(nc.SetDeadline(time.Now().Add(time.Minute)))
	c := &rawConn{Framer: http2.NewFramer(nc, nc), nc: nc}
	c.enc = hpack.NewEncoder(&c.block)
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if _, err := io.WriteString(nc, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	must(c.WriteSettings(settings...))
	return c
}

func (c *rawConn) request(id uint32, end bool, fields ...string) {
	c.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		must(c.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	must(c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true, EndStream: end,
		BlockFragment: c.block.Bytes()}))
}

func get(path string) []string {
	return []string{":method", "GET", ":scheme", "http", ":path", path, ":authority", "x"}
}

// TestInvalid: requests that HTTP/2 allows and HTTP does not have a status, and the connection goes
// on.
func TestInvalid(t *testing.T) {
	c := dialRaw(t, serveOwn(t, mux(), h2.Options{}))
	for i, r := range [][]string{
		{":method", "CONNECT", ":scheme", "http", ":path", "/x", ":authority", "x"},
		get("nopath"), get("/%zz"), get("/hello"),
	} {
		id := uint32(2*i + 1)
		c.request(id, true, r...)
		want := "400"
		if i == 3 {
			want = "200"
		}
		for {
			f, err := c.ReadFrame()
			if err != nil {
				t.Fatalf("%q: %v", r, err)
			}
			if f, ok := f.(*http2.RSTStreamFrame); ok && f.StreamID == id {
				t.Fatalf("%q: reset with %v", r, f.ErrCode)
			}
			if f, ok := f.(*http2.MetaHeadersFrame); ok && f.StreamID == id {
				if got := f.PseudoValue("status"); got != want {
					t.Errorf("%q: %s, want %s", r, got, want)
				}
				break
			}
		}
	}
}

// TestReadDeadline: the handler of a body that does not come is not kept longer than it wants.
func TestReadDeadline(t *testing.T) {
	for _, d := range []time.Duration{-time.Second, 10 * time.Millisecond} {
		failed := make(chan error, 1)
		c := dialRaw(t, serveOwn(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			must(http.NewResponseController(w).SetReadDeadline(time.Now().Add(d)))
			_, err := io.ReadAll(r.Body)
			failed <- err
		}), h2.Options{}))
		c.request(1, false, ":method", "POST", ":scheme", "http", ":path", "/", ":authority", "x")
		must(c.WriteData(1, false, []byte("no end")))
		if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("deadline in %v: %v", d, err)
		}
	}
}

// TestStalledClient: a client that reads nothing has a bounded number of handlers, each with a
// bounded part of its answer, and its further requests are refused.
func TestStalledClient(t *testing.T) {
	var mu sync.Mutex
	written, running := 0, 0
	endless := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		running++
		mu.Unlock()
		for {
			n, err := w.Write(make([]byte, 1<<10))
			mu.Lock()
			written += n
			if err != nil {
				running--
				mu.Unlock()
				return
			}
			mu.Unlock()
		}
	})
	const most = 50
	c := dialRaw(t, serveOwn(t, endless, h2.Options{MaxUnreadBytes: most * requestCost}),
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	for i := range uint32(10 * most) {
		c.request(2*i+1, true, get("/")...)
	}
	for refused := 0; refused < 9*most; {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatalf("%d were refused: %v", refused, err)
		}
		if f, ok := f.(*http2.RSTStreamFrame); ok && f.ErrCode == http2.ErrCodeRefusedStream {
			refused++
		}
	}
	mu.Lock()
	if bound := most * (2*piece + buffered); running > most || written > bound {
		t.Errorf("%d handlers have written %d bytes, want at most %d and %d", running,
			written, most, bound)
	}
	mu.Unlock()
	c.nc.Close() // the handlers end, which the cleanup waits for
}

// TestRandomClient: frames of any size, in any order, of several requests, with padding and resets,
// are the bodies that the handler reads, and no handler is left.
func TestRandomClient(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		c := dialRaw(t, serveOwn(t, mux(), h2.Options{}))
		rest := map[uint32][]byte{}
		for i := range uint32(10) {
			id := 2*i + 1
			c.request(id, false, ":method", "POST", ":scheme", "http", ":path", "/echo",
				":authority", "x")
			rest[id] = pattern(rnd.IntN(30_000))
		}
		want := map[uint32]string{}
		for id, b := range rest {
			want[id] = fmt.Sprintf("%x %d <nil>", sha256.Sum256(b), len(b))
		}
		for len(rest) > 0 {
			for id, b := range rest {
				n := min(rnd.IntN(5000), len(b))
				must(c.WriteDataPadded(id, n == len(b), b[:n], make([]byte, rnd.IntN(256))))
				if rest[id] = b[n:]; n == len(b) {
					delete(rest, id)
				}
				if rnd.IntN(40) == 0 && rest[id] != nil {
					must(c.WriteRSTStream(id, http2.ErrCodeCancel))
					delete(rest, id)
					delete(want, id)
				}
				break
			}
		}
		got := map[uint32]string{}
		for len(want) > 0 {
			f, err := c.ReadFrame()
			if err != nil {
				t.Fatalf("seed %d: %v, without %v", seed, err, want)
			}
			id := f.Header().StreamID
			if f, ok := f.(*http2.DataFrame); ok {
				if got[id] += string(f.Data()); f.StreamEnded() {
					if w, ok := want[id]; ok && got[id] != w {
						t.Fatalf("seed %d: %q, want %q", seed, got[id], w)
					}
					delete(want, id)
				}
			}
		}
	}
}

// TestContentLength: the length of a body is decimal, however many zeros precede it.
func TestContentLength(t *testing.T) {
	got := make(chan string, 1)
	c := dialRaw(t, serveOwn(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		got <- fmt.Sprint(r.ContentLength, len(b), err)
	}), h2.Options{}))
	for i, length := range []string{"10", "010", "0010", "09"} {
		n := map[string]int{"09": 9}[length]
		if n == 0 {
			n = 10
		}
		id := uint32(2*i + 1)
		c.request(id, false, ":method", "POST", ":scheme", "http", ":path", "/", ":authority", "x",
			"content-length", length)
		must(c.WriteData(id, true, make([]byte, n)))
		if got, want := <-got, fmt.Sprint(n, n, nil); got != want {
			t.Errorf("content-length %q: %s, want %s", length, got, want)
		}
	}
}

// TestWriteDeadlineOfTheEnd: a write deadline bounds the rest of an answer too, which is sent after
// the handler has returned.
func TestWriteDeadlineOfTheEnd(t *testing.T) {
	for _, size := range []int{1, piece, piece + 1, 2 * piece} {
		c := dialRaw(t, serveOwn(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			must(http.NewResponseController(w).SetWriteDeadline(time.Now().Add(50 * time.Millisecond)))
			w.Write(make([]byte, size))
		}), h2.Options{}), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		must(c.nc.SetDeadline(time.Now().Add(5 * time.Second)))
		c.request(1, true, get("/")...)
		for {
			f, err := c.ReadFrame()
			if err != nil {
				t.Errorf("%d bytes: not reset: %v", size, err)
				break
			}
			if f, ok := f.(*http2.RSTStreamFrame); ok && f.StreamID == 1 {
				break
			}
		}
	}
}
