package portmux

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// certificate is one that is never checked.
func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// buffer is a log that several goroutines write.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// waitFor waits for a line in the log.
func (b *buffer) waitFor(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(patience); !strings.Contains(b.String(),
		text); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the log lacks %q:\n%s", text, b.String())
		}
	}
}

func secure(t *testing.T, o Options) Options {
	config := &tls.Config{Certificates: []tls.Certificate{certificate(t)},
		NextProtos: []string{"h2", "http/1.1"}}
	o.TLS = func() *tls.Config { return config }
	return o
}

func handshake(t *testing.T, c net.Conn, protocols ...string) *tls.Conn {
	t.Helper()
	s, err := tryHandshake(t, c, protocols...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func tryHandshake(t *testing.T, c net.Conn, protocols ...string) (*tls.Conn, error) {
	s := tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: protocols})
	return s, s.HandshakeContext(t.Context())
}

// TestBothOnOnePort: with TLS and without, HTTP/2 and not, with and without ALPN.
func TestBothOnOnePort(t *testing.T) {
	_, dial := serve(t, secure(t, Options{}))
	for _, protocols := range [][]string{nil, {"h2"}, {"http/1.1", "h2"}} {
		for _, c := range []struct{ side, bytes string }{{"2", preface},
			{"1", "GET / HTTP/1.1\r\n\r\n"}, {"1", "x"}} {
			conn := handshake(t, dial(), protocols...)
			if _, err := io.WriteString(conn, c.bytes); err != nil {
				t.Fatal(err)
			}
			expect(t, conn, c.side+c.bytes)
			plain := dial()
			if _, err := io.WriteString(plain, c.bytes); err != nil {
				t.Fatal(err)
			}
			expect(t, plain, c.side+c.bytes)
		}
	}
}

func TestTellsOfTLS(t *testing.T) {
	l := listen(t)
	m, err := New(l, secure(t, Options{}))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	go m.Serve()
	for _, encrypted := range []bool{false, true} {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if encrypted {
			c = handshake(t, c, "h2")
		}
		if _, err := io.WriteString(c, preface); err != nil {
			t.Fatal(err)
		}
		got, err := m.HTTP2().Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer got.Close()
		s, ok := got.(interface{ TLSState() *tls.ConnectionState })
		if ok != encrypted || ok && s.TLSState().NegotiatedProtocol != "h2" {
			t.Errorf("encrypted %v: %v", encrypted, ok)
		}
	}
}

// TestWrongWay: TLS where there is none, and none where there must be, is over at the first byte.
func TestWrongWay(t *testing.T) {
	log := &buffer{}
	logger := slog.New(slog.NewTextHandler(log, nil))
	_, dialPlain := serve(t, Options{Logger: logger})
	c := tls.Client(dialPlain(), &tls.Config{InsecureSkipVerify: true})
	if err := c.HandshakeContext(t.Context()); err == nil {
		t.Error("a handshake without TLS")
	}
	log.waitFor(t, "rejected connection on client endpoint")
	log.waitFor(t, "this address speaks no TLS")

	_, dialTLS := serve(t, secure(t, Options{Logger: logger, RefusePlain: true}))
	for _, text := range []string{preface, "GET / HTTP/1.1\r\n\r\n", "\x00"} {
		plain := dialTLS()
		if _, err := io.WriteString(plain, text); err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(plain); len(b) > 0 || isTimeout(err) {
			t.Errorf("%q was answered by %q (%v)", text, b, err)
		}
	}
	log.waitFor(t, "does not look like a TLS handshake")
	// An old version of TLS is told so, in words and in the log.
	old := tls.Client(dialTLS(),
		&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10,
			MaxVersion: tls.VersionTLS11})
	if err := old.HandshakeContext(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "protocol version") {
		t.Errorf("TLS 1.1: %v", err)
	}
	log.waitFor(t, "unsupported versions")
	if _, err := New(listen(t), Options{RefusePlain: true}); err == nil {
		t.Error("a listener for nobody")
	}
}

// TestHalfOpenHandshakes: they end after the timeout, the oldest makes way when there are many, and
// they delay no other.
func TestHalfOpenHandshakes(t *testing.T) {
	_, dial := serve(t, secure(t, Options{MaxPending: 3}))
	var half []net.Conn
	for range 5 {
		c := dial()
		if _, err := c.Write([]byte{handshakeRecord, 3, 1}); err != nil {
			t.Fatal(err)
		}
		half = append(half, c)
	}
	closed(t, half[0])
	closed(t, half[1])
	conn := handshake(t, dial())
	if _, err := io.WriteString(conn, "x"); err != nil {
		t.Fatal(err)
	}
	expect(t, conn, "1x")

	_, dial = serve(t, secure(t, Options{Timeout: 50 * time.Millisecond}))
	c := dial()
	if _, err := c.Write([]byte{handshakeRecord, 3, 1, 2, 0}); err != nil {
		t.Fatal(err)
	}
	closed(t, c)
	// The same goes for silence behind the handshake.
	closed(t, inTime(func() (*tls.Conn, error) { return tryHandshake(t, dial()) }))
}

// TestFewLines: a flood of refused connections is not a flood of lines.
func TestFewLines(t *testing.T) {
	log := &buffer{}
	_, dial := serve(t, Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
	for range 200 {
		c := dial()
		if _, err := c.Write([]byte{handshakeRecord}); err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, c)
	}
	if n := strings.Count(log.String(), "rejected"); n == 0 || n >= 200 {
		t.Errorf("%d lines", n)
	}
	var l lines
	now := time.Now()
	for i := range 3 * maxLines {
		if dropped, ok := l.allowLine(now); ok != (i < maxLines) || dropped != 0 {
			t.Fatalf("line %d: %v, %d left out", i, ok, dropped)
		}
	}
	if dropped, ok := l.allowLine(now.Add(time.Second)); !ok || dropped != 2*maxLines {
		t.Errorf("a second later: %v, %d left out", ok, dropped)
	}
}
