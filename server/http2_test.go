package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"
)

// h2Client is a client whose requests share one connection of HTTP/2.
func h2Client(t *testing.T, addr string, secure bool) (client *http.Client, base string) {
	t.Helper()
	var p http.Protocols
	p.SetHTTP2(secure)
	p.SetUnencryptedHTTP2(!secure)
	dialed := 0
	tr := &http.Transport{Protocols: &p, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	tr.DialContext = func(ctx context.Context, network, a string) (net.Conn, error) {
		if dialed++; dialed > 1 {
			t.Error("a second connection was opened")
		}
		return new(net.Dialer).DialContext(ctx, network, a)
	}
	t.Cleanup(tr.CloseIdleConnections)
	base = "http://" + addr
	if secure {
		base = "https://" + addr
	}
	return &http.Client{Transport: tr, Timeout: time.Minute}, base
}

// TestAnyRequest: calls of gRPC and requests of HTTP may share a connection, in any order: that is
// decided for each of them.
func TestAnyRequest(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprint("TLS ", secure), func(t *testing.T) {
			c := Config{UnsafeNoSync: true}
			if secure {
				c.ListenClientURLs = []string{"https://127.0.0.1:0"}
				c.ClientTLS.Auto = true
				c.AdvertiseClientURLs = []string{DefaultClientURL}
			}
			_, addr := member(t, c)
			for first := range 2 {
				client, base := h2Client(t, addr, secure)
				for i := range 6 {
					if i%2 == first {
						res, err := client.Get(base + "/version")
						if err != nil {
							t.Fatal(err)
						}
						if b, err := io.ReadAll(res.Body); err != nil || res.StatusCode != 200 ||
							!strings.Contains(string(b), "etcdserver") {
							t.Errorf("HTTP, request %d: %d %s, %v", i, res.StatusCode, b, err)
						}
						res.Body.Close()
						continue
					}
					res, err := client.Post(base+pb.KV_Range_FullMethodName, "application/grpc",
						bytes.NewReader(grpcMessage(t, &pb.RangeRequest{Key: []byte("k")})))
					if err != nil {
						t.Fatal(err)
					}
					if _, err := io.ReadAll(res.Body); err != nil || res.StatusCode != 200 ||
						res.Trailer.Get("grpc-status") != "0" {
						t.Errorf("gRPC, request %d: %d %v, %v", i, res.StatusCode, res.Trailer, err)
					}
					res.Body.Close()
				}
			}
		})
	}
}

func grpcMessage(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte{0, byte(len(b) >> 24), byte(len(b) >> 16), byte(len(b) >> 8),
		byte(len(b))}, b...)
}

// TestFirstSettings: the first frame of the server has its limits, so that a client which sends
// many requests at once keeps to them.
func TestFirstSettings(t *testing.T) {
	_, addr := member(t, Config{UnsafeNoSync: true, MaxConcurrentStreams: 10})
	c := rawHTTP2(t, addr)
	f, err := c.ReadFrame()
	if err != nil {
		t.Fatal(err)
	}
	s, ok := f.(*http2.SettingsFrame)
	if !ok || s.IsAck() {
		t.Fatalf("the first frame is %v", f)
	}
	if n, ok := s.Value(http2.SettingMaxConcurrentStreams); !ok || n != 10 {
		t.Errorf("the first settings are %v", s)
	}
}

// rawHTTP2 opens a connection that sends any frames, and reads headers as a whole.
func rawHTTP2(t *testing.T, addr string, settings ...http2.Setting) *http2.Framer {
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
	c := http2.NewFramer(nc, nc)
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := c.WriteSettings(settings...); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestStopWithHTTP2: a member stops in time although streams of the gateway and the console are
// open on connections of HTTP/2, and their clients get the end.
func TestStopWithHTTP2(t *testing.T) {
	m, addr := member(t, Config{UnsafeNoSync: true})
	client, base := h2Client(t, addr, false)
	res, err := client.Post(base+"/v3/watch", "application/json",
		strings.NewReader(`{"create_request":{"key":"aw=="}}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := res.Body.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, res.Body)
		ended <- err
	}()
	stop(t, m)
	if err := <-ended; err != nil {
		t.Errorf("the stream has ended with %v", err)
	}
}
