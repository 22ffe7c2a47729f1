package h2http

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"vigil/internal/edge/rpc/transport/h2"
)

// FuzzRequest: whatever a request has, it is one that net/http could have made, or is invalid.
func FuzzRequest(f *testing.F) {
	f.Add("GET", "/a?b#c", "cookie", "a=b", true)
	f.Add("OPTIONS", "*", "content-length", "5", false)
	f.Add("CONNECT", "x:1", "host", "a", true)
	f.Add("POST", "//\x00", "", "x", false)
	f.Fuzz(func(t *testing.T, method, path, name, value string, ended bool) {
		if method == "" || path == "" || name == "" {
			return // package h2 rejects it
		}
		c := &Conn{Remote: "x"}
		r, err := c.makeRequest(&h2.Request{Method: method, Path: path, Ended: ended,
			Fields: []hpack.HeaderField{
				{Name: ":method", Value: method}, {Name: ":path", Value: path},
				{Name: name, Value: value}, {Name: name, Value: value}}})
		if r == nil || r.URL == nil || r.Header == nil {
			t.Fatalf("%+v, %v", r, err)
		}
		if err == nil && method == http.MethodConnect {
			t.Error("CONNECT is valid")
		}
	})
}

// FuzzConn: any bytes after the preface end in nothing worse than the end of the connection, and of
// all handlers.
func FuzzConn(f *testing.F) {
	var b bytes.Buffer
	w := http2.NewFramer(&b, nil)
	must(w.WriteSettings())
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	fields := []string{":method", "POST", ":scheme", "http", ":path", "/echo", ":authority", "x",
		"expect", "100-continue"}
	for i := 0; i < len(fields); i += 2 {
		must(enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	must(w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true,
		BlockFragment: block.Bytes()}))
	must(w.WriteDataPadded(1, false, []byte("hello"), make([]byte, 10)))
	must(w.WriteWindowUpdate(1, 100))
	must(w.WriteData(1, true, []byte("world")))
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		nc, err := net.Dial("tcp", serveOwn(t, mux(), h2.Options{}))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		must(nc.SetDeadline(time.Now().Add(time.Minute)))
		if _, err := nc.Write(append([]byte(http2.ClientPreface), b...)); err != nil {
			return
		}
		must(nc.(*net.TCPConn).CloseWrite())
		// until the server has ended it; the cleanup waits for the handlers
		_, _ = io.Copy(io.Discard, nc)
	})
}
