package portmux

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestHold: connections of HTTP/2 wait for Release and lose no byte, HTTP/1 does not wait, and a
// client that leaves is noticed.
func TestHold(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(l, Options{Timeout: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	m.Hold()
	served := make(chan error, 1)
	go func() { served <- m.Serve() }()
	taken := make(chan net.Conn, 2)
	go func() {
		for c, err := m.HTTP2().Accept(); err == nil; c, err = m.HTTP2().Accept() {
			taken <- c
		}
	}()
	dial := func(first string) net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := io.WriteString(c, first); err != nil {
			t.Fatal(err)
		}
		return c
	}
	held := func() int {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.mu.held)
	}
	until := func(what string, n int) {
		t.Helper()
		for end := time.Now().Add(patience); held() != n; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %d connections are held, want %d", what, held(), n)
			}
		}
	}

	c := dial(preface + "settings")
	until("a client of gRPC", 1)
	dial("GET / HTTP/1.1\r\n\r\n")
	one, err := m.HTTP1().Accept()
	if err != nil {
		t.Fatal(err)
	}
	one.Close()

	leaves := dial(preface)
	until("a second one", 2)
	leaves.Close()
	until("it has left", 1)

	big := dial(preface)
	until("a third one", 2)
	much := bytes.Repeat([]byte{'x'}, 3*maxHeld)
	if _, err := big.Write(much); err != nil {
		t.Fatal(err)
	}

	time.Sleep(2 * m.o.Timeout) // the time of connections that are not held
	if n := held(); n != 2 {
		t.Fatalf("%d are held after the timeout", n)
	}
	select {
	case <-taken:
		t.Fatal("handed over before Release")
	default:
	}
	m.Release()
	wants := map[string]string{c.LocalAddr().String(): preface + "settings and more",
		big.LocalAddr().String(): preface + string(much) + " and more"}
	for _, c := range []net.Conn{c, big} {
		if _, err := io.WriteString(c, " and more"); err != nil {
			t.Fatal(err)
		}
	}
	for range wants {
		select {
		case got := <-taken:
			defer got.Close()
			want := wants[got.RemoteAddr().String()]
			b := make([]byte, len(want))
			if _, err := io.ReadFull(got, b); err != nil || string(b) != want {
				t.Fatalf("%d bytes of %d, %v", len(b), len(want), err)
			}
		case <-time.After(patience):
			t.Fatal("not handed over")
		}
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-served; err != nil {
		t.Fatal(err)
	}
}

// TestHoldDrain: a member that stops before it serves does not wait for held connections, and one
// that is evicted is closed, whatever its client has sent.
func TestHoldDrain(t *testing.T) {
	for _, sent := range []int{0, 3 * maxHeld} {
		testHoldDrain(t, preface+strings.Repeat("x", sent))
	}
}

func testHoldDrain(t *testing.T, first string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(l, Options{MaxPending: 2})
	if err != nil {
		t.Fatal(err)
	}
	m.Hold()
	go m.Serve()
	var clients []net.Conn
	for i := range 3 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		clients = append(clients, c)
		if _, err := io.WriteString(c, first); err != nil {
			t.Fatal(err)
		}
		for held := 0; held != min(i+1, 2); time.Sleep(time.Millisecond) {
			m.mu.Lock()
			held = len(m.mu.held)
			m.mu.Unlock()
		}
	}
	if err := clients[0].SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := clients[0].Read(make([]byte, 1)); err == nil ||
		errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the evicted connection: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := m.Drain(ctx); err != nil || ctx.Err() != nil {
		t.Fatal(err, ctx.Err())
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestHoldTLS: while connections of HTTP/2 are held, a client that offers both gets HTTP/1.1, and
// one of gRPC still gets HTTP/2.
func TestHoldTLS(t *testing.T) {
	var config atomic.Pointer[tls.Config]
	config.Store(&tls.Config{Certificates: []tls.Certificate{certificate(t)},
		NextProtos: []string{"h2", "http/1.1"}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(l, Options{TLS: config.Load})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	m.Hold()
	go m.Serve()
	chosen := func(offers ...string) string {
		t.Helper()
		c, err := tls.Dial("tcp", l.Addr().String(),
			&tls.Config{InsecureSkipVerify: true, NextProtos: offers})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().NegotiatedProtocol
	}
	asHeld := func(what string) {
		t.Helper()
		if both, grpc, old := chosen("h2", "http/1.1"), chosen("h2"),
			chosen("http/1.1"); both != "http/1.1" || grpc != "h2" || old != "http/1.1" {
			t.Errorf("%s: %q, %q, %q", what, both, grpc, old)
		}
	}
	asHeld("while connections are held")
	inner := config.Load()
	outer := inner.Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config,
		error) {
		return inner.Clone(), nil
	}
	config.Store(outer)
	asHeld("with a configuration for each client")
	m.Release()
	if both := chosen("h2", "http/1.1"); both != "h2" {
		t.Errorf("after Release: %q", both)
	}
}

// TestReleaseUnderLimit: when the member serves, a connection that was held is as safe from newer
// ones as one that has just come. Its first call is on its way.
func TestReleaseUnderLimit(t *testing.T) {
	limit := NewLimit(2, 0, slog.New(slog.DiscardHandler))
	root, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(limit.Listener(root), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	m.Hold()
	go m.Serve()
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", root.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := io.WriteString(c, preface); err != nil {
			t.Fatal(err)
		}
		return c
	}
	clients := []net.Conn{dial(), dial()}
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		m.mu.Lock()
		n := len(m.mu.held)
		m.mu.Unlock()
		if n == len(clients) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d connections are held", n)
		}
	}
	long := time.Now().Add(-time.Hour)
	limit.mu.Lock()
	for e := limit.mu.silent.Front(); e != nil; e = e.Next() {
		e.Value.(*limited).since = long
	}
	limit.mu.Unlock()
	m.Release()
	limit.mu.Lock()
	defer limit.mu.Unlock()
	n := 0
	for e := limit.mu.silent.Front(); e != nil; e = e.Next() {
		n++
		if !e.Value.(*limited).since.After(long) {
			t.Error("a newer connection may replace one that was held")
		}
	}
	if n != len(clients) {
		t.Errorf("%d connections are silent", n)
	}
}
