package portmux

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"
)

// underLimit opens a listener under a limit, and returns how to connect to it: the two ends, the
// listener's nil if the connection was refused.
func underLimit(t *testing.T, l *Limit) func() (client, server net.Conn) {
	t.Helper()
	root, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	accepted := make(chan net.Conn)
	go func() {
		limited := l.Listener(root)
		for {
			c, err := limited.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- c
		}
	}()
	return func() (net.Conn, net.Conn) {
		c, err := net.Dial("tcp", root.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			_, _ = c.Read(make([]byte, 1))
		}()
		select {
		case s := <-accepted:
			_ = c.SetReadDeadline(time.Now()) // ends the reading
			<-closed
			_ = c.SetReadDeadline(time.Time{})
			return c, s
		case <-closed:
			return c, nil
		}
	}
}

func isClosed(t *testing.T, c net.Conn) bool {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	_, err := io.ReadAll(c)
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

func TestLimit(t *testing.T) {
	l := NewLimit(3, time.Hour, slog.New(slog.DiscardHandler))
	connect, other := underLimit(t, l), underLimit(t, l)
	oldest, _ := connect()
	_, calling := connect()
	_, wrapped := other()
	CallMade(calling)
	CallMade(&secured{&prefixed{Conn: &prefixed{Conn: wrapped}}})
	// None is closed for another at once.
	since := func(at time.Time) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.mu.silent.Front().Value.(*limited).since = at
	}
	since(time.Now().Add(time.Hour)) // however long the next connection takes
	if _, s := connect(); s != nil {
		t.Error("there are more than the limit")
	}
	since(time.Now().Add(-time.Minute))
	// Then the oldest without a call makes room, and when there is none any more nothing does.
	_, next := other()
	if next == nil || !isClosed(t, oldest) {
		t.Error("a silent connection makes no room")
	}
	CallMade(next)
	if _, s := connect(); s != nil {
		t.Error("a connection that is used made room")
	}
	if n := l.Open(); n != 3 {
		t.Errorf("%d are open", n)
	}
	for range 2 { // closing is counted once
		calling.Close()
		next.Close()
	}
	if _, s := connect(); s == nil {
		t.Error("there is no room where two were closed")
	}
	if n := l.Open(); n != 2 {
		t.Errorf("%d are open", n)
	}
	CallMade(nil)
}

func TestSilence(t *testing.T) {
	const silence = 50 * time.Millisecond
	l := NewLimit(12, silence, slog.New(slog.DiscardHandler))
	connect := underLimit(t, l)
	// A few may be silent.
	var used []net.Conn
	for range 3 + 1 {
		_, s := connect()
		CallMade(s)
		used = append(used, s)
	}
	var few []net.Conn
	for range 3 {
		c, _ := connect()
		few = append(few, c)
	}
	time.Sleep(10 * silence)
	for _, c := range few {
		if err := c.SetReadDeadline(time.Now()); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("one of a few that are silent: %v", err)
		}
	}
	// More of them are closed, and none that is used.
	for range 2 {
		connect()
	}
	for deadline := time.Now().Add(patience); l.Open() != 4+3; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d are open", l.Open())
		}
	}
	for _, s := range used {
		if err := s.SetDeadline(time.Time{}); err != nil {
			t.Errorf("a connection that is used was closed: %v", err)
		}
	}
}
