package client_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"vigil/client"
)

// listen calls serve for each connection to a new port.
func listen(t *testing.T, serve func(c *net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c.(*net.TCPConn))
			}()
		}
	}()
	return l.Addr().String()
}

// peeked is a connection of which a reader has read ahead.
type peeked struct {
	net.Conn
	b *bufio.Reader
}

func (p *peeked) Read(b []byte) (int, error) { return p.b.Read(b) }

// deaf is a port that drops the packets of new connections: its queue is full.
func deaf(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err == nil {
		err = errors.Join(raw.Control(func(fd uintptr) { err = syscall.Listen(int(fd), 0) }), err)
	}
	for n := 0; err == nil; n++ {
		if n == 100 {
			t.Fatal("the queue of the port is never full")
		}
		var c net.Conn
		if c, err = net.DialTimeout("tcp", l.Addr().String(), 100*time.Millisecond); err == nil {
			t.Cleanup(func() { c.Close() })
		}
	}
	if !os.IsTimeout(err) {
		t.Fatal(err)
	}
	return l.Addr().String()
}

// TestUnreachableReasons: what the error says of a port that does not serve as a member does is
// true of it, and names the next step.
func TestUnreachableReasons(t *testing.T) {
	readAll := func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) }
	silent := listen(t, readAll)
	closes := listen(t, func(*net.TCPConn) {})
	closesLater := listen(t, func(c *net.TCPConn) { _, _ = c.Read(make([]byte, 1)) })
	resets := listen(t, func(c *net.TCPConn) { _ = c.SetLinger(0) })
	other := listen(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "SSH-2.0-OpenSSH_9.6\r\n")
		readAll(c)
	})
	old := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(old.Close)
	proxy := listen(t, func(c *net.TCPConn) {
		_, _ = bufio.NewReader(c).Peek(1)
		_, _ = io.WriteString(c,
			"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		_ = c.CloseWrite()
		readAll(c)
	})
	// As nginx does at a port for TLS.
	secured := tls.Config{Certificates: func() []tls.Certificate {
		s := httptest.NewUnstartedServer(nil)
		s.StartTLS()
		defer s.Close()
		return s.TLS.Certificates
	}(), NextProtos: []string{"h2"}}
	explains := listen(t, func(c *net.TCPConn) {
		b := bufio.NewReader(c)
		if first, err := b.Peek(1); err != nil || first[0] == 'P' {
			_, _ = io.WriteString(c,
				"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			_ = c.CloseWrite()
			readAll(c)
			return
		}
		_ = tls.Server(&peeked{c, b}, &secured).HandshakeContext(t.Context())
	})
	const (
		closing = ": check its log, and that the address is the client port of a member"
		waits   = "accepts the connection and does not answer: check whether its process hangs or is stopped"
	)
	var all sync.WaitGroup
	defer all.Wait()
	for _, c := range []struct {
		name, addr, plain, secure string
	}{
		{"silent", silent, waits, waits},
		{"closes", closes, "closes the connection without an answer" + closing,
			"closes the connection during the TLS handshake" + closing},
		{"closes later", closesLater, "closes the connection without an answer" + closing,
			"closes the connection during the TLS handshake" + closing},
		{"resets", resets, "closes the connection without an answer" + closing,
			"closes the connection "},
		{"another protocol", other, "answers, but not in HTTP/2: check that the address",
			"answers, but not in TLS: check the address"},
		{"HTTP/1", old.Listener.Addr().String(), "answers in HTTP/1 only",
			"answers, but not in TLS"},
		{"a proxy of HTTP/1", proxy, "answers in HTTP/1 only", "answers, but not in TLS"},
		{"TLS that explains", explains, "the port speaks TLS: write https://",
			"the authority of the member's certificate is not known"},
		{"drops packets", deaf(t), "no reply to the attempt to connect: check the address",
			"no reply to the attempt to connect: check the address"},
		{"nothing", "127.0.0.1:1", "connection refused", "connection refused"},
	} {
		for _, secure := range []bool{false, true} {
			name, want, cfg := c.name, c.plain,
				client.Config{Endpoints: []string{c.addr}, DialTimeout: 2 * time.Second}
			if secure {
				name, want, cfg.TLS = name+", TLS", c.secure, &tls.Config{}
			}
			cl := open(t, cfg)
			all.Go(func() {
				_, err := cl.Put(t.Context(), "k", nil)
				if !errors.Is(err, client.ErrUnreachable) ||
					!strings.Contains(err.Error(), "; "+c.addr+": "+want) {
					t.Errorf("%s: got %v, want %s", name, err, want)
				}
			})
		}
	}
	if !testing.Short() { // it takes as long as an attempt to connect
		failed := make(chan error, 1)
		cl := open(t, client.Config{Endpoints: []string{silent}, DialTimeout: time.Minute,
			Hooks: client.Hooks{Member: func(_ string, _ client.MemberState, err error) {
				select {
				case failed <- err:
				default:
				}
			}}})
		all.Go(func() { _, _ = cl.Put(t.Context(), "k", nil) })
		for err := range failed {
			if err != nil {
				if !strings.Contains(err.Error(), waits) {
					t.Error(err)
				}
				break
			}
		}
		cl.Close()
	}
}
