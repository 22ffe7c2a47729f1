package httpd

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// pipeListener accepts pipes: a write to one takes until the other side has read it.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l pipeListener) Close() error   { close(l.closed); return nil }
func (l pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// A client that does not read a page loses its connection; the answer of the gateway may take any
// time, also on a connection on which a page was sent before.
func TestStalledReaders(t *testing.T) {
	large := http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		io.WriteString(w, strings.Repeat("x", 100<<10))
	})
	handlers := func(hosts ...string) *Handlers {
		h, err := New(Config{Health: &fakeMember{leader: 1}, Registry: prometheus.NewRegistry(),
			CheckTimeout: time.Second, Gateway: large,
			Watchers: large, Members: large, Versions: func() Versions { return Versions{} },
			HostWhitelist: hosts})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	h := handlers()
	for _, c := range []struct {
		name     string
		handler  http.Handler
		requests []string
		closed   bool
	}{
		{"metrics", h.Client, []string{"GET /metrics"}, true},
		{"metrics listener", h.Metrics, []string{"GET /metrics"}, true},
		{"short page", h.Client, []string{"GET /health"}, true},
		{"watchers", h.Client, []string{"GET /debug/watch"}, true},
		{"members", h.Peer, []string{"GET /members"}, true},
		{"second page", h.Client, []string{"GET /health", "GET /metrics"}, true},
		{"rejected host", handlers("other").Client, []string{"POST /v3/watch"}, true},
		{"options", h.Client, []string{"OPTIONS /v3/watch"}, true},
		{"gateway", h.Client, []string{"POST /v3/watch"}, false},
		{"gateway after a page", h.Client, []string{"GET /health", "POST /v3/watch"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t,
				func(t *testing.T) { stall(t, c.handler, c.requests, c.closed) })
		})
	}
}

// stall sends requests on one connection, reads all answers but the last, and fails unless the
// connection is closed within two minutes, or is not.
func stall(t *testing.T, h http.Handler, requests []string, closed bool) {
	l := pipeListener{make(chan net.Conn), make(chan struct{})}
	s := Server(h, func(net.Conn) {}, slog.New(slog.DiscardHandler))
	ended := make(chan struct{})
	s.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			close(ended)
		}
	}
	served := make(chan error)
	go func() { served <- s.Serve(l) }()
	client, server := net.Pipe()
	l.conns <- server
	buf := make([]byte, 64<<10)
	for i, r := range requests {
		if _, err := fmt.Fprintf(client, "%s HTTP/1.1\r\nHost: member\r\nContent-Length: 0\r\n\r\n",
			r); err != nil {
			t.Fatal(err)
		}
		if i < len(requests)-1 {
			if _, err := client.Read(buf); err != nil {
				t.Fatal(err)
			}
			time.Sleep(pageTimeout / 2)
		}
	}
	select {
	case <-ended:
		if !closed {
			t.Error("the connection was closed")
		}
	case <-time.After(2 * pageTimeout):
		if closed {
			t.Error("the connection is open after two minutes without a read")
		}
	}
	if err := errors.Join(client.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Fatal(err)
	}
}

// A health check that takes longer than sending a page may is answered.
func TestLongChecks(t *testing.T) {
	h, err := New(Config{Health: &fakeMember{leader: 1, hang: true},
		Registry: prometheus.NewRegistry(), CheckTimeout: 2 * pageTimeout,
		Versions: func() Versions { return Versions{} }})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/health", "/readyz", "/readyz/linearizable_read"} {
		synctest.Test(t, func(t *testing.T) {
			l := pipeListener{make(chan net.Conn), make(chan struct{})}
			s := Server(h.Client, func(net.Conn) {}, slog.New(slog.DiscardHandler))
			served := make(chan error)
			go func() { served <- s.Serve(l) }()
			client, server := net.Pipe()
			l.conns <- server
			if _, err := fmt.Fprintf(client, "GET %s HTTP/1.1\r\nHost: member\r\n\r\n",
				path); err != nil {
				t.Fatal(err)
			}
			if res, err := http.ReadResponse(bufio.NewReader(client), nil); err != nil ||
				res.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("%s: %v, %v", path, res, err)
			}
			if err := errors.Join(client.Close(), s.Close()); err != nil {
				t.Fatal(err)
			}
			if err := <-served; !errors.Is(err, http.ErrServerClosed) {
				t.Fatal(err)
			}
		})
	}
}
