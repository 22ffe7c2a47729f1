package client_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/client"
)

// securePort is a port that speaks TLS. It returns its address and how many clients have begun a
// handshake.
func securePort(t *testing.T) (addr string, handshakes *atomic.Int64) {
	handshakes = new(atomic.Int64)
	s := httptest.NewUnstartedServer(nil)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		handshakes.Add(1)
		return nil, nil
	}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), handshakes
}

// TestWrongScheme: an endpoint whose scheme does not fit the port fails at once, with the reason.
func TestWrongScheme(t *testing.T) {
	secure, _ := securePort(t)
	plain := start(t, &fake{}).addr
	for _, c := range []struct {
		endpoint, want string
		tls            *tls.Config
	}{
		{"http://" + secure, "the port speaks TLS: write https://", nil},
		{secure, "the port speaks TLS: write https://", nil},
		{"https://" + plain, "the port speaks no TLS: write http://", &tls.Config{}},
	} {
		cl := open(t, client.Config{Endpoints: []string{c.endpoint}, TLS: c.tls,
			DialTimeout: time.Hour})
		_, err := cl.Put(t.Context(), "k", nil)
		if !errors.Is(err, client.ErrUnreachable) || !strings.Contains(err.Error(), c.want) ||
			errors.Is(err, client.ErrUncertain) {
			t.Errorf("%s: %v", c.endpoint, err)
		}
	}
}

// TestOneWrongScheme: as long as one endpoint may still be reached, the client waits for it.
func TestOneWrongScheme(t *testing.T) {
	secure, handshakes := securePort(t)
	f := start(t, &fake{put: func(context.Context, *pb.PutRequest) (*pb.PutResponse, error) {
		return &pb.PutResponse{Header: at(2)}, nil
	}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serves atomic.Bool
	var ended atomic.Int64
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if !serves.Load() {
				conn.Close() // as a member does that is just ending
				ended.Add(1)
				continue
			}
			go forward(conn, f.addr)
		}
	}()
	t.Cleanup(func() { l.Close() })
	c := open(t, client.Config{Endpoints: []string{secure, l.Addr().String()},
		DialTimeout: time.Hour})
	done := make(chan error, 1)
	go func() {
		_, err := c.Put(t.Context(), "k", nil)
		done <- err
	}()
	for handshakes.Load() < 1 || ended.Load() < 6 {
		select {
		case err := <-done:
			t.Fatalf("the call has ended: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	serves.Store(true)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// forward copies a connection to an address until one side ends it.
func forward(conn net.Conn, addr string) {
	defer conn.Close()
	to, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer to.Close()
	go func() {
		_, _ = io.Copy(to, conn)
		to.Close()
	}()
	_, _ = io.Copy(conn, to)
}
