package gateway

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/net/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/grpclog"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"vigil/internal/edge/rpc/transport"
)

// streaming answers streams with n messages and an error.
type endingStream struct {
	grpc.ClientStream
	ctx context.Context
	n   int
	err error
}

func (s *endingStream) Header() (metadata.MD, error) { return nil, nil }
func (s *endingStream) Trailer() metadata.MD         { return nil }
func (s *endingStream) Context() context.Context     { return s.ctx }
func (s *endingStream) SendMsg(any) error            { return nil }
func (s *endingStream) CloseSend() error             { return nil }
func (s *endingStream) RecvMsg(out any) error {
	if s.n == 0 {
		if s.err == nil {
			<-s.ctx.Done()
			return s.ctx.Err()
		}
		return s.err
	}
	s.n--
	if w, ok := out.(*etcdserverpb.WatchResponse); ok {
		proto.Merge(w, &etcdserverpb.WatchResponse{WatchId: 7})
	}
	return nil
}

type streams struct {
	services
	n   int
	err error
}

func (s streams) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string,
	_ ...grpc.CallOption) (grpc.ClientStream, error) {
	return &endingStream{ctx: ctx, n: s.n, err: s.err}, nil
}

// TestErrorsOfStreams: an error within a stream is a message like those of etcd.
func TestErrorsOfStreams(t *testing.T) {
	for _, c := range []struct {
		path string
		n    int
		code int
		want string
	}{
		{"/v3/watch", 1, 200,
			`{"result":{"watch_id":"7"}}` + "\n" +
				`{"error":{"code":14,"message":"no leader"}}` + "\n"},
		{"/v3/watch", 0, 503, `{"error":{"code":14,"message":"no leader"}}` + "\n"},
		{"/v3/election/observe", 1, 200,
			`{"result":{}}` + "\n" + `{"error":{"code":14,"message":"no leader"}}` + "\n"},
		{"/v3/maintenance/snapshot", 0, 503, `{"error":{"code":14,"message":"no leader"}}` + "\n"},
	} {
		g, err := New(Config{Conn: streams{n: c.n,
			err: status.Error(codes.Unavailable, "no leader")}, MaxBodyBytes: 100})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		g.ServeHTTP(w, httptest.NewRequest(http.MethodPost, c.path, strings.NewReader(`{}`)))
		if w.Code != c.code || w.Body.String() != c.want {
			t.Errorf("%s: %d %s, want %d %s", c.path, w.Code, w.Body, c.code, c.want)
		}
		g.Close()
	}
}

// TestCloseEndsWebSockets: those that wait for a message or an answer end with the gateway, and
// there are none after it.
func TestCloseEndsWebSockets(t *testing.T) {
	g, err := New(Config{Conn: streams{}, MaxBodyBytes: 100})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(g)
	defer s.Close()
	dial := func() (*websocket.Conn, error) {
		return websocket.Dial("ws"+strings.TrimPrefix(s.URL, "http")+"/v3/watch", "", s.URL)
	}
	var open []*websocket.Conn
	for _, message := range []string{"", `{"create_request":{}}`, `{"create_`} {
		ws, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		defer ws.Close()
		if message != "" {
			if _, err := ws.Write([]byte(message)); err != nil {
				t.Fatal(err)
			}
		}
		open = append(open, ws)
	}
	g.Close()
	for i, ws := range open {
		ws.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.Copy(io.Discard, ws); errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("WebSocket %d: %v", i, err)
		}
	}
	if ws, err := dial(); err == nil {
		ws.Close()
		t.Error("a WebSocket after the end")
	}
}

// failing are services whose streams cannot be opened, or end with an error before the first
// answer.
type failing struct {
	Services
	open bool
}

var errNoLeader = status.Error(codes.Unavailable, "no leader")

func (f failing) Open(context.Context, string) (transport.LocalStream, error) {
	if !f.open {
		return nil, errNoLeader
	}
	return refused{errNoLeader}, nil
}

// TestErrorsBeforeAnswers: an error before the first answer of a stream is a message of the stream,
// too, with its status.
func TestErrorsBeforeAnswers(t *testing.T) {
	for _, open := range []bool{false, true} {
		g, err := New(Config{Conn: NewConn(failing{open: open}), MaxBodyBytes: 100})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		for _, path := range []string{"/v3/watch", "/v3/lease/keepalive",
			"/v3/maintenance/snapshot", "/v3/election/observe"} {
			w := httptest.NewRecorder()
			g.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(`{}`)))
			if want := `{"error":{"code":14,"message":"no leader"}}` + "\n"; w.Code != 503 ||
				w.Body.String() != want {
				t.Errorf("%s: %d %s, want %s", path, w.Code, w.Body, want)
			}
		}
	}
}

// pipes is a listener of connections without buffers.
type pipes struct {
	accept chan net.Conn
	closed chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p pipes) Close() error   { close(p.closed); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

// libraryLines are the errors that the library of the gateway logs.
var libraryLines lockedText

type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// take returns the lines so far, and forgets them.
func (l *lockedText) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}

func TestMain(m *testing.M) {
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, &libraryLines))
	os.Exit(m.Run())
}

// selfSigned returns a certificate for tests.
func selfSigned(t *testing.T) tls.Certificate {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestCloseDoesNotWaitForReaders: clients that do not read the answer to their handshake, or the
// end of TLS, do not delay Close.
func TestCloseDoesNotWaitForReaders(t *testing.T) {
	t.Run("handshake", func(t *testing.T) { closeUnread(t, nil) })
	t.Run("TLS", func(t *testing.T) {
		closeUnread(t, &tls.Config{Certificates: []tls.Certificate{selfSigned(t)},
			SessionTicketsDisabled: true})
	})
}

// closeUnread opens a WebSocket, of which it reads no more than the answer to the handshake, and
// that only with TLS.
func closeUnread(t *testing.T, secure *tls.Config) {
	libraryLines.take()
	synctest.Test(t, func(t *testing.T) {
		g, err := New(Config{Conn: streams{}, MaxBodyBytes: 100})
		if err != nil {
			t.Fatal(err)
		}
		p := pipes{make(chan net.Conn), make(chan struct{})}
		s := &http.Server{Handler: g}
		go s.Serve(p)
		defer s.Close()
		ours, theirs := net.Pipe()
		defer ours.Close()
		if secure == nil {
			p.accept <- theirs
		} else {
			p.accept <- tls.Server(theirs, secure)
			ours = tls.Client(ours, &tls.Config{InsecureSkipVerify: true})
		}
		if _, err := io.WriteString(ours,
			"GET /v3/watch HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nOrigin: http://a\r\n"+
				"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if secure != nil {
			if _, err := http.ReadResponse(bufio.NewReader(ours), nil); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		begun := time.Now()
		g.Close()
		if took := time.Since(begun); took > 0 {
			t.Errorf("Close took %v", took)
		}
		synctest.Wait()
		// by the clock of this test, which sets its lines apart from those of others
		today := time.Now().Format("2006/01/02")
		for line := range strings.Lines(libraryLines.take()) {
			if strings.HasPrefix(line, today) {
				t.Errorf("the library logs %s", line)
			}
		}
	})
}
