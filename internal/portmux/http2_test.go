package portmux

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// splitServers puts a server of HTTP and one of gRPC behind a Mux and returns its address.
func splitServers(t *testing.T, o Options) string {
	t.Helper()
	o.SplitHTTP2 = true
	l := listen(t)
	m, err := New(l, o)
	if err != nil {
		t.Fatal(err)
	}
	go m.Serve()
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	h := &http.Server{Protocols: &p, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		fmt.Fprint(w, r.Proto, " ", len(b), " ", err)
	})}
	go h.Serve(m.HTTP1())
	g := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(g, health.NewServer())
	go g.Serve(m.HTTP2())
	t.Cleanup(func() {
		h.Close()
		g.Stop()
		m.Close()
	})
	return l.Addr().String()
}

// TestSplitsHTTP2: requests over HTTP/2 go where their kind is answered, many on one connection and with
// bodies; a gRPC connection that waits before its first call is one too.
func TestSplitsHTTP2(t *testing.T) {
	addr := splitServers(t, Options{})
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: &p}}
	defer client.CloseIdleConnections()
	for i := range 50 {
		body := bytes.Repeat([]byte("x"), i*1000)
		res, err := client.Post("http://"+addr, "application/json", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(res.Body)
		res.Body.Close()
		if want := fmt.Sprint("HTTP/2.0 ", len(body), " <nil>"); err != nil || string(b) != want {
			t.Fatalf("%q, %v, want %q", b, err, want)
		}
	}
	cc, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	cc.Connect()
	for s := cc.GetState(); s.String() != "READY"; s = cc.GetState() {
		if !cc.WaitForStateChange(t.Context(), s) {
			t.Fatal("no connection")
		}
	}
	for range 10 {
		if _, err := grpc_health_v1.NewHealthClient(cc).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
	}
}

// headers encodes a frame that begins a request.
func headers(contentType string, change func(*http2.HeadersFrameParam)) []byte {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	e.WriteField(hpack.HeaderField{Name: ":method", Value: "POST"})
	if contentType != "" {
		e.WriteField(hpack.HeaderField{Name: "content-type", Value: contentType})
	}
	p := http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true}
	if change != nil {
		change(&p)
	}
	var b bytes.Buffer
	http2.NewFramer(&b, nil).WriteHeaders(p)
	return b.Bytes()
}

func TestFirstRequest(t *testing.T) {
	padded := func(p *http2.HeadersFrameParam) {
		p.PadLength = 100
		p.Priority = http2.PriorityParam{Weight: 3}
	}
	for _, c := range []struct {
		frame []byte
		grpc  bool
	}{
		{headers("application/grpc", nil), true},
		{headers("application/grpc+proto", padded), true},
		{headers("application/json", nil), false},
		{headers("application/json", padded), false},
		{headers("", nil), false},
		{headers("", func(p *http2.HeadersFrameParam) { p.BlockFragment = nil }), true},
		{headers("", func(p *http2.HeadersFrameParam) { p.BlockFragment = []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff} }), true},
	} {
		if got := isGRPC(c.frame[4], c.frame[frameHeader:]); got != c.grpc {
			t.Errorf("%q: %v", c.frame, got)
		}
	}
}

// TestUnacknowledged: exactly the first acknowledgement is left out, however the bytes come.
func TestUnacknowledged(t *testing.T) {
	var frames, want bytes.Buffer
	both := io.MultiWriter(&frames, &want)
	f := http2.NewFramer(both, nil)
	f.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 14})
	f.WriteData(1, false, []byte(strings.Repeat("d", 5000)))
	http2.NewFramer(&frames, nil).WriteSettingsAck()
	f.WritePing(false, [8]byte{1})
	f.WriteSettingsAck()
	f.WriteData(1, true, []byte("end"))
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		ours, theirs := net.Pipe()
		go func() {
			for b := frames.Bytes(); len(b) > 0; {
				n := 1 + r.IntN(min(len(b), 20))
				ours.Write(b[:n])
				b = b[n:]
			}
			ours.Close()
		}()
		got, err := io.ReadAll(&unacknowledged{Conn: theirs})
		if err != nil || !bytes.Equal(got, want.Bytes()) {
			t.Fatalf("seed %d: %v, %d bytes, want %d", seed, err, len(got), want.Len())
		}
		theirs.Close()
	}
}

// TestSlowHTTP2: what does not come to a request ends where gRPC ends it.
func TestSlowHTTP2(t *testing.T) {
	l := listen(t)
	m, err := New(l, Options{SplitHTTP2: true, MaxPending: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	go m.Serve()
	var settings bytes.Buffer
	http2.NewFramer(&settings, nil).WriteSettings()
	for _, text := range []string{preface, preface + settings.String(), preface + "\xff\xff\xff\x00\x00\x00\x00\x00\x00"} {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		expect(t, c, string(serverPreface))
		// It is HTTP/2 now, and one that says nothing does not take its place.
		silent, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		conn, err := m.HTTP2().Accept()
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(patience))
		expect(t, conn, text)
		conn.Close()
	}
}

func FuzzSplit(f *testing.F) {
	f.Add(headers("application/json", nil))
	f.Add([]byte{0, 0, 0, 4, 1, 0, 0, 0, 0})
	f.Add([]byte{0, 0, 200, 1, 0x28, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= frameHeader {
			isGRPC(b[4], b[frameHeader:])
		}
		c := &unacknowledged{Conn: readerConn{r: bytes.NewReader(b)}}
		got, _ := io.ReadAll(c)
		if len(got) > len(b) {
			t.Fatalf("%d bytes out of %d", len(got), len(b))
		}
	})
}

// readerConn is a connection that is only read.
type readerConn struct {
	net.Conn
	r io.Reader
}

func (c readerConn) Read(b []byte) (int, error) { return c.r.Read(b) }
