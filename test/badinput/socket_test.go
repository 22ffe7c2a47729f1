package badinput

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"vigil/test/proc"
)

const (
	// idleLimit is the longest a connection that never says anything may stay open.
	idleLimit = 30 * time.Second
	preface   = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
)

func connect(t *testing.T, s *proc.Server) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// closed reads until the other side ends the connection, and returns what came and whether it did.
func closed(c net.Conn, limit time.Duration) ([]byte, bool) {
	_ = c.SetReadDeadline(time.Now().Add(limit))
	b, err := io.ReadAll(c)
	return b, !errors.Is(err, os.ErrDeadlineExceeded)
}

// serves checks that the server answers a client as if nothing had been.
func serves(t *testing.T, s *proc.Server) {
	t.Helper()
	if !s.Running() {
		t.Fatalf("the server has exited:\n%s", s.Log().Tail(30))
	}
	c := s.Client()
	defer c.Close()
	if _, err := c.Put(proc.Context(t), "k", "v"); err != nil {
		t.Errorf("put: %v", err)
	}
}

// TestSilentClients opens connections that never get as far as a request. Each must be closed by
// the server within a limit, and meanwhile all others are served.
func TestSilentClients(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Memory: true})
	start := time.Now()
	var waiting sync.WaitGroup
	for name, sent := range map[string]string{
		"nothing":             "",
		"half a preface":      preface[:11],
		"a preface only":      preface,
		"half a request line": "GET /hea",
		"half a header":       "GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: ",
		"half a TLS hello":    "\x16\x03\x01\x02\x00\x01\x00",
	} {
		c := connect(t, s)
		if _, err := c.Write([]byte(sent)); err != nil {
			t.Fatal(err)
		}
		waiting.Go(func() {
			if _, ok := closed(c, idleLimit); !ok {
				t.Errorf("%s: still open after %s", name, idleLimit)
				return
			}
			t.Logf("%s: closed after %s", name, time.Since(start).Round(100*time.Millisecond))
		})
	}
	serves(t, s)
	waiting.Wait()
	serves(t, s)
}

// TestGarbage sends what is no HTTP, or breaks off in the middle of it.
func TestGarbage(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Memory: true})
	rng := rand.New(rand.NewPCG(1, 2))
	random := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return string(b)
	}
	frame := func(kind byte, stream uint32, payload string) string {
		var b bytes.Buffer
		head := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)),
			kind, 0, 0, 0, 0, 0}
		binary.BigEndian.PutUint32(head[5:], stream)
		b.Write(head)
		b.WriteString(payload)
		return b.String()
	}
	settings := frame(4, 0, "")
	for name, sent := range map[string]string{
		"random bytes":    random(64 << 10),
		"zeros":           strings.Repeat("\x00", 64<<10),
		"lines":           strings.Repeat("\r\n", 10000),
		"an endless line": "GET /" + strings.Repeat("a", 4<<20),
		"an endless header": "GET / HTTP/1.1\r\nHost: x\r\n" +
			strings.Repeat("X-A: "+strings.Repeat("b", 1000)+"\r\n", 4096),
		"unknown version":            "GET / HTTP/9.9\r\n\r\n",
		"no host":                    "GET / HTTP/1.1\r\n\r\n",
		"bad method":                 "\x01\x02 / HTTP/1.1\r\nHost: x\r\n\r\n",
		"a TLS hello":                "\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03" + random(100),
		"a redis command":            "*1\r\n$4\r\nPING\r\n",
		"a preface and random bytes": preface + random(4096),
		"a frame too large":          preface + settings + "\xff\xff\xff\x00\x00\x00\x00\x00\x01",
		"data on stream 0":           preface + settings + frame(0, 0, "x"),
		"data on an idle stream":     preface + settings + frame(0, 5, "x"),
		"headers on stream 0":        preface + settings + frame(1, 0, "\x82"),
		"headers on an even stream":  preface + settings + frame(1, 2, "\x82\x84\x86"),
		"broken header compression": preface + settings +
			frame(1, 1, "\xff\xff\xff\xff\xff\xff\xff\xff"),
		"a push promise":      preface + settings + frame(5, 1, "\x00\x00\x00\x02"),
		"settings of 5 bytes": preface + frame(4, 0, "12345"),
		"a ping of 3 bytes":   preface + settings + frame(6, 0, "123"),
		"a window of 0":       preface + settings + frame(8, 0, "\x00\x00\x00\x00"),
		"a window beyond 2^31": preface + settings + frame(8, 0, "\x7f\xff\xff\xff") +
			frame(8, 0, "\x7f\xff\xff\xff"),
		"continuation from nowhere": preface + settings + frame(9, 1, "\x82"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := connect(t, s)
			// The server may hang up in the middle of it.
			_, _ = c.Write([]byte(sent))
			if cw, ok := c.(*net.TCPConn); ok {
				_ = cw.CloseWrite()
			}
			if b, ok := closed(c, idleLimit); !ok {
				t.Errorf("still open after %s, %q came", idleLimit, b)
			}
			serves(t, s)
		})
	}
	t.Run("hang up at once", func(t *testing.T) {
		for range 200 {
			c := connect(t, s)
			_ = c.(*net.TCPConn).SetLinger(0)
			_, _ = c.Write([]byte(preface[:rng.IntN(len(preface))]))
			_ = c.Close()
		}
		serves(t, s)
	})
	t.Run("many idle connections", func(t *testing.T) {
		for range 300 {
			connect(t, s)
		}
		serves(t, s)
	})
}

// call sends one gRPC request by hand and returns the status that the trailers carry, or what went
// wrong on the way.
func call(t *testing.T, s *proc.Server, path, contentType string, body []byte, end bool) string {
	t.Helper()
	c := connect(t, s)
	if err := c.SetDeadline(time.Now().Add(idleLimit)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, preface); err != nil {
		t.Fatal(err)
	}
	f := http2.NewFramer(c, c)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", path},
		{":authority", s.Addr()},
		{"content-type", contentType}, {"te", "trailers"}} {
		if err := enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{
		f.WriteSettings(),
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(),
			EndHeaders: true}),
		f.WriteData(1, end, body),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if !end {
		_ = c.(*net.TCPConn).CloseWrite()
	}
	result := ""
	for {
		fr, err := f.ReadFrame()
		if err != nil {
			return result + fmt.Sprintf("[%T]", err)
		}
		switch fr := fr.(type) {
		case *http2.MetaHeadersFrame:
			for _, h := range fr.Fields {
				if h.Name == "grpc-status" || h.Name == ":status" && h.Value != "200" {
					result += h.Name + "=" + h.Value + " "
				}
			}
			if fr.StreamEnded() {
				return result
			}
		case *http2.RSTStreamFrame:
			return result + "reset " + fr.ErrCode.String()
		case *http2.GoAwayFrame:
			return result + "goaway " + fr.ErrCode.String()
		case *http2.DataFrame:
			if fr.StreamEnded() {
				return result
			}
		}
	}
}

// What newer versions of grpc-go answer to a unary call that has not exactly one message: there the
// stock server says what its own version of the library does.
var cardinality = map[string]bool{"no message": true, "half a prefix": true, "half a message": true,
	"two messages": true}

const internal = "grpc-status=13 "

// TestBrokenCalls sends gRPC requests whose framing is wrong. A stock etcd defines the answers.
func TestBrokenCalls(t *testing.T) {
	t.Parallel()
	subject := proc.Start(t, proc.Config{Memory: true})
	etcd := proc.Start(t, proc.Config{Program: proc.Etcd, Memory: true})
	message := func(flag byte, length uint32, body string) []byte {
		b := binary.BigEndian.AppendUint32([]byte{flag}, length)
		return append(b, body...)
	}
	const grpcType = "application/grpc"
	const put = "/etcdserverpb.KV/Put"
	ok := message(0, 3, "\x0a\x01k")
	for _, c := range []struct {
		name, path, contentType string
		body                    []byte
		end                     bool
	}{
		{"a good put", put, grpcType, ok, true},
		{"no message", put, grpcType, nil, true},
		{"half a prefix", put, grpcType, []byte{0, 0}, true},
		{"half a message", put, grpcType, message(0, 100, "\x0a\x01k"), true},
		{"two messages", put, grpcType, append(append([]byte{}, ok...), ok...), true},
		{"compressed without a codec", put, grpcType, message(1, 3, "\x0a\x01k"), true},
		{"unknown flag", put, grpcType, message(9, 3, "\x0a\x01k"), true},
		{"a huge length", put, grpcType, message(0, 1<<31, ""), true},
		{"a length just above the limit", put, grpcType, message(0, 3<<20, ""), true},
		{"malformed protobuf", put, grpcType, message(0, 4, "\xff\xff\xff\xff"), true},
		{"malformed watch", "/etcdserverpb.Watch/Watch", grpcType,
			message(0, 4, "\xff\xff\xff\xff"), true},
		{"unknown method", "/etcdserverpb.KV/Nope", grpcType, ok, true},
		{"no method", "/", grpcType, ok, true},
		{"no slash", "x", grpcType, ok, true},
		{"a wrong codec", put, "application/grpc+json", ok, true},
		{"the client leaves", put, grpcType, message(0, 100, "\x0a"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := call(t, etcd, c.path, c.contentType, c.body, c.end)
			got := call(t, subject, c.path, c.contentType, c.body, c.end)
			if want != got && !(got == internal && cardinality[c.name]) {
				t.Errorf("etcd %q, got %q", want, got)
			}
			serves(t, subject)
		})
	}
}

// TestHTTP is what a stock etcd answers on the client port besides gRPC.
func TestHTTP(t *testing.T) {
	t.Parallel()
	subject := proc.Start(t, proc.Config{Memory: true})
	etcd := proc.Start(t, proc.Config{Program: proc.Etcd, Memory: true})
	do := func(s *proc.Server, method, path string) string {
		req, err := http.NewRequest(method, "http://"+s.Addr()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%d %s", res.StatusCode, bytes.TrimSpace(b))
	}
	for _, c := range []struct{ method, path string }{
		{"GET", "/health"}, {"POST", "/health"}, {"PUT", "/health"},
		{"GET", "/health?serializable=true"}, {"GET", "/nonsense"},
	} {
		if want, got := do(etcd, c.method, c.path), do(subject, c.method, c.path); want != got {
			t.Errorf("%s %s: etcd %s, got %s", c.method, c.path, want, got)
		}
	}
	if v := do(subject, "GET", "/version"); !strings.HasPrefix(v, "200 ") ||
		!strings.Contains(v, `"etcdserver":"3.7.3","etcdcluster":"3.7.0","storage":"3.7.0"`) {
		t.Errorf("/version: %s", v)
	}
	if m := do(subject, "GET", "/metrics"); !strings.Contains(m, "etcd_server_has_leader 1") {
		t.Errorf("/metrics: %.500s", m)
	}
	serves(t, subject)
}
